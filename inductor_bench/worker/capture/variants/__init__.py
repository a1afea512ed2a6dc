"""Runs variants of the user's program in its own process, in turn with the original: their settings, their compiled
graphs, the comparison of what they compute, and the times of their steps. It imports what the capture imports.
"""
