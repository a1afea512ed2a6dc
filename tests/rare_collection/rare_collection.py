"""For tests only: Python searches for garbage rarely, and not at the end of a process with torch; and it finds a small
last-level cache.

Of the five seconds that a process with torch's compiler takes for its imports and its end, the searches take two. For
cold calls and for peaks memory of several times the caches is written and read: of a host of many cores that is 1.5 GB
each time, which takes seconds.
"""

import atexit
import gc
import os
import sys


@atexit.register  # it runs last, because it is registered first
def _end_quickly() -> None:
    if "torch" in sys.modules:
        gc.freeze()


gc.set_threshold(100_000, 50, 100)


def shrink_caches() -> None:
    """Makes this process find the cache that ``surroundings`` describes, whatever the processor has."""
    import glob  # 10 ms

    everything = glob.glob
    forks = os.environ.get("INDUCTOR_BENCH_TESTS_FORKS")
    cache = os.path.join(os.path.dirname(forks), "small-cache") if forks else ""

    def find(pattern, **how):
        is_cache = str(pattern).startswith("/sys/devices/system/cpu/") and "/cache/" in str(pattern)
        return [cache] if is_cache and cache else everything(pattern, **how)

    glob.glob = find


if "-c" not in sys.orig_argv:
    shrink_caches()

python = os.environ.get("INDUCTOR_BENCH_TESTS_PYTHON")  # see forking_python.py
if python and "inductor_bench" in sys.orig_argv[2:4]:
    sys.executable = python
