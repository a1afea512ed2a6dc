"""Pure functions from what was read and measured to what it means. No I/O, no torch, no printing.

It may import records and devices.
"""
