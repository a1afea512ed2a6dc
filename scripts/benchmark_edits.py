"""Kernels that are made faster by hand: are they right, and do they save what ``apply --kernel --verify`` says?

``python scripts/benchmark_edits.py [--output FOLDER] [--within S] [--pairs N] [PROGRAM...]``, where PROGRAM is a key of
``EDITS`` below; without any, all. It needs a GPU.

Each program is broken down. The kernels that ``EDITS`` names get the body that stands there, as a person would edit the
file of ``kernel RUN#NAME --edit``. Each file is checked by itself; what is not refused is put into the program:

``verdict``   of ``kernel FILE --check``, with the ratio of the times by themselves
``saves``     what ``apply --verify`` says that the step saves, in µs, with its interval of 99.9%
``outside``   what the program's own stopwatch says in fresh processes, in turn with the edits and without, and the
              range of the pairs
``inside``    whether the stopwatch's saving, or the range of its pairs, lies in the interval
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.source.edited import BEGIN, END
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels.edit_files import write_edit
from scripts.benchmark_apply import ROOT, call, run_within

LAPS = "600"
"""Steps of a program that times itself."""

ROW_AT_ONCE = """
    x0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r0 = tl.arange(0, 32768)[None, :]
    x = tl.load(in_ptr0 + (r0 + 32768*x0), eviction_policy='evict_first').to(tl.float32)
    most = triton_helpers.max2(x, 1)[:, None]
    total = tl.sum(tl.where(most == float('-inf'), 1.0, libdevice.exp(x - most)), 1)[:, None]
    tl.store(out_ptr0 + (x0), most, None)
    tl.store(in_out_ptr0 + (x0), tl_math.log(total), None)
"""
"""A row of the vocabulary is read once into registers, in place of a loop over its parts."""

NORM_AT_ONCE = """
    x0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r0 = tl.arange(0, 8192)[None, :]
    x = tl.load(in_ptr0 + (r0 + 8192*x0), eviction_policy='evict_first').to(tl.float32)
    weight = tl.load(in_ptr1 + (r0), eviction_policy='evict_last').to(tl.float32)
    bias = tl.load(in_ptr2 + (r0), eviction_policy='evict_last').to(tl.float32)
    mean = tl.sum(x, 1)[:, None] / 8192.0
    centred = x - mean
    scale = libdevice.rsqrt(tl.sum(centred * centred, 1)[:, None] / 8192.0 + 1e-05)
    most = triton_helpers.max2(x, 1)[:, None]
    parts = tl.where(most == float('-inf'), 1.0, libdevice.exp(x - most))
    total = tl.sum(parts, 1)[:, None]
    tl.store(out_ptr0 + (x0), mean, None)
    tl.store(in_out_ptr0 + (x0), scale, None)
    tl.store(out_ptr3 + (r0 + 8192*x0), centred * scale * weight + bias)
    tl.store(out_ptr4 + (r0 + 8192*x0), libdevice.exp(x - most) / total)
"""
"""Layer norm and softmax of a row that is read once, in place of twice."""

LONGER_TILES = """
    x3 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x0 = x3 % 8192
    x1 = x3 // 8192
    products = tl.zeros([XBLOCK, 128], tl.float32)
    sums = tl.zeros([XBLOCK, 128], tl.float32)
    for begin in tl.static_range(0, 256, 128):
        r0 = begin + tl.arange(0, 128)[None, :]
        grad = tl.load(in_ptr0 + (x0 + 8192*r0 + 2097152*x1), eviction_policy='evict_first').to(tl.float32)
        x = tl.load(in_ptr1 + (x0 + 8192*r0 + 2097152*x1), eviction_policy='evict_first').to(tl.float32)
        mean = tl.load(in_ptr2 + (r0 + 256*x1), eviction_policy='evict_last')
        scale = tl.load(in_ptr3 + (r0 + 256*x1), eviction_policy='evict_last')
        products += grad * ((x - mean) * scale)
        sums += grad
    tl.store(out_ptr0 + (x3), tl.sum(products, 1)[:, None], None)
    tl.store(out_ptr1 + (x3), tl.sum(sums, 1)[:, None], None)
"""
"""Sums over columns with more rows in flight."""

WORDS_AT_ONCE = """
    r0 = tl.arange(0, 32768)[None, :]
    x = tl.load(in_ptr0 + (r0), r0 < 32000, eviction_policy='evict_first', other=float('-inf')).to(tl.float32)
    place = tl.where(r0 < 32000, r0, 2147483647)
    _, best = triton_helpers.max_with_index(x, place, 1)
    tl.store(out_ptr0 + (tl.full([1, 1], 0, tl.int32).broadcast_to(XBLOCK, 1)), best[:, None], None)
