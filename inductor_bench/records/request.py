"""The request of each verb. A field that is an option of the command line says so in its metadata.

From these fields come click's options (``cli.presentation``), the keys of a list of models (``workflows.model_list``),
the request in a record, the program's job, and the words of a command that is printed; see ``request_fields``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from .base import IN_RECORD, Category, FileName
from .request_fields import ASKED, COMPILED_HERE, GIVEN, LIBRARIES, Needs, join_by_or, option, part, same

DRAWN, RECORDED = "drawn", "recorded"
VALUES_LIMIT_BYTES = 64_000_000
DEFAULT_BATCH_SIZE = 32
"""The batch size of a library's model if none is given."""

AMP = {"float16": "float16", "fp16": "float16", "half": "float16", "bfloat16": "bfloat16", "bf16": "bfloat16"}
"""torch's names of the dtypes of autocast, by their usual names."""

OPTIMIZERS = ("AdamW", "Adam", "SGD")
"""The optimizers of ``torch.optim`` that a factory's or a named model's step can end with."""

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

TARGET = ("target", "others", "arguments")
"""The fields of what is broken down, which are no options."""


# The requests that records hold.


_RETUNE = Needs("method", "is for a retune", "add --autotune")


@dataclass(frozen=True)
class RetuneRequest:
    """The retuning of a run's most expensive kernels."""

    # the name of a method
    method: str = option(
        MISSING,
        "--autotune",
        kind="method",
        help="Then retune the kernels that take most time (--top sets how many), like `kernel --autotune`.",
    )
    top: int = option(10, "--top", shared=True)  # the number of kernels
    # the time limit of the whole retune in seconds
    budget_s: float | None = option(
        None,
        "--budget",
        metavar="TIME",
        kind="duration",
        help="Time limit for retuning a model (90s, 5m, 1h): after it the tool begins no kernel and no candidate.",
        needs=_RETUNE,
    )
    # whether kernels are retuned even if their result is known from another run
    remeasure: bool = option(
        False,
        "--remeasure",
        help="Also retune kernels whose best config is known from another run.",
        needs=_RETUNE,
    )
    # whether the program is run again afterwards, to prove what the faster configs save
    verify: bool = option(
        True,
        "--verify/--no-verify",
        help="After a retune, run the program's steps with and without the faster configs in turn (the default).",
        needs=_RETUNE,
    )


