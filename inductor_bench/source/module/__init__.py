"""Reads a compiled module as text and syntax tree: its kernels, calls, inputs and header.

It imports no other room of ``source``.
"""
