"""The verb ``breakdown``; ``run`` is its entry.

It may import ``modules``, ``extract`` and ``kernel``, but not ``batch``.
"""
