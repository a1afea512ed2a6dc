"""Lists the GPUs that this process may use."""

from __future__ import annotations

import os
import subprocess

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits a process to some GPUs; an empty value leaves none."""


def visible_gpus() -> tuple[str, ...]:
    """Returns the GPUs that CUDA would use, named as in ``CUDA_VISIBLE_DEVICES``; empty without ``nvidia-smi``."""
    visible = os.environ.get(VISIBLE_GPUS)
    if visible is not None:
        return tuple(name for part in visible.split(",") if (name := part.strip()) and name != "-1")
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(result.stdout.split()) if result.returncode == 0 else ()
