"""The records of a comparison of modes: the settings of its rows, and what was measured."""
