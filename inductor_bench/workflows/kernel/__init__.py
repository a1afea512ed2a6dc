"""The verb ``kernel``; ``run`` is its entry, and ``autotune`` the engine.

Of ``workflows`` it may import ``modules``.
"""