"""
"""The next token, from all of its logits at once."""

EDITS: dict[str, dict[str, str]] = {
    "wide": {
        r"triton_red_fused__log_softmax_prepare_softmax_online_\d+": ROW_AT_ONCE,
        r"triton_red_fused__softmax_exp_native_layer_norm_prepare_softmax_online_sub_\d+": NORM_AT_ONCE,
        r"triton_red_fused_native_layer_norm_native_layer_norm_backward_\d+": LONGER_TILES,
    },
    "decode": {r"triton_red_fused__unsafe_view_argmax_\d+": WORDS_AT_ONCE},
}
"""The new bodies by program and by the names of the kernels, which Inductor numbers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(EDITS))
    parser.add_argument("--output", type=Path, default=Path("runs/edits"), help="the folder for the results")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--pairs", type=int, default=2, help="pairs of fresh processes (2)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.within
    rows = []
    for name in options.programs:
        rows.append(measure(name, options, end_s))
        (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(row.get("inside") for row in rows) else 1


def measure(name: str, options: argparse.Namespace, end_s: float) -> dict[str, Any]:
    """Edits the kernels of a program, and compares what the tool and the stopwatch say."""
    program, run = str(ROOT / "scripts" / "programs" / f"{name}.py"), options.output / name
    command = ["--", sys.executable, program]
    call(["breakdown", "--stop", "--no-plots", "--force", "-o", str(run), *command], end_s)
    row: dict[str, Any] = {"program": name, "kernels": []}
    files = []
    for kernel, body in chosen(RunFolder(run), EDITS[name]).items():
        file = options.output / f"{name}-{kernel}.py"
        file.unlink(missing_ok=True)
        write_edit(f"{run}#{kernel}", file)
        file.write_text(with_body(file.read_text(), body))
        begin_s = time.monotonic()
        printed = call(["kernel", str(file), "--check", "--force", "--format", "json", "-q"], end_s)
        verdict = json.loads(printed.stdout) if printed.stdout else {"verdict": printed.stderr[-400:]}
        ratio = (verdict.get("ratio") or {}).get("median")
        found = {"kernel": kernel, "check_s": time.monotonic() - begin_s, "ratio": ratio}
        row["kernels"].append(found | {key: verdict.get(key) for key in ("verdict", "reason", "words")})
        print(f"{name}  {kernel}: {verdict['verdict']}, {verdict.get('words')}", flush=True)
        if verdict["verdict"] in ("faster", "same"):
            files += ["--kernel", str(file)]
    verify = ["apply", str(run), *files, "--verify", "--stop", "--format", "json", *command]
    printed = call(verify, end_s)
    (options.output / f"{name}.json").write_text(printed.stdout or printed.stderr, encoding="utf-8")
    try:
        found = json.loads(printed.stdout)["verification"]
    except (ValueError, KeyError):
        print(f"{name}: {printed.stderr[-600:]}", flush=True)
        return row
    step = found["step"]
    row |= {"way": found["way"], "verification": {key: found[key] for key in ("step", "device", "outputs")}}
    pairs = outside(run, files, command, options.pairs, end_s)
    row["pairs_s"] = pairs
    if pairs:
        median_s = statistics.median(pairs)
        row["inside"] = step["low_s"] <= median_s <= step["high_s"] or (
            min(pairs) <= step["high_s"] and max(pairs) >= step["low_s"]
        )
        print(
            f"{name}  {found['way']}: saves {1e6 * step['saving_s']:.1f} µs ({1e6 * step['low_s']:.1f} to "
            f"{1e6 * step['high_s']:.1f}) of {1e3 * step['own_s']:.3f} ms, {step['verdict']}; outside "
            f"{1e6 * median_s:.1f} µs ({1e6 * min(pairs):.1f} to {1e6 * max(pairs):.1f})",
            flush=True,
        )
    return row


def chosen(folder: RunFolder, bodies: Mapping[str, str]) -> dict[str, str]:
    """The new bodies by the names of this RUN's kernels; of several with a pattern the first one."""
    names = [kernel.name for module in folder.load().modules for kernel in module.kernels]
    found = {}
    for pattern, body in bodies.items():
        name = next((name for name in names if re.fullmatch(pattern, name)), None)
        if name is None:
            print(f"no kernel is called {pattern}", flush=True)
        else:
            found[name] = body
    return found


def with_body(text: str, body: str) -> str:
    """The file of an edit with another body of its kernel."""
    before, begin, rest = text.partition(BEGIN)
    kernel, end, after = rest.partition(END)
    head = re.search(r"^def triton_\w+\([^\n]*\):\n", kernel, re.MULTILINE)
    assert head is not None
    return before + begin + kernel[: head.end()] + body.lstrip("\n") + "\n" + end + after


def outside(run: Path, files: list[str], command: list[str], pairs: int, end_s: float) -> list[float]:
    """The seconds of a step that fresh processes save with the edits, by the program's stopwatch: A B, B A, …"""
    saved = []
    for pair in range(pairs):
        steps = {}
        for edited in (False, True) if pair % 2 == 0 else (True, False):
            words = ["apply", str(run), *files, *command]
            printed = call(words, end_s, LAPS) if edited else run_within(command[1:], end_s, LAPS)
            found = re.search(r"^stopwatch (\{.*\})$", printed.stdout, re.MULTILINE)
            if found is None:
                print(printed.stderr[-600:], flush=True)
                return saved
            steps[edited] = json.loads(found[1])["step_s"]
        saved.append(steps[False] - steps[True])
    return saved


if __name__ == "__main__":
    sys.exit(main())
