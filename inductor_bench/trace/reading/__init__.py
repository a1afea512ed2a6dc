"""Reads the file of a Chrome trace into a ``records.Trace``. It imports records and errors only."""
