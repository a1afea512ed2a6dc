"""Integrations of ``observe``: callbacks of training libraries, and a pytest fixture. Each loads on demand.

It may import records, report and workflows (for types): the work is done by the package's own functions.
"""
