"""Records the launches of a compiled module with exact arguments and values.

Of ``worker`` it may import ``upstream``.
"""
