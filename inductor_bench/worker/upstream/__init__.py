"""Private names of torch and Triton, each behind a function. ``worker`` says which other files import such names.

``(torch 2.11, 2.13)`` at the end of a docstring: the versions of torch on which what it says was checked.

Of ``worker`` it may import no other room.
"""
