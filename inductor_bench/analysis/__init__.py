"""Computes what the observations mean. Does not use torch or print, and reads only the files of a RUN's evidence.

It may import records, devices, store, source and trace.
"""