@dataclass(frozen=True)
class BreakdownRequest:
    """The request of a run. The tool decides what is ``None``."""

    target: str = ""  # what was measured: a path, a model's name or a command
    # what the target is: ``script``, ``command``, ``factory``, a library such as ``timm``, ``module``, ``log``,
    # ``structured-trace``, ``run``, ``trace`` or ``process``
    kind: str = ""
    arguments: tuple[str, ...] = ()  # the arguments of the program, or the words of a command
    others: tuple[str, ...] = ()  # other compiled modules that were measured together with the target
    # whether a factory or a named model got a loss and a backward pass
    training: bool | None = option(
        None, "--training/--inference", help="With a loss and a backward pass, or without gradients."
    )
    # the optimizer with which each training step of a factory or a named model ends; ``None`` for none
    optimizer: str | None = option(
        None,
        "--optimizer",
        choices=OPTIMIZERS,
        help="Let this optimizer step after each backward pass of a factory or a named model.",
    )
    # the ``mode`` of ``torch.compile``
    mode: str | None = option(None, "--mode", choices=MODES, help="The mode of torch.compile.")
    # the ``dynamic`` of ``torch.compile``
    dynamic: bool | None = option(None, "--dynamic/--no-dynamic", help="The dynamic argument of torch.compile.")
    # the dtype of autocast: ``float16`` or ``bfloat16``
    amp: str | None = option(None, "--amp", metavar="DTYPE", choices=AMP, help="Autocast to float16 or bfloat16.")
    # the requested device: ``cpu``, ``cuda``, ``cuda:1``, …
    device: str | None = option(
        None, "--device", metavar="DEVICE", help="cpu, cuda, cuda:1, …; by default the best there is."
    )
    # the seed of random weights and inputs
    seed: int | None = option(0, "--seed", shown=True, help="Seed of random weights and inputs.")
    # the batch size of a library's model
    batch_size: int | None = option(
        None, "--batch-size", least=1, help=f"Batch size of a {join_by_or(LIBRARIES)} model."
    )
    # whether every module was profiled inside the program, with the program's inputs
    live: bool = option(False, "--live", help="Profile modules inside the program, with the program's inputs.")
    # a trace recorded elsewhere, which is analysed instead of a run
    trace: Path | None = option(
        None,
        "--trace",
        recorded=False,
        metavar="FILE",
        kind="file",
        help="Analyse this trace of the compiled module, recorded elsewhere; nothing is run.",
    )
    # the number N of the program's steps to time; N + 1 are profiled, and the first does not count on a GPU
    steps: int | None = option(
        None,
        "--steps",
        metavar="N",
        least=1,
        help="Time N of the program's steps, and profile N + 1; on a GPU the first profiled step does not count.",
    )
    # the number of steps to skip before the timed ones; ``None`` waits until compilation has settled
    skip: int | None = option(
        None,
        "--skip",
        metavar="N",
        least=0,
        help="Begin N steps after the first step, without waiting until compilation has settled.",
    )
    # whether a sampler records what the host does, in steps after the timed and profiled ones
    samples: bool = option(
        True,
        "--samples/--no-samples",
        help="Sample the host's functions and lines in 5 s of further steps (the default), or do not.",
    )
    # whether the program was to end once its steps were measured
    stop: bool = option(False, "--stop", help="End the program once its steps are measured.")
    # whether everything was to be compiled anew
    cold: bool = option(
        False,
        "--cold",
        help="Compile everything anew, without what earlier breakdowns compiled.",
    )
    # whether the program was also to run without compilation
    eager: bool = option(False, "--eager", help="Also time the program's steps without compilation, in a second run.")
    # limit of each started process in seconds
    timeout_s: float | None = option(
        None,
        "--timeout",
        metavar="SECONDS",
        kind="seconds",
        help="Time limit of each process that is started, in seconds.",
    )
    # the number of profiled iterations
    repeat: int | None = option(None, "--repeat", metavar="N", least=1, help="How many iterations to profile.")
    # the retuning of the most expensive kernels after the measurement; ``None`` without one
    retune: RetuneRequest | None = part(RetuneRequest, "method verify budget_s remeasure top", ASKED)
    # ``recorded`` if the values that the kernels read are kept beside their standalone files, else ``drawn`` (random
    # values)
    values: str = option(
        DRAWN,
        "--values",
        choices=(DRAWN, RECORDED),
        shown=True,
        help="What large tensors in the kernels' files hold: random numbers, or the values that the kernels really "
        "read, kept in safetensors files.",
    )
    # maximum size of the recorded values of one kernel; larger storages get random values
    values_limit_bytes: int = option(
        VALUES_LIMIT_BYTES,
        "--values-limit",
        metavar="SIZE",
        kind="size",
        help="Size limit for the recorded values of one kernel; larger tensors get random values.",
        shown=f"{VALUES_LIMIT_BYTES // 10**6}MB",
        needs=Needs("values", "limits recorded values, and these are random", "add --values recorded", DRAWN),
    )
    # the interpreter that ran the program
    python: str | None = option(
        None, "--python", metavar="PATH", help="The interpreter to run the program under, with another torch."
    )
    # the RUN folder
    output: Path | None = option(
        None, "-o", "--output", recorded=False, metavar="RUN", help="The folder to write; by default runs/NAME-1, -2, …"
    )
    # whether an earlier run in the RUN folder may be replaced
    force: bool = option(False, "--force", recorded=False, help="Replace an earlier run in that folder.")
    # names of options and variables whose values are kept out of the RUN; see ``store.redaction``
    redact: tuple[str, ...] = option(
        (),
        "--redact",
        recorded=False,
        metavar="NAME",
        help="Keep the value of this option or variable out of all files that are written. Values of keys, tokens and "
        "passwords are always kept out. May be repeated.",
    )
    # whether plots are drawn
    plots: bool = option(
        True, "--plots/--no-plots", recorded=False, late=True, help="Draw the plots (the default) or not."
    )
    # environment variables of the program, as pairs of name and value, beside those of this process
    variables: tuple[tuple[str, str], ...] = field(default=(), metadata={IN_RECORD: False})

    @property
    def recorded_bytes(self) -> int | None:
        """Maximum size of the recorded values of one kernel; ``None`` if they are drawn."""
        return self.values_limit_bytes if self.values == RECORDED else None

    @property
    def place(self) -> str:
        """The target without the name of a library before it."""
        return self.target.removeprefix(f"{self.kind}:") if self.kind in LIBRARIES else self.target


