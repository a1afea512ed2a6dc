"""The version of the package, which records and kernel files name."""

__version__ = "0.1.0"
