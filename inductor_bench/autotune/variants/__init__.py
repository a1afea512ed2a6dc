"""What can be varied of a kernel: one protocol, one file for each kind of kernel, and the table that finds the kind.

Of ``autotune`` it may import no other room.
"""
