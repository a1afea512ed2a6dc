"""From what was observed to what it means: no torch, no printing. Of files it reads those of a RUN's evidence.

It may import records, devices, store, source and trace.
"""
