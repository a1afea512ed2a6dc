"""Findings: statements in words about a run. ``rule_table`` has the rules; ``first_line`` is that of a summary.

All functions are pure functions of the record. Of the rest of ``analysis`` this folder imports only ``step_costs`` and
``roofline``.
"""
