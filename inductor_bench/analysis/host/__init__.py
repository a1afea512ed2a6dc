"""What the host does while the device waits for it, by function and line: pure functions of samples and traces.

May import ``analysis.statistics``, and nothing else of ``analysis``.
"""
