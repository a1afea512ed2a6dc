"""Reads torch's output during compilation: paths of modules in a log, and ``TORCH_TRACE`` folders.

Of ``source`` it may import ``module``.
"""
