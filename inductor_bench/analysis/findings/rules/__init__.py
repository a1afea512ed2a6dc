"""The rules, one function for each kind of finding, in files by subject. Each has a row in ``table``."""
