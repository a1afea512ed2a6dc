"""Reads the file of a Chrome trace into a ``records.Trace``. Of ``trace`` it may import no other room."""
