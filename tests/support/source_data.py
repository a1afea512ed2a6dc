"""Reads the recorded modules for the tests of ``source``."""

from __future__ import annotations

import functools
import gzip
import os
import pickle
from pathlib import Path

from inductor_bench.records.code import ModuleSource
from inductor_bench.source.module_reader import read_module

DATA = Path(__file__).resolve().parent.parent / "data"
GPU = DATA / "h200_torch2.11"
CPU = DATA / "cpu_torch2.13"


def text_of(path: Path) -> str:
    """Returns the text of a recorded file, which is stored gzipped."""
    return gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()).decode()


@functools.cache
def module_of(path: Path) -> ModuleSource:
    """Reads a recorded module, which takes up to a second, once for all processes of a session of tests."""
    if "INDUCTOR_BENCH_TESTS" not in os.environ:  # a script's
        return read_module(text_of(path))
    kept = Path(os.environ["INDUCTOR_BENCH_TESTS"], f"{path.relative_to(DATA)}.pickle".replace("/", "-"))
    if kept.exists():
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]
    module = read_module(text_of(path))
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(module))
    part.rename(kept)
    return module


def gpu_sample(name: str, number: int = 0) -> ModuleSource:
    return module_of(GPU / "samples" / name / f"module_{number}.py")


def cpu_sample(name: str, number: int = 0) -> ModuleSource:
    return module_of(CPU / "samples" / name / f"module_{number}.py")
