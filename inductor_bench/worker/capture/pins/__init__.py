"""Puts the configurations of a retune into the kernels of the user's program, and compares the program with itself.

Of ``worker`` it may import ``upstream``, and of ``worker/capture`` the ``steps`` and ``differences``.
"""
