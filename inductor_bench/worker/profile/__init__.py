"""Profiles one compiled module, and records its launches and their values.

Of ``worker`` it may import ``upstream`` and ``device``.
"""