def find_searched_optimizer(request: BreakdownRequest, kind: str) -> str | None:
    """The optimizer of the step for which settings are searched: the request's, or the default for a training step
    without one.

    Args:
        request: the program.
        kind: its kind, as in ``records.request_fields``.
    """
    trains = request.training or (request.training is None and kind == "factory")
    return request.optimizer or (OPTIMIZERS[0] if trains and kind in COMPILED_HERE else None)


@dataclass(frozen=True)
class ModelRequest(BreakdownRequest):
    """The request for one model of a batch. ``timeout_s`` limits one attempt with all its processes."""

    name: FileName = field(kw_only=True)  # unique in the batch; also the name of the model's RUN folder
    line: int = field(default=0, kw_only=True)  # line number in the list, from 1


# The requests of the other verbs.


BUDGET_S = 1200.0
"""The time limit of ``optimize`` in seconds if none is given."""

COMPARE_BUDGET_S = 300.0
"""The time limit of the processes of ``compare`` that are only timed, in seconds, if none is given."""

_SEARCH = Needs("optimize", "is for a search", "add --optimize")


@dataclass(frozen=True)
class SearchRequest:
    """The search for the settings that make each model of a batch faster."""

    optimize: bool = option(
        False,
        "--optimize",
        help="Then find the settings that make each model's step faster, like `optimize`, and say which settings help "
        "how many models.",
    )
    budget_s: float = option(BUDGET_S, "--budget", kind="duration", shared=True)  # of one model
    allowed: tuple[str, ...] = option(
        (),
        "--allow",
        metavar="NAMES",
        kind="names",
        help="Also try these groups of settings: GROUPS.",
        needs=_SEARCH,
    )
    denied: tuple[str, ...] = option(
        (), "--deny", metavar="NAMES", kind="names", help="Do not try these groups of settings.", needs=_SEARCH
    )
    max_memory_bytes: int | None = option(
        None,
        "--max-memory",
        metavar="SIZE",
        kind="size",
        help="Refuse settings with which a step takes more than this: 70GB.",
        needs=_SEARCH,
    )


