"""Autotunes kernels: search spaces, search orders, the pool of compile workers, and the race between candidates.

It may import records, devices, messages, source, analysis, launch and store. It imports no workflow: a verb hands it
what it needs.
"""
