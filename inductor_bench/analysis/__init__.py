"""Pure functions that turn traces and measurements into figures and findings. No I/O, no torch, no printing."""
