"""Which settings may make a program faster, what is tried in which order, and what the samples prove.

It may import what ``analysis`` may. ``judging`` and ``search`` are pure: they know trials, and start nothing.
"""
