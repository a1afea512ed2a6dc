"""Profiles one compiled module. Of ``worker`` it may import ``upstream``, ``launches`` and ``device``."""