@dataclass(frozen=True)
class BatchRequest:
    """The request of a batch."""

    source: Path  # the list
    output: Path | None = option(None, "-o", "--output", metavar="BATCH", help="The folder; by default batches/NAME.")
    listing: bool = option(False, "--list", help="Show the models that would be measured; run nothing.")
    filters: tuple[str, ...] = option(
        (), "--filter", metavar="GLOB", help="Only models with this name: a glob or a part of the name."
    )
    excludes: tuple[str, ...] = option((), "--exclude", metavar="GLOB", help="No models with this name.")
    shard: tuple[int, int] | None = option(
        None, "--shard", metavar="I/N", kind="shard", help="Every N-th model, beginning with the I-th."
    )
    bare: str | None = option(
        None,
        "--source",
        choices=tuple(LIBRARIES),
        help="The library of the models for which the list names no library.",
    )
    resume: bool = option(
        True, "--resume/--no-resume", help="Continue the batch in the folder (the default), or refuse to."
    )
    force: bool = option(False, "--force", help="Measure again what the folder already has.")
    retries: int = option(0, "--retries", metavar="N", least=0, help="Try a failed model up to N times more.")
    devices: tuple[str, ...] = option(
        (), "--devices", metavar="0,1,…", kind="names", help="The GPUs to use; by default all."
    )
    jobs: int | None = option(None, "--jobs", metavar="N", least=1, help="Measure at most N models at once.")
    overlap: bool | None = option(
        None,
        "--overlap/--no-overlap",
        help="Compile a model while another is timed on the same GPU. The default depends on the number of cores.",
    )
    executor: str = option(
        "local", "--executor", choices=("local", "ray"), help="Run on this machine, or on a Ray cluster."
    )
    address: str | None = option(
        None, "--address", metavar="HOST:PORT", help="Address of the Ray cluster; by default Ray looks for one."
    )
    overrides: Mapping[str, Any] = part(  # options for all models by field, which replace those in the list
        BreakdownRequest,
        "timeout_s training optimizer batch_size mode dynamic amp device seed live repeat values",
        GIVEN,
        timeout_s={"help": "Time limit of a model, in seconds."},
        batch_size={"help": "Batch size of all models, instead of the list's."},
        device={"metavar": None, "kind": "type of device", "help": "By default the best there is."},
        seed={"shown": False},
        live={"help": "Profile inside the programs."},
    )
    models: BreakdownRequest = part(  # further options for all models
        BreakdownRequest,
        "values_limit_bytes python retune redact plots",
        python={"help": "The interpreter to run the models under, with another torch."},
        budget_s={
            "help": "Time limit for retuning a model, and for the search of --optimize (20m by default): 90s, 5m, 1h.",
            "needs": Needs("method optimize", "is for a retune or a search", "add --autotune or --optimize"),
        },
    )
    search: SearchRequest | None = part(  # the search for settings of each model; ``None`` for none
        SearchRequest, "optimize budget_s allowed denied max_memory_bytes", ASKED
    )


@dataclass(frozen=True)
class KernelRequest:
    """The request to time and retune standalone kernel files."""

    targets: tuple[str, ...]  # files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob
    autotune: str | None = option(
        None, "--autotune", kind="method", help="Retune: METHODS. With --compare, both kernels."
    )
    configs: bool = option(
        False, "--configs", help="Time every config that Inductor chooses from, and choose no config."
    )
    budget_s: float | None = option(
        None, "--budget", metavar="SECONDS", kind="seconds", help="Time limit for building candidates, in seconds."
    )
    state: str = option(
        "cold",
        "--state",
        choices=("cold", "warm"),
        shown=True,
        help="Compare candidates by their cold times (data outside of the caches) or warm times (data in the caches).",
    )
    save: Path | None = option(None, "--save", metavar="PATH", help="Write the winner as a standalone file.")
    edit: Path | None = option(
        None, "--edit", metavar="FILE", help="Only write the source of RUN#NAME to this new file, which you then edit."
    )
    other: str | None = option(
        None, "--compare", metavar="OTHER", help="Time FILE and OTHER in turn: as they are, and in the same config."
    )
    other_python: str | None = option(
        None,
        "--other-python",
        metavar="PATH",
        help="The interpreter for OTHER, for example one with another torch.",
        needs=Needs("other", "is for --compare", "add --compare OTHER"),
    )
    proof_s: float | None = option(
        None,
        "--proof-time",
        metavar="TIME",
        kind="duration",
        help="With --compare, or for an edited FILE: while a verdict is undecided, time both kernels in turn, for up "
        "to this time (30s, 5m) per verdict. The default is up to 60 pairs.",
    )
    ncu: bool = option(False, "--ncu", help="Let Nsight Compute count each kernel's DRAM bytes, occupancy and stalls.")
    force: bool = option(False, "--force", help="Measure even if another job uses the GPU.")
    check: bool = option(True, "--check/--no-check", shown=True, help="Compare outputs with the reference first.")
    timeout_s: float | None = same(
        BreakdownRequest, "timeout_s", help="Time limit of each step of one kernel, in seconds."
    )
    python: str | None = same(BreakdownRequest, "python", help="The interpreter to run the kernels under.")


