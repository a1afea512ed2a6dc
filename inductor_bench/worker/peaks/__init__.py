"""Measures the peaks of a device: bandwidths and FLOP rates. ``cpu`` and ``gpu`` measure one kind of device each.

``triton`` has the kernels of ``gpu``, in a file of their own because importing it needs Triton. ``device`` calls this
room. Of ``worker`` it may import no other room.
"""
