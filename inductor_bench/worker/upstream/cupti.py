"""Detaches CUPTI, through which torch's profiler observes CUDA, from a process that goes on without a profiler."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

VARIABLE = "TEARDOWN_CUPTI"
"""The variable that Kineto reads at the end of a profile: it detaches CUPTI where the value is 1."""

WAITS, WAIT_S = 5, 0.01


@contextlib.contextmanager
def detaching_cupti() -> Iterator[None]:
    """Detaches CUPTI after the profile that ends inside; attached, it slows each launch. (2.9 to 2.15; read only)

    Kineto detaches it in a thread of its own, when a call of CUDA's runtime returns: the synchronisations are such
    calls. The variable is removed after them, because profiles in quick succession crash with it (kineto issue 1169).
    It is not set where the program or torch has set it, and where the process does not use CUDA: on a machine without a
    GPU each call of a torch that was built with CUDA fails. CUDA before 12.6 crashes at a profile after it.
    """
    import torch

    if VARIABLE in os.environ or not torch.cuda.is_initialized() or not _can_attach_again(torch.version.cuda):
        yield
        return
    os.environ[VARIABLE] = "1"
    try:
        yield
        for _ in range(WAITS):
            time.sleep(WAIT_S)
            torch.cuda.synchronize()
    finally:
        os.environ.pop(VARIABLE, None)


def _can_attach_again(version: str | None) -> bool:
    return bool(version) and tuple(map(int, str(version).split(".")[:2])) >= (12, 6)
