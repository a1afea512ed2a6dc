"""Writes standalone kernel files. ``writer`` is the entry; ``cpp``, ``triton`` and ``operator`` write one kind each.

Of the rooms of ``source`` it imports ``module`` only; it reads ``harness`` as text.
"""
