"""Findings: statements in words about a run. ``table`` lists the rules; ``headline`` makes the first line of a summary.

All functions are pure functions of the record. This folder imports only ``times`` from the rest of ``analysis``.
"""
