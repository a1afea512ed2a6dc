"""The steps of the user's program: found, timed without a profiler, and profiled, inside the program's process.

``observer`` is the entry. Nothing here imports torch before the program does.
"""
