"""The bytes that kernels move. It imports nothing from the rest of ``analysis``."""
