"""The verb ``breakdown``; ``run`` is its entry.

Of ``workflows`` it may import ``modules``, ``extract``, ``kernel``, ``ledger`` and ``apply``.
"""
