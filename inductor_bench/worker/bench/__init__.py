"""Standalone kernel files loaded into this process: checked, timed, their candidates built.

Of ``worker`` it may import ``upstream`` and ``device``.
"""