@dataclass(frozen=True)
class Selection:
    """The selected kernels: by a glob over names, by a category, and the ``top`` most expensive ones."""

    glob: str | None = option(
        None, "--kernel", metavar="GLOB", help="Only kernels whose name fits, for example 'triton_red_*'."
    )
    category: Category | None = option(
        None, "--category", choices={one.value: one for one in Category}, help="Only this category."
    )
    top: int | None = option(
        None, "--top", metavar="N", least=1, help="Only the N kernels that take most time in the model."
    )


@dataclass(frozen=True)
class ExtractRequest:
    """The request to write each kernel as a standalone file."""

    targets: tuple[str, ...]  # a RUN folder, a log, a structured trace, or compiled modules
    output: Path | None = option(None, "-o", "--output", metavar="DIR", help="The folder to write.")
    listing: bool = option(False, "--list", help="List the kernels and write nothing.")
    selection: Selection = part(Selection, "glob category top")
    static: bool = option(False, "--static", help="Read the arguments from the module's text; run nothing.")
    references: bool = option(
        False, "--references", help="For a RUN: run each kernel once, so that --check has outputs to compare with."
    )
    values: str = same(BreakdownRequest, "values")
    values_limit_bytes: int | None = same(BreakdownRequest, "values_limit_bytes", default=None)  # a RUN has its own
    timeout_s: float | None = same(BreakdownRequest, "timeout_s", help="")
    python: str | None = same(BreakdownRequest, "python", help="The interpreter to run the modules under.")


@dataclass(frozen=True)
class ApplyRequest:
    """The request to run a program with the configs of a RUN, and with edited kernels."""

    run: Path | None  # the RUN, or its folder ``tuned``; ``None`` for all configs that are known for this machine
    command: tuple[str, ...] = ()  # the program; empty to write ``RUN/tuned`` only
    kernels: tuple[Path, ...] = option(
        (), "--kernel", metavar="FILE", help="Also put in this edited kernel of RUN; may be repeated."
    )
    verify: bool = option(
        False, "--verify", help="Run the program's steps with and without the configs and edits, in turn."
    )
    proof_s: float | None = option(
        None,
        "--proof-time",
        metavar="TIME",
        kind="duration",
        help="With --verify: time steps for this time (30s, 5m), but at least 24 and at most 10,000 steps. The default "
        "is 3 s, but at most 120 steps. More pairs of steps decide smaller differences.",
        needs=Needs("verify", "is for a proof", "add --verify", False),
    )
    stop: bool = option(False, "--stop", help="With --verify: end the program once its steps are compared.")
    timeout_s: float | None = same(
        BreakdownRequest, "timeout_s", help="With --verify: time limit of each run of the program, in seconds."
    )
    python: str | None = same(
        BreakdownRequest, "python", help="The program's interpreter, if the command does not name one."
    )


@dataclass(frozen=True)
class CompareRequest:
    """The request to run two versions of a program, or one program in two settings, in turn, and to compare them."""

    pythons: tuple[str, ...] = option(
        (), "--python", metavar="PATH", help="The interpreter of A, then the interpreter of B."
    )
    variables: tuple[tuple[str, str], ...] = option(
        (), "--env", metavar="NAME=VALUE", kind="pairs", help="Set this variable in B."
    )
    budget_s: float = option(
        COMPARE_BUDGET_S,
        "--budget",
        metavar="TIME",
        kind="duration",
        shown="5m",
        help="Time limit (90s, 5m) of the timed processes; they end once it is decided which is faster.",
    )
    runs: int | None = option(
        None,
        "--runs",
        metavar="N",
        least=0,
        help="Then profile N runs of each side, to say why (by default 1).",
    )
    breakdown: BreakdownRequest = part(  # of each run; its ``output`` is the folder of all runs
        BreakdownRequest,
        "output force training mode amp device batch_size steps skip timeout_s",
        output={"metavar": "DIR", "help": "The folder of all files; by default runs/compare-NAME."},
        force={"help": "Replace earlier runs in that folder."},
        training={"help": "For a factory or a named model: as for breakdown."},
        batch_size={"help": "Batch size of a named model."},
        timeout_s={"help": "Time limit of each process, in seconds."},
    )
    second: str = ""  # the target of B; empty if it is that of A


