"""Records of compiled code: modules, kernels, launches and extracted files. It imports records only."""
