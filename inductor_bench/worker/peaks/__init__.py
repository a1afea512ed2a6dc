"""Measures the peaks of a device: bandwidths and FLOP rates. Each kind of device has a file; ``device`` calls it."""
