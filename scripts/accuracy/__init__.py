"""The parts of ``scripts/benchmark_accuracy.py``."""
