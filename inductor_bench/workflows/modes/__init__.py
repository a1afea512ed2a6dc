"""The verb ``modes``; ``run`` is its entry, and ``models`` that for a list.

Of ``workflows`` it may import ``modules``, ``breakdown`` and ``batch``.
"""
