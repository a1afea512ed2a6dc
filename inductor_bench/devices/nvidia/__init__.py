"""NVIDIA's GPUs: the tables and rules of their hardware, all of them here."""
