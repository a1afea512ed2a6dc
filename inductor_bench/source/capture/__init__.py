"""Reads torch's output during compilation: paths of modules in a log, and ``TORCH_TRACE`` folders.

Of the rooms of ``source`` it imports ``module`` only.
"""
