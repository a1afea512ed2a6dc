"""Compiled code: modules, kernels, launches, extracted files. It may import records only."""
