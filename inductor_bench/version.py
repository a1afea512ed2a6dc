"""The version of the package, which records and kernel files name, and the number of the records' format."""

__version__ = "0.1.0"

RECORD_FORMAT = 3
"""The number changes if a field of ``record.json`` changes its meaning; ``store/codec.py`` reads older records."""
