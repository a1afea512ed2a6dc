"""Autotuning: spaces of candidates, the order in which they are tried, the processes that compile them, the race.

It imports records, messages, source, analysis, launch and store. It may import no workflow: a verb hands it what it
needs.
"""
