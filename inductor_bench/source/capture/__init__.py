"""What torch logs while it compiles: the output code in a log, and ``TORCH_TRACE`` folders.

Of ``source`` it may import ``module`` only.
"""