@dataclass(frozen=True)
class ModesRequest:
    """The request to compare the modes of ``torch.compile`` for a program."""

    modes: tuple[str, ...] = option((), "--mode", kind="compared mode", help="Only these modes; may be repeated.")
    withs: tuple[str, ...] = option(
        (), "--with", metavar="SET", help="One more row, with these settings; may be repeated."
    )
    variables: tuple[tuple[str, str], ...] = option(
        (), "--env", metavar="NAME=VALUE", kind="pairs", help="One more row, with this variable."
    )
    inductor: tuple[str, ...] = option(
        (), "--option", metavar="inductor.X=Y", help="One more row, with this option of Inductor."
    )
    rounds: int = option(
        4,
        "--rounds",
        metavar="N",
        kind="rounds",
        shown=True,
        help="How many processes each row gets; an even number cancels a drift of the machine.",
    )
    program: BreakdownRequest = part(  # its ``output`` and ``force`` are those of the comparison
        BreakdownRequest,
        "steps skip training dynamic amp device seed batch_size timeout_s python output force redact",
        steps={"help": "Time N of a script's steps in each process."},
        output={"metavar": "FOLDER", "help": "The folder; by default modes/NAME."},
        force={"help": "Measure again what the folder already has."},
    )


@dataclass(frozen=True)
class OptimizeRequest:
    """The request to find the settings that make a program faster."""

    budget_s: float = option(
        BUDGET_S,
        "--budget",
        metavar="TIME",
        kind="duration",
        shown="20m",
        help="Time limit (90s, 5m, 1h): no process begins after it.",
    )
    allowed: tuple[str, ...] = option(
        (), "--allow", metavar="NAMES", kind="names", help="Also try these groups, with commas between them: GROUPS."
    )
    denied: tuple[str, ...] = option((), "--deny", metavar="NAMES", kind="names", help="Do not try these groups.")
    only: tuple[str, ...] = option(
        (),
        "--only",
        metavar="NAMES",
        kind="names",
        help="Try only these groups, also those that --allow would.",
    )
    max_memory_bytes: int | None = option(
        None,
        "--max-memory",
        metavar="SIZE",
        kind="size",
        help="Refuse settings with which a step takes more than this: 70GB.",
    )
    inductor: tuple[str, ...] = option(
        (), "--option", metavar="inductor.X=Y", help="Also try this option of Inductor; may be repeated."
    )
    variables: tuple[tuple[str, str], ...] = option(
        (), "--env", metavar="NAME=VALUE", kind="pairs", help="Also try this variable; may be repeated."
    )
    devices: tuple[str, ...] = same(BatchRequest, "devices")
    program: BreakdownRequest = part(  # its ``output`` and ``force`` are those of the search
        BreakdownRequest,
        "training optimizer mode dynamic amp device seed batch_size steps skip timeout_s python output force redact",
        optimizer={"help": "Let this optimizer step in the training of a factory or a named model.", "shown": "AdamW"},
        steps={"help": "Time N of the program's steps in the breakdown that comes first."},
        timeout_s={"help": "Time limit of each process, in seconds."},
        output={"metavar": "RUN", "help": "The folder; by default runs/NAME-optimize."},
        force={"help": "Measure again what the folder already has."},
    )


@dataclass(frozen=True)
class DoctorRequest:
    """The request to look at what is installed, and at what a device can reach."""

    device: str | None = same(BreakdownRequest, "device", help="cpu or cuda; by default the best there is.")
    remeasure: bool = option(False, "--remeasure", help="Measure the device again, even if it was measured before.")
    python: str | None = same(BreakdownRequest, "python", help="The interpreter to look at, with another torch.")
