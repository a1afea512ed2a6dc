"""Trains on a device with the real library and this package's callback or block, and times its own steps.

Usage: measured_trainings.py transformers|lightning|accelerate cuda|cpu. Prints whether the steps were measured, and the
seconds of each step by its own clock.
"""

import itertools
import json
import sys
import time

import torch

import inductor_bench

STEPS = 600
library, device = sys.argv[1:]
torch.manual_seed(0)
data = [{"input_ids": torch.randint(1000, (64,)), "labels": number % 2} for number in range(256)]
sizes = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
ends_s = [time.perf_counter()]


def make_model():
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**sizes, intermediate_size=512, max_position_embeddings=64))


def note_end():
    ends_s.append(time.perf_counter())


def train_with_transformers():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from inductor_bench.integrations.transformers import InductorBenchCallback

    class Watch(TrainerCallback):
        def on_step_end(self, arguments, state, control, **_):
            note_end()
            control.should_training_stop = callback.run.is_measured

    callback = InductorBenchCallback("run", samples=False)
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    how = TrainingArguments("out", max_steps=STEPS, torch_compile=True, use_cpu=device == "cpu", **quiet)
    Trainer(make_model(), how, train_dataset=data, callbacks=[Watch(), callback]).train()
    return callback.run


def train_with_lightning():
    import lightning

    from inductor_bench.integrations.lightning import InductorBenchCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.compile(make_model())

        def training_step(self, batch, _):
            return self.model(**batch).loss

        def on_train_batch_end(self, *_):
            note_end()
            self.trainer.should_stop = callback.run.is_measured

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-5)

    callback = InductorBenchCallback("run", samples=False)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    lightning.Trainer(
        max_steps=STEPS, accelerator="cpu" if device == "cpu" else "gpu", devices=1, callbacks=[callback], **quiet
    ).fit(Module(), loader)
    return callback.run


def train_with_accelerate():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=device == "cpu")
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    model, optimizer, loader = accelerator.prepare(torch.compile(model), optimizer, loader)
    with inductor_bench.observe("run", samples=False) as run:
        for _ in range(STEPS // len(loader)):
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch).loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    inductor_bench.step()
                note_end()
            if run.is_measured:
                break
    return run


found = globals()[f"train_with_{library}"]()
times_s = [after - before for before, after in itertools.pairwise(ends_s)]
print("ENDED", found.is_measured, json.dumps(times_s))
