"""The verb ``compare``; ``run`` is its entry.

Of ``workflows`` it may import ``modules`` and ``breakdown``.
"""
