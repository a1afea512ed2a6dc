"""The program's step in a RUN: from what its processes observed, and from the profiles of its modules.

Of ``workflows`` it may import ``modules``.
"""
