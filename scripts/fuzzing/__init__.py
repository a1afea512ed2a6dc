"""The parts of ``scripts/fuzz.py``."""

import os

# Before numpy is imported: its threads on many cores would reserve more than half of the memory of a command.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"))
