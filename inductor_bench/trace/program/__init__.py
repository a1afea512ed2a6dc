"""Reads the trace of a whole program, and says for each device event whose work it is.

Of ``trace`` it may import ``reading``.
"""
