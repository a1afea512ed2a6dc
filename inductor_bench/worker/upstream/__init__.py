"""Private names of torch and Triton, each behind a function. ``worker`` says which other files import such.

Of ``worker`` it may import no other room.
"""
