"""Makes a RUN with empty standalone files, and a fake of the engine that retunes them.

The name of a kernel determines its result; see :func:`retuned`. As a program, this file is a fake of the process that
measures a model of a batch and retunes its most expensive kernels, like ``batch_child``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import batch_child
import run_builder

from inductor_bench.analysis.statistics import summarize
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.base import Category as C
from inductor_bench.records.base import Failure
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.records.request import BreakdownRequest, KernelRequest, RetuneRequest
from inductor_bench.records.retune import MeasuredKernel, Tuning
from inductor_bench.records.run import KernelOutcome, Run
from inductor_bench.store import codec
from inductor_bench.store.files import hash_bytes, write_json
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernel import OnResult
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.progress import Silent

SPEEDUPS = {"red": 2.0, "poi": 1.25, "mm": 1.0}
KERNELS = (
    ("triton_red_1", "r" * 16, C.REDUCTION, "forward", 2, 4e-3),
    ("triton_red_7", "r" * 16, C.REDUCTION, "backward", 1, 2e-3),
    ("triton_poi_2", "p" * 16, C.POINTWISE, "forward", 1, 5e-3),
    ("aten_mm_0", "m" * 16, C.EXTERN_GEMM, "forward", 3, 1e-3),
    ("aten_bad_0", "b" * 16, C.EXTERN_GEMM, "backward", 1, 0.5e-3),
)
"""The kernels as an extraction lists them. Two graphs launch the reduction; the last kernel has no file."""


def make_run(
    folder: RunFolder, wall_s: tuple[float, float] = (10.8e-3, 2.2e-3), text: str = "", **fields: object
) -> Run:
    """Makes a RUN of two graphs, whose files hold ``text``.

    The matrix product in the record is a kernel of the extracted library call.
    """
    graphs = []
    for label, wall in zip(("forward", "backward"), wall_s, strict=True):
        kernels = [
            run_builder.kernel(name, category, calls, time_s, kernel_id=kernel_id, file=f"kernels/{name}.py")
            for name, kernel_id, category, graph, calls, time_s in KERNELS
            if graph == label and not name.startswith("aten")
        ]
        if label == "forward":
            file = "kernels/aten_mm_0.py"
            kernels.append(
                run_builder.kernel("sgemm", C.EXTERN_GEMM, 3, 1e-3, kernel_id="s" * 16, operator="aten.mm", file=file)
            )
        graphs.append(replace(run_builder.module(label, kernels, wall, run_builder.H200), device="cuda"))
    fields = {"environment": run_builder.GPU, **fields}
    run = run_builder.run("retuned", graphs, peaks=run_builder.H200, **fields)
    rows = []
    for name, kernel_id, category, graph, calls, time_s in KERNELS:
        file = None if name == "aten_bad_0" else f"{name}.py"
        reason, sha256 = ("", hash_bytes(text.encode())) if file else ("no arguments", None)
        rows.append(ExtractedKernel(name, kernel_id, category, graph, calls, time_s, file, reason, sha256=sha256))
        if file:
            folder.kernels.mkdir(parents=True, exist_ok=True)
            (folder.kernels / file).write_text(text)
    write_json(folder.kernels / "kernels.json", codec.encode(tuple(rows)))
    folder.save(run)
    return run


def retuned(file: str, method: str, device: str = "NVIDIA H200") -> MeasuredKernel:
    """Returns a retuned kernel. Its name and the method determine the speedup."""
    speedup = SPEEDUPS[Path(file).stem.split("_")[1]] * (1.5 if method == "exhaustive" else 1.0)
    default_s = next(time_s / calls for name, *_, calls, time_s in KERNELS if name == Path(file).stem)
    timing = summarize([default_s] * 9)
    verdict = "faster" if speedup > 1 else "same"
    tuning = Tuning(method, "cold", (), 3, default_s, default_s / speedup, speedup, verdict, {"XBLOCK": 64})
    return MeasuredKernel(Path(file).stem, "", file, "", device, {}, timing, timing, "", tuning=tuning)


class Engine:
    """A fake of ``run_kernel``. ``begun`` lists the requested files in order.

    Args:
        outcome: returns the result for a file and a method.
    """

    def __init__(self, outcome: Callable[[str, str], MeasuredKernel | Failure | BaseException] = retuned) -> None:
        self.begun: list[str] = []
        self.requests: list[KernelRequest] = []
        self._outcome = outcome

    def __call__(
        self, request: KernelRequest, progress: object, report: OnResult, stakes: Mapping[str, object]
    ) -> KernelOutcome:
        assert stakes.keys() >= set(request.targets), "it is known what is at stake with each"
        assert request.autotune is not None
        self.requests.append(request)
        for file in request.targets:
            self.begun.append(Path(file).stem)
            found = self._outcome(file, request.autotune)
            if isinstance(found, BaseException):
                raise found
            report(found, run_builder.GPU)
        return KernelOutcome((), run_builder.GPU)


def main(words: list[str]) -> int:
    """Runs ``breakdown TARGET … -o RUN`` or ``breakdown RUN …``. The first retune of ``stopped`` is killed."""
    new = "-o" in words
    folder = RunFolder(Path(words[words.index("-o") + 1] if new else words[1]))
    name = folder.path.name
    if new:
        batch_child.main(words)
        make_run(folder)
    run = folder.load()
    if "--autotune" in words:
        method = words[words.index("--autotune") + 1]
        top = int(words[words.index("--top") + 1]) if "--top" in words else RetuneRequest.top
        stop = name == "stopped" and new

        def outcome(file: str, method: str) -> MeasuredKernel:
            if stop and "red" in file:
                os.kill(os.getpid(), signal.SIGKILL)
            batch_child.log(folder, f"retune {name} {Path(file).stem} {method}")
            return retuned(file, method)

        retuning.run_kernel = Engine(outcome)  # type: ignore[assignment]
        retuning.list_visible_gpus = lambda: ("0",)
        request = BreakdownRequest(str(folder.path), retune=RetuneRequest(method, top))
        run = retuning.autotune_run(run, folder, request, Silent(), folder.save)
    return 1 if run.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InductorBenchError as error:
        print(f"Error: {error.message}")
        sys.exit(2)
