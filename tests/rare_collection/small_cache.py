"""For tests only: processes find a last-level cache of 4 MiB, whatever the processor has.

For cold calls and for peaks memory of several times the caches is written and read: of a host of many cores that is
1.5 GB each time, which takes seconds.
"""

import os

FORKS = "INDUCTOR_BENCH_TESTS_FORKS"
"""The variable with a path in the folder of the session of tests."""

FACTS = {"type": "Unified", "level": "3", "size": "4096K", "shared_cpu_list": "0"}


def place():
    return os.path.join(os.path.dirname(os.environ[FORKS]), "small-cache")


def describe():
    """Writes the files that Linux has for a cache into the session's folder."""
    os.mkdir(place())
    for name, text in FACTS.items():
        with open(os.path.join(place(), name), "w") as file:
            file.write(text)


def shrink():
    """Makes this process and its forks find that cache."""
    if FORKS not in os.environ:
        return
    import glob  # 10 ms

    cache, everything = place(), glob.glob

    def find(pattern, **how):
        is_cache = str(pattern).startswith("/sys/devices/system/cpu/") and "/cache/" in str(pattern)
        return [cache] if is_cache else everything(pattern, **how)

    glob.glob = find
