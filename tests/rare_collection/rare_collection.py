"""For tests only: Python searches for garbage rarely, and not at the end of a process with torch; and it finds a small
last-level cache, see ``small_cache``.

Of the five seconds that a process with torch's compiler takes for its imports and its end, the searches take two.
"""

import atexit
import gc
import os
import sys

import small_cache


@atexit.register  # it runs last, because it is registered first
def _end_quickly() -> None:
    if "torch" in sys.modules and "duckdb" not in sys.modules:  # which would report frozen objects as leaked
        gc.freeze()


gc.set_threshold(100_000, 50, 100)

if "-c" not in sys.orig_argv:
    small_cache.shrink()

python = os.environ.get("INDUCTOR_BENCH_TESTS_PYTHON")  # see forking_python.py
if python and "inductor_bench" in sys.orig_argv[2:4]:
    sys.executable = python
