"""The command line of a standalone kernel file, and its output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

NOT_RECORDED = "none is recorded yet; `inductor-bench kernel FILE` records it"


def read_options(
    description: str, argv: list[str] | None = None, *, retargetable: bool = False, on_gpu: bool = False
) -> argparse.Namespace:
    """The options that every standalone file has: ``check``, ``json``, ``seed``.

    A ``retargetable`` file takes the properties of the GPU that it runs on, and has ``as_recorded`` as well; what runs
    ``on_gpu`` has ``profile``.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare the outputs with the reference; exit 1 if not")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if retargetable:  # read where the kernel is defined, which is before this
        does = "keep the recorded properties of the device, in place of those of the GPU that this runs on"
        parser.add_argument("--as-recorded", action="store_true", help=does)
    if on_gpu:
        does = "make one call for a profiler such as `ncu --profile-from-start off`, and print nothing"
        parser.add_argument("--profile", action="store_true", help=does)
    parser.add_argument("--seed", type=int, default=0, help="of the random values (the reference has 0)")
    return parser.parse_args(argv)


def profile_call(call: Callable[[], Any]) -> None:
    """Makes one call on the GPU while a profiler that waits for it is told to look."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def show_result(result: dict[str, Any], as_json: bool) -> None:
    """Prints ``{name, kernel_id, device, cold, warm, moved_bytes, check}``: one line, or one JSON object."""
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return
    parts = [result["name"]]
    for state in ("cold", "warm"):
        timing = result.get(state)
        if timing:
            parts.append(f"{state} {timing['median_s'] * 1e6:.2f} µs")
    moved, cold = result.get("moved_bytes"), result.get("cold") or result.get("warm")
    if moved is not None:
        parts.append(f"{moved / 1e6:.3f} MB")
        if cold and cold["median_s"] > 0:
            parts.append(f"{moved / cold['median_s'] / 1e9:.1f} GB/s")
    if result.get("flops") and cold and cold["median_s"] > 0:
        parts.append(f"{result['flops'] / cold['median_s'] / 1e9:.1f} GFLOP/s")
    if result.get("method") not in (None, "graphs"):
        parts.append(f"({result['method']})")
    zeros = result.get("with_zeros")
    if zeros:
        times = " ".join(f"{state} {zeros[state]['median_s'] * 1e6:.2f} µs" for state in ("cold", "warm"))
        parts.append(f"[indices all zero: {times}]")
    print("  ".join(parts))


def show_check(name: str, passed: bool | None, why: str) -> int:
    """Says how a check went and returns the exit status. ``None``: there is nothing to compare with."""
    word = {True: "ok", False: "MISMATCH", None: "no reference"}[passed]
    print(f"{name}: {word}: {why}", file=sys.stderr if passed is False else sys.stdout)
    return 0 if passed else 1
