"""Programs that switch off the backends of attention that are fast, for the whole process: settings to be found.

``python scripts/planted/attention.py NAME``; ``DEFECT=0`` runs it without the setting, as in ``scripts/defects``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "defects"))
import torch
from frame import DEFECT, defect, either, loop, start
from models import LENGTH, Language, tokens, training


def train_without(*backends: str) -> None:
    """Trains on texts of four times the usual length, without these backends of attention."""
    for name in backends if DEFECT else ():
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
    step, data = training(Language()), tokens(either(8, 2), 4 * LENGTH)
    for _ in loop():
        step(data)


@defect("attention-below-limit", "decomposed-attention", share=0.2)
def only_math() -> None:
    """Whoever wanted the same numbers everywhere has left only the backend of plain operators."""
    train_without("flash", "mem_efficient", "cudnn")


@defect("attention-below-limit", share=0.05)
def only_efficient() -> None:
    """Only the memory-efficient kernel is left."""
    train_without("flash", "math", "cudnn")


if __name__ == "__main__":
    start()
