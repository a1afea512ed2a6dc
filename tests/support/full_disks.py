"""Simulates a full disk."""

from __future__ import annotations

import breakdown_runs as runs


def full_disk(size: int) -> list[str]:
    """Returns the leading words of a command whose files cannot grow beyond ``size`` bytes, as on a full disk."""
    code = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [runs.sys.executable, "-c", code]
