"""Where the time of a ``torch.compile``'d model goes, kernel by kernel.

Importing the package is cheap: torch is loaded only in the processes that measure. This file imports only the
version and the mark of steps, because every command imports it first, and the command line has to start quickly.
"""

from .step_marks import step
from .version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from .records.comparison import ModeComparison, RunComparison
    from .records.module import KernelFile
    from .records.optimization import Optimization
    from .records.request import BreakdownRequest
    from .records.retune import MeasuredKernel
    from .records.run import Run
    from .workflows.observe import ObservedBlock

__all__ = [
    "__version__",
    "apply",
    "autotune",
    "bench",
    "breakdown",
    "compare",
    "extract",
    "modes",
    "observe",
    "optimize",
    "schema",
    "step",
]


def breakdown(target: "str | Path | Sequence[str | Path]", **options: "Any") -> "Run":
    """Measures a target and returns the record that ``inductor-bench breakdown`` writes; the RUN folder is written too.

    Args:
        target: what the command takes (``model.py``, ``model.py:factory``, ``timm:NAME``, a compiled module, a log, a
            ``TORCH_TRACE`` folder, an earlier RUN folder), or several compiled modules.
        options: the other fields of ``records.request.BreakdownRequest``, such as ``training=True``,
            ``amp="bfloat16"`` (the dtype of autocast, by torch's name) or ``output="runs/mine"``.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: an expected failure. A module that fails while others succeed raises nothing: it is a row
            of ``Run.failures``.
    """
    from pathlib import Path

    from .records.request import BreakdownRequest
    from .records.request_fields import make_target_fields
    from .workflows.breakdown import run_breakdown
    from .workflows.progress import Silent

    targets = [str(item) for item in ((target,) if isinstance(target, str | Path) else target)]
    for name in ("output", "trace"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    if isinstance(options.get("redact"), str):
        options["redact"] = (options["redact"],)
    request = BreakdownRequest(**make_target_fields(targets), **options)
    return run_breakdown(request, Silent()).run


def observe(
    output: "str | os.PathLike[str] | None" = None,
    *,
    name: str = "",
    force: bool = False,
    samples: bool = True,
) -> "ObservedBlock":
    """Observes the steps of a block, in a script or a notebook, as ``breakdown`` observes a program from outside.

    ``with inductor_bench.observe("runs/mine") as run:`` stands around a loop. After the block ``print(run)`` prints the
    screen of a breakdown, a notebook shows its short form, and the RUN folder is like any other. The end of the block
    takes some seconds: each compiled module runs by itself in another process.

    Call it before the first call of a compiled function: of graphs that were compiled before, the RUN lacks layers and
    lines, and says so. Steps are delimited as by ``breakdown``: by :func:`step`, the optimizer, or repeated calls. If
    the program's own profiler runs, none is profiled. In a program of several ranks, rank 0 is observed.

    Args:
        output: the RUN folder; without it the first free ``runs/NAME-1``, ``-2``, …
        name: the name of the run in reports; without it that of the program.
        force: whether an earlier run in that folder may be replaced.
        samples: whether what the host does is sampled, in 5 s of further steps.

    Returns:
        A context manager. It gives an object that has ``headline``, ``findings``, ``failures``, ``step_time_s`` (in
        seconds), ``kernels["triton_red*"].time_s`` (seconds of a step) and ``record`` after the block, and ``folder``
        and ``is_measured`` within it. It stands for the path of the RUN, so that :func:`compare` takes it.

    Raises:
        InductorBenchError: torch is not installed; or at the begin of the block: another one is observed, or the
            folder is in use. The end raises nothing of its own; what failed stands in ``failures``.
    """
    try:
        from .worker.capture.in_process import ProcessObserver, cache_folder, is_observed
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from .errors import InductorBenchError

        raise InductorBenchError("observe needs torch, which is not installed", "install torch 2.9 or newer") from None
    from .workflows.observe import ObservedBlock, request_of_block

    request = request_of_block(output, name, force=force, samples=samples)
    return ObservedBlock(request, ProcessObserver, cache_folder, is_observed=is_observed())


def extract(
    source: "str | Path | Sequence[str | Path]",
    output: "str | Path",
    *,
    kernel: str | None = None,
    category: str | None = None,
    top: int | None = None,
    **options: "Any",
) -> "list[KernelFile]":
    """Writes every kernel of a module as a file that runs by itself, as ``inductor-bench extract`` does.

    Args:
        source: a compiled module, several of them, a log that lists some, a ``TORCH_TRACE`` folder, or a RUN folder.
            A RUN knows the arguments that the kernels really had; a module is run once, in a separate process.
        output: the folder to write, new or empty.
        kernel: only kernels whose name fits this glob, for example ``"triton_red_*"``.
        category: only this category, for example ``"pointwise"`` or ``"extern_gemm"`` (``records.base.Category``).
        top: at most this many kernels: of a RUN those that take the most time, of other sources the first ones.
        options: the other fields of ``records.request.ExtractRequest``:
            ``values="recorded"`` writes the tensors that the kernels read into safetensors files beside them; without
            it the kernels read random numbers. ``values_limit_bytes`` is the maximum size of the recorded values of
            one kernel (64 MB). ``static=True`` reads the arguments from the module's text and runs nothing. ``python``
            is the interpreter that runs the modules, ``timeout_s`` the limit of each process in seconds.

    Returns:
        One row for each kernel of each module, in their order; with ``top`` the slowest first. ``path`` is the absolute
        path of the kernel's file, ``values_path`` that of its recorded values. A kernel without a file has
        ``path=None`` and the ``reason``. Kernels that are alike share one file. ``time_s`` is the time in seconds per
        iteration of the model.

    Raises:
        TypeError: an option that does not exist.
        ValueError: a category that does not exist.
        InductorBenchError: an expected failure: nothing at ``source``, a folder ``output`` that is not empty, a RUN
            without recorded values. What fails for one module only is a ``UserWarning``, and the others are written.
    """
    import warnings
    from pathlib import Path

    from .records.base import Category
    from .records.module import add_paths
    from .records.request import ExtractRequest, Selection
    from .workflows.extract import run_extract
    from .workflows.progress import Silent

    categories = [one.value for one in Category]
    if category is not None and category not in categories:
        raise ValueError(f"{category!r} is not a category; they are {', '.join(categories)}")
    sources = (source,) if isinstance(source, str | Path) else tuple(source)
    request = ExtractRequest(
        targets=tuple(str(item) for item in sources),
        output=Path(output),
        selection=Selection(kernel, Category(category) if category is not None else None, top),
        **options,
    )
    outcome = run_extract(request, Silent())
    for message in (*outcome.notes, *(failure.message for failure in outcome.failures)):
        warnings.warn(message, stacklevel=2)
    return [add_paths(row, Path(output).resolve()) for row in outcome.kernels]


def bench(path: "str | Path", **options: "Any") -> "MeasuredKernel":
    """Times one standalone kernel file, as ``inductor-bench kernel FILE`` does.

    Args:
        path: a file that ``extract`` or ``breakdown`` wrote, or ``RUN#NAME``.
        options: the other fields of ``records.request.KernelRequest``:
            ``check=False`` leaves out the comparison of the outputs with the reference in the file. ``ncu=True`` adds
            the counters of Nsight Compute. ``force=True`` times on a GPU that another job uses. ``python`` is the
            interpreter that runs the file, ``timeout_s`` the limit of each step in seconds.

    Returns:
        The cold and warm times in seconds with all samples, and the shares of the device's peaks; see
        ``records.retune``.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: there is no such file, it is no standalone kernel file, or it cannot be measured here.
    """
    from .records.request import KernelRequest
    from .workflows.kernel import measure_one
    from .workflows.progress import Silent

    return measure_one(KernelRequest(targets=(str(path),), **options), Silent())


def autotune(path: "str | Path", method: str = "max", **options: "Any") -> "MeasuredKernel":
    """Times and retunes one standalone kernel file, as ``inductor-bench kernel FILE --autotune`` does.

    Args:
        path: as for :func:`bench`.
        method: as in ``--autotune``: the name of one of ``autotune.methods.METHODS``.
        options: the other fields of ``records.request.KernelRequest``:
            ``state`` is the state of the caches, ``cold`` or ``warm``, in which times are compared. ``budget_s`` is the
            limit of the search in seconds. ``save`` is the path to which the fastest kernel is written. The options of
            :func:`bench` have the same meaning here.

    Returns:
        As :func:`bench`; ``tuning`` has every candidate that was tried, the verdict and the best configuration.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: as for :func:`bench`, or the kernel has no other configuration.
    """
    from pathlib import Path

    if "save" in options and options["save"] is not None:
        options["save"] = Path(options["save"])
    return bench(path, autotune=method, **options)


def modes(
    target: "str | Path | None" = None,
    *,
    modes: "Sequence[str]" = (),
    sets: "Sequence[str]" = (),
    rounds: int = 4,
    **options: "Any",
) -> "ModeComparison":
    """Compares the modes of ``torch.compile`` for a program, as ``inductor-bench modes`` does; the folder is written.

    Args:
        target: what the command takes; ``None`` if ``arguments`` are a command.
        modes: only these of ``eager``, ``default``, ``reduce-overhead``, ``max-autotune-no-cudagraphs`` and
            ``max-autotune``; all if empty.
        sets: one more row each, as after ``--with``: ``"tf32"``, ``"max-autotune,tf32"``,
            ``"inductor.epilogue_fusion=false"``, ``"OMP_NUM_THREADS=8"``.
        rounds: the number of processes for each row.
        options: the other fields of ``records.request.BreakdownRequest`` that fit a program, such as
            ``training=True`` or ``output="modes/mine"``. With ``force=True`` it is measured again.

    Returns:
        The comparison that ``modes.json`` holds. A row that failed raises nothing: it has a ``failure``.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: an expected failure: the target is no program, or the folder holds another comparison.
    """
    from .records.request import ModesRequest
    from .workflows.modes import run_modes
    from .workflows.progress import Silent

    request = ModesRequest(tuple(modes), tuple(sets), rounds=rounds, program=_program(target, options))
    return run_modes(request, Silent()).comparison


def optimize(
    target: "str | Path | None" = None,
    *,
    budget_s: float = 1200.0,
    allowed: "Sequence[str]" = (),
    denied: "Sequence[str]" = (),
    only: "Sequence[str]" = (),
    devices: "Sequence[str]" = (),
    **options: "Any",
) -> "Optimization":
    """Finds the settings that make a program faster, as ``inductor-bench optimize`` does; the folder is written.

    Args:
        target: what the command takes, such as a RUN or a script; ``None`` if ``arguments`` are a command.
        budget_s: seconds after which no further process begins.
        allowed: groups that are tried only if they are allowed, such as ``"tf32"``.
        denied: groups that are not tried.
        only: the only groups that are tried, instead of ``allowed`` and ``denied``.
        devices: the GPUs over which its processes are spread, such as ``"0"``; empty for all.
        options: the other fields of ``records.request.BreakdownRequest`` that fit a program.

    Returns:
        The search that ``optimization.json`` holds. ``winner`` is ``None`` if nothing is proven.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: an expected failure: the target is no program, or its steps are not found.
    """
    from .records.request import OptimizeRequest
    from .workflows.optimize import run_optimize
    from .workflows.progress import Silent

    program = _program(target, options)
    request = OptimizeRequest(
        budget_s, tuple(allowed), tuple(denied), tuple(only), devices=tuple(map(str, devices)), program=program
    )
    return run_optimize(request, Silent()).found


def _program(target: "str | Path | None", options: "dict[str, Any]") -> "BreakdownRequest":
    """The request of a program; a folder may be given as text."""
    from pathlib import Path

    from .records.request import BreakdownRequest

    if options.get("output") is not None:
        options["output"] = Path(options["output"])
    return BreakdownRequest("" if target is None else str(target), **options)


def apply(run: "str | Path", kernels: "Sequence[str | Path]" = ()) -> int:
    """Puts the configs of a RUN's retunes, and edited kernels, into the code that this process compiles from now on.

    Call it before the first call of a compiled function. ``inductor-bench apply RUN -- COMMAND`` does the same to an
    unchanged program, and reports which kernels run their new config or source.

    Args:
        run: a RUN folder, with retunes if no kernel is given, or its folder ``tuned``.
        kernels: files of edited kernels, as ``inductor-bench kernel RUN#NAME --edit FILE`` writes them.

    Returns:
        The number of configs and edits.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, a file is not of one of its kernels, or all this is
            for another torch, Triton or GPU.
    """
    from pathlib import Path

    from .errors import InductorBenchError
    from .worker.capture.pinned import make_pinned_kernels, name_gpu
    from .worker.capture.startup import install
    from .workflows.apply import prepare_process, require_same_gpu

    pinned, measured = prepare_process(Path(run), [*map(Path, kernels)])
    require_same_gpu(pinned.pins, measured, name_gpu())
    if make_pinned_kernels().refusal:
        raise InductorBenchError(make_pinned_kernels().refusal, "break the program down here", "elsewhere")
    install()
    return len(pinned.pins.all)


def compare(a: "str | os.PathLike[str]", b: "str | os.PathLike[str]") -> "RunComparison":
    """Compares two runs, as ``inductor-bench compare A B`` does.

    Args:
        a: a RUN folder, a zipped RUN, or what :func:`observe` gave.
        b: another run, which is compared with ``a``.

    Returns:
        The verdict on B, the parts of the difference of their steps, which add up to it, and each graph and kernel; see
        ``records.comparison``. Times are in seconds of a step of the program.

    Raises:
        InductorBenchError: one of them is missing, cannot be read, or holds no measurement.
    """
    from pathlib import Path

    from .workflows.compare import compare_records

    return compare_records(Path(a), Path(b)).comparison


def schema(name: str) -> "dict[str, Any]":
    """Returns the JSON Schema of what ``--format json`` prints.

    Args:
        name: as ``schema`` of the printed JSON has it, with or without the version: ``run/1``, ``run-comparison``.

    Raises:
        InductorBenchError: there is no schema of this name.
    """
    import json
    from pathlib import Path

    from .errors import InductorBenchError

    folder = Path(__file__).parent / "schemas"
    names = sorted(path.stem for path in folder.glob("*.json"))
    found = name.partition("/")[0]
    if found not in names:
        raise InductorBenchError(f"there is no schema {name!r}", f"give one of: {', '.join(names)}", "bad-word")
    return dict(json.loads((folder / f"{found}.json").read_text(encoding="utf-8")))
