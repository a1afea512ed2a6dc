"""The harness of standalone kernel files: pasted into them as text, and imported by workers and tests.

The pasted files run without this package, so these import torch, Triton and each other, and nothing else of it.
"""
