"""Private names of torch and Triton, each behind a function. ``worker`` says which other files import such names.

``(torch 2.11; 2.13 read only)`` at the end of a docstring: the versions of torch on which the function was checked.
"Read only" after a version: only the source of that torch was read.

Of ``worker`` it may import no other room.
"""
