"""Models of libraries, built from their configurations with random weights and inputs: one file for each library."""
