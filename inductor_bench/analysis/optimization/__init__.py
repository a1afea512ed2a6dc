"""Decides which settings may make a program faster, in which order to try them, and what the samples prove.

It may import what ``analysis`` may. ``judging`` and ``search`` are pure: they read the results of trials, and start no
process.
"""
