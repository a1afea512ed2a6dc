"""Trains with the real ``Trainer`` of a library and this package's callback, before a block that only takes notes.

Usage: trainings.py transformers|lightning. Prints the notes of three trainings as JSON: one whose steps are measured
after three of five, a second one with the same callback, and one that fails.

Usage: trainings.py accelerate LOOP. Runs the file LOOP, a loop with gradients of two batches, over four batches.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import torch

import inductor_bench


class Notes:
    """A block, and what it gives: its steps are measured after three."""

    def __init__(self, output, **options):
        self.output, self.options, self.steps, self.ended = output, options, 0, None
        self.run, self.folder = self, Path("run")
        every.append(self)

    @property
    def is_measured(self):
        return self.steps >= 3

    def mark(self):
        self.steps += 1

    def __enter__(self):
        inductor_bench.step_marks.listeners.append(self.mark)
        return self

    def __exit__(self, kind, error, trace):
        inductor_bench.step_marks.listeners.remove(self.mark)
        self.ended = kind.__name__ if kind else "whole"


every = []
inductor_bench.observe = Notes
data = [{"input_ids": torch.arange(8), "labels": number % 2} for number in range(40)]


def train_with_transformers(callback, fails):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    class Failing(TrainerCallback):
        def on_step_end(self, *_, **__):
            raise RuntimeError("it fails")

    sizes = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=8, max_position_embeddings=8))
    callbacks = [callback, *([Failing()] if fails else [])]
    with tempfile.TemporaryDirectory() as folder:
        how = {"max_steps": 5, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        Trainer(model, TrainingArguments(folder, **how, **quiet), train_dataset=data, callbacks=callbacks).train()


def train_with_lightning(callback, fails):
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            if fails and index > 1:
                raise RuntimeError("it fails")
            return self.layer(batch["input_ids"].float()).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    how = {"max_steps": 5, "accumulate_grad_batches": 2, "accelerator": "cpu", "enable_model_summary": False}
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    lightning.Trainer(**how, **quiet, callbacks=[callback]).fit(Model(), loader)


def report(run=None):
    notes = [[one.output, one.options, one.steps, one.ended, getattr(one, "yields", None)] for one in every]
    print("NOTES", json.dumps([notes, run is every[0]]))
    sys.exit(0)


if sys.argv[1] == "accelerate":
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(16, 8), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    exec(Path(sys.argv[2]).read_text())
    report()
if sys.argv[1] == "transformers":
    from inductor_bench.integrations.transformers import InductorBenchCallback

    train = train_with_transformers
else:
    from inductor_bench.integrations.lightning import InductorBenchCallback

    train = train_with_lightning
callback = InductorBenchCallback("runs/mine", force=True)
train(callback, fails=False)
train(callback, fails=False)
with contextlib.suppress(RuntimeError):
    train(InductorBenchCallback(name="other", samples=False), fails=True)
report(callback.run)
