"""What the rest of the package needs to know of the kinds of devices: facts and words. No torch, no measurement.

It may import records.
"""
