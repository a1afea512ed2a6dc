"""Sets torch's settings that select library kernels on a GPU to the program's values, for one call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from operator import attrgetter

import torch

SWITCHES = {
    "matmul_tf32": ("cuda.matmul", "allow_tf32"),
    "cudnn_tf32": ("cudnn", "allow_tf32"),
    "cudnn_benchmark": ("cudnn", "benchmark"),
    "cudnn_deterministic": ("cudnn", "deterministic"),
}
"""Where ``torch.backends`` has the switches that decide which library kernels run on a GPU, by their recorded names."""

EXACTLY = {"matmul_tf32": False, "cudnn_tf32": False, "cudnn_benchmark": False}
"""The switches of a call that others are compared with."""


@contextlib.contextmanager
def switched(wanted: Mapping[str, bool]) -> Iterator[None]:
    """Has some of the ``SWITCHES`` as ``wanted`` meanwhile."""
    before = []
    try:
        for name, value in wanted.items():
            place, switch = SWITCHES[name]
            backend = attrgetter(place)(torch.backends)
            now = getattr(backend, switch)
            if now != value:
                before.append((backend, switch, now))
                setattr(backend, switch, value)
        yield
    finally:
        for backend, switch, value in before:
            setattr(backend, switch, value)
