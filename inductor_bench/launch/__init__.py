"""The parent's side of a measurement: starting, limiting and ending processes, and reading results. No torch here.

It may import records, devices, messages and store.
"""
