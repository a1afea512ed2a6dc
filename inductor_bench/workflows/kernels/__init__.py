"""Kernels by themselves: files measured, compared and retuned in workers."""
