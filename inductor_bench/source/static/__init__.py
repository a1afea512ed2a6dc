"""Reads the launches of a module from its text, without a run: shapes and arguments.

Of ``source`` it may import ``module``.
"""
