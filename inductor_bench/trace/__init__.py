"""Reading Chrome traces of the PyTorch profiler: device events, their launches, iterations, gaps, busy time.

This room reads and stores trace files and does arithmetic on what they hold. It imports only records and errors,
never torch; it does not know what a kernel means (that is the analysis room's business).
"""
