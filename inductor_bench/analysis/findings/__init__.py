"""Findings: statements in words about a run. ``rule_table`` has the rules, ``headline`` makes a summary's first line.

All functions are pure functions of the record. Of the rest of ``analysis`` this folder imports only ``step_costs`` and
``roofline``.
"""
