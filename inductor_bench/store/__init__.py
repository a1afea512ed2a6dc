"""The RUN folder and the batch folder: their records, formats, locks and atomic writes. No torch here.

It may import records and devices.
"""
