"""Findings: statements in words about a run. ``table`` lists the rules; ``headline`` makes the first line of a summary.

All functions are pure functions of the record. Of the rest of ``analysis`` this folder imports only ``costs``.
"""
