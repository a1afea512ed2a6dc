"""Records of comparisons: of two runs, of two batches, and of two kernels."""
