"""Autotuning: spaces of candidates, the order in which they are tried, the processes that compile them, the race.

It may import records, devices, messages, source, analysis, launch and store. It imports no workflow: a verb hands it
what it needs.
"""
