"""The bytes that kernels move, and where the bytes of a program's step come from.

Of ``analysis`` it may import no other room.
"""
