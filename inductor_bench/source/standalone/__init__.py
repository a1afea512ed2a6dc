"""The file of one kernel that runs by itself: ``writer`` chooses by language, and ``cpp``, ``triton`` and ``operator``
write it.

Of ``source`` it may import ``module`` only; ``harness`` is read as text.
"""
