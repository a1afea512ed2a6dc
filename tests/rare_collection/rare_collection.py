"""For tests only: Python searches for garbage rarely, and not at the end of a process with torch.

Of the five seconds that a process with torch's compiler takes for its imports and its end, the searches take two.
"""

import atexit
import gc
import sys


@atexit.register  # it runs last, because it is registered first
def _end_quickly() -> None:
    if "torch" in sys.modules:
        gc.freeze()


gc.set_threshold(100_000, 50, 100)
