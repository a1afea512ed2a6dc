"""Measuring what a device reaches: bandwidth and FLOP rates. One file per kind of device; ``device`` asks for them."""
