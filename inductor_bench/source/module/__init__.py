"""Reads a compiled module as text and syntax tree: its kernels, calls, inputs and header.

Of ``source`` it may import no other room.
"""
