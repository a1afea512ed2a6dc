"""Python, garbage collection and checks that take the host's time."""

from __future__ import annotations

import gc
import json

import torch
from frame import DEFECT, defect, either, loop, start
from models import Regression, rows, training

LATE = ("host-pace", "cuda-graphs-unused")
"""What is true of a step whose host is late: graphs that are launched at once make it less late."""


@defect("host-python", names=("update_averages",), share=0.2, also=LATE, cpu=True)
def averages() -> None:
    """A function updates thousands of running averages in Python."""
    step, inputs = training(Regression()), rows()
    values = {f"metric {number}": float(number) for number in range(either(100_000, 60_000) if DEFECT else 1)}

    def update_averages() -> None:
        for name, value in values.items():
            values[name] = 0.99 * value + 0.01  # defect

    for _ in loop():
        step(inputs, inputs)
        update_averages()  # defect


@defect("host-python", names=("write_log", "dumps"), share=0.2, also=LATE, cpu=True)
def json_log() -> None:
    """Each step writes its whole configuration as JSON."""
    step, inputs = training(Regression()), rows()
    configuration = {f"option {number}": {"value": number / 7, "text": "x" * 20} for number in range(6000)}

    def write_log(number: int) -> str:
        return json.dumps({"step": number, "configuration": configuration}, indent=1)  # defect

    for number in loop():
        step(inputs, inputs)
        if DEFECT:
            write_log(number)  # defect


@defect("garbage-collection", share=0.2, also=LATE, cpu=True)
def gc_collect() -> None:
    """Each step collects garbage, which there is none of, among many objects."""
    step, inputs = training(Regression()), rows()
    examples = [{"text": str(number), "labels": [number]} for number in range(20_000)]
    for _ in loop(either(60, 30)):
        step(inputs, inputs)
        if DEFECT:
            gc.collect()  # defect
    print(len(examples), "examples")


class Node:
    """A node of a tree that knows its parent."""

    def __init__(self, parent: Node | None) -> None:
        self.parent, self.children = parent, [] if parent is None else [self]


@defect("garbage-collection", "host-python", names=("grow_tree",), share=0.1, also=LATE, cpu=True)
def cyclic_objects() -> None:
    """Each step makes thousands of objects that refer to each other, among many that stay."""
    step, inputs = training(Regression()), rows()
    kept = [[number] for number in range(300_000)] if DEFECT else []

    def grow_tree(count: int) -> Node:
        root = Node(None)
        for _ in range(count):
            root = Node(root)  # defect
        return root

    for _ in loop():
        step(inputs, inputs)
        grow_tree(12_000 * DEFECT)  # defect
    print(len(kept), "lists")


@defect("anomaly-mode", "host-python", share=0.05, also=("host-pace", "synchronisations", *LATE), cpu=True)
def anomaly_mode() -> None:
    """Autograd's search for NaN was left on."""
    torch.autograd.set_detect_anomaly(DEFECT)  # defect
    step, inputs = training(Regression(depth=either(4, 2))), rows(either(1024, 64))
    for _ in loop():
        step(inputs, inputs)


if __name__ == "__main__":
    start()
