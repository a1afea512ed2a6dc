"""The parts of ``optimize``: one process with variants, and what is written and run for the user.

Of ``workflows`` it may import ``modules``.
"""
