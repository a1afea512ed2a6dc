"""Trains a small network; in each step the host waits for a known time in Python, in an operator or in a loader.

``waiting.py KIND MS [SECONDS]`` prints as its last line the time of each step's wait in milliseconds, as JSON. The
device has nothing to do in them, because each step ends with a synchronisation.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, LAYERS, BATCH = 512, 6, 64
LEAST_STEPS = 40
waits: list[float] = []


def busy_wait(time_s: float) -> None:
    end_s = time.perf_counter() + time_s
    while time.perf_counter() < end_s:
        pass


def wait_in_python(time_s: float) -> None:
    begin_s = time.perf_counter()
    busy_wait(time_s)
    waits.append(time.perf_counter() - begin_s)


def operator_of(time_s: float) -> torch.Tensor:
    """Numbers whose sums take about this long on one core."""
    count, took_s = 100_000, 0.0
    while True:
        values = torch.ones(count)
        torch.cumsum(values, 0)
        begin_s = time.perf_counter()
        torch.cumsum(values, 0)
        took_s = time.perf_counter() - begin_s
        if took_s > time_s / 3:
            return torch.ones(max(1, round(count * time_s / took_s)))
        count *= 2


def wait_in_an_operator(values: torch.Tensor) -> None:
    begin_s = time.perf_counter()
    torch.cumsum(values, 0)
    waits.append(time.perf_counter() - begin_s)


class Batches(IterableDataset[torch.Tensor]):
    def __init__(self, time_s: float) -> None:
        self.time_s = time_s
        self.batch = torch.randn(BATCH, WIDTH)

    def decode(self) -> torch.Tensor:
        wait_in_python(self.time_s)
        return self.batch

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield self.decode() if self.time_s else self.batch


def main() -> None:
    kind, time_s = sys.argv[1], float(sys.argv[2]) / 1e3
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 12.0
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()] * LAYERS
    model = torch.nn.Sequential(*layers).to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    values = operator_of(time_s) if kind == "operator" else torch.ones(1)
    loader = DataLoader(Batches(time_s if kind == "loader" else 0.0), batch_size=None)
    end_s = math.inf
    for number, batch in enumerate(loader):
        if kind == "python":
            wait_in_python(time_s)
        if kind == "operator":
            wait_in_an_operator(values)
        loss = compiled(batch.to(DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if DEVICE == "cuda":
            torch.cuda.current_stream().synchronize()
        if number == LEAST_STEPS:
            end_s = time.perf_counter() + seconds
        if time.perf_counter() > end_s:
            break
    print(json.dumps([round(1e3 * wait_s, 4) for wait_s in waits]))


if __name__ == "__main__":
    main()
