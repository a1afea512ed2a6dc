"""A program whose environment switches torch.compile off."""

from __future__ import annotations

import os

if os.environ.get("DEFECT", "1") != "0":
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # defect

from frame import defect, loop, start
from models import Chain, training


@defect("not-compiled", "eager-operators", names=("TORCHDYNAMO_DISABLE",), share=0.1, also=("host-pace",), cpu=True)
def disabled_by_environment() -> None:
    """``TORCHDYNAMO_DISABLE=1`` was left in the environment."""
    step = training(Chain())
    for _ in loop():
        step()


if __name__ == "__main__":
    start()
