"""Lightning's Trainer: a compiled perceptron learns from a loader."""

from __future__ import annotations

import os
from typing import Any

import pytorch_lightning as lightning
import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

SMALL = bool(os.environ.get("SMALL"))
WIDTH, DEPTH, BATCH, STEPS = (32, 2, 8, 40) if SMALL else (4096, 6, 2048, 400)


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())]
        self.layers = torch.compile(nn.Sequential(*layers, nn.Linear(WIDTH, 10)))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        rows, labels = batch
        loss = F.cross_entropy(self.layers(rows), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Timing(lightning.Callback):
    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.laps.end()


def main() -> None:
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(8 * BATCH, WIDTH), torch.randint(10, (8 * BATCH,)))
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True)
    laps = Laps("step", STEPS)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[Timing(laps)],
    )
    trainer.fit(Network(), loader)
    laps.finish()


if __name__ == "__main__":
    main()
