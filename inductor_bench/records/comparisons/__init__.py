"""Records of comparisons: of two runs, and of two batches."""
