"""Autotunes kernels: search spaces, search orders, the pool of compile workers, and the race between candidates.

The room imports records, messages, source, analysis, launch and store, and no workflow: verbs pass in what it needs.
"""
