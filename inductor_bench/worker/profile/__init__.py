"""Profiles one compiled module. It may not import ``capture``, which calls it."""
