"""Reads the launches of a module from its text, without a run: shapes and arguments.

Of the rooms of ``source`` it imports ``module`` only.
"""
