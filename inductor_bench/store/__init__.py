"""The RUN folder and the batch folder: their records, formats, locks and atomic writes. This room does not use torch.

It may import records and devices.
"""
