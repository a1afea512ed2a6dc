"""Two processes that each compile a graph of their own, one by the spawn method; then the program fails. With the
argument ``one``, only the first of the two graphs, in this process."""

from __future__ import annotations

import multiprocessing
import sys

import torch


def first() -> None:
    run(lambda x: torch.softmax(x.sin() * 2, -1))


def second() -> None:
    run(lambda x: (x**5).cos() + 1)


def run(function) -> None:
    compiled = torch.compile(function)
    for _ in range(3):
        compiled(torch.randn(128, 512))


def main() -> None:
    if sys.argv[1:] == ["one"]:
        return first()
    child = multiprocessing.get_context("spawn").Process(target=first)
    child.start()
    child.join()
    second()
    raise ValueError(f"the evaluation failed after the child's {child.exitcode}")


if __name__ == "__main__":
    main()
