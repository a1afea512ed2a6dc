"""Chrome traces of the PyTorch profiler: device events, their launches, iterations, gaps and busy time.

This room reads and stores trace files and does arithmetic on their events; the analysis room knows what a kernel
means. It may import records and devices.
"""
