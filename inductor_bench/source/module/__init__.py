"""A module that Inductor wrote: its kernels, calls, inputs and header, read as text and syntax tree.

It imports no other room of ``source``.
"""
