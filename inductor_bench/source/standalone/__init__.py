"""Writes standalone kernel files. ``writer`` is the entry; ``cpp``, ``triton`` and ``operator`` write one kind each.

Of ``source`` it may import ``module``. It reads ``harness`` as text.
"""
