"""transformers' Trainer with torch_compile: BERT, with random weights, learns to classify random sentences."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from stopwatch import DEVICE, Laps, counted
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

SMALL = bool(os.environ.get("SMALL"))
BATCH, LENGTH = (2, 32) if SMALL else (32, 128)
STEPS = counted(24 if SMALL else 400)
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


class Sentences(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, words: int) -> None:
        self.tokens = torch.randint(words, (1024, LENGTH))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens[0] % 4}


class Timing(TrainerCallback):
    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.laps.end()


def main() -> None:
    torch.manual_seed(0)
    config = BertConfig(num_labels=4, **(SIZES if SMALL else {}))
    laps = Laps("step", STEPS)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-4,
            bf16=DEVICE == "cuda",
            torch_compile=True,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=Sentences(config.vocab_size),
            callbacks=[Timing(laps)],
        )
        trainer.train()
    laps.finish()


if __name__ == "__main__":
    main()
