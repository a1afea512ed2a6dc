"""The record of a search for settings that make a program faster, and what each of its processes measured."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import UsageError
from .base import Failure, FileName, Place, StepTime
from .code import MachineLoad
from .request import BreakdownRequest
from .run import Environment

# One change of the program from outside.


NOTHING, SUMS, LAYOUT, PRECISION = "nothing", "order of sums", "layout", "precision"
"""What a setting may change in the numbers of a program."""

INDUCTOR, DYNAMO, TORCH, OPTIMIZER = "inductor", "dynamo", "torch", "optimizer"
ATTENTION, MEMORY_FORMAT, LOADER, COMPILE = "attention", "layout", "loader", "compile"
ENVIRONMENT, PINS, FUNCTION = "environment", "pins", "function"
"""Kinds of settings; ``messages.observed.VariantSwitch`` says what each names."""

COMPILED = "compiled"
"""The flag of optimizers whose step is compiled."""

ALTERNATING = (INDUCTOR, TORCH, OPTIMIZER, ATTENTION, FUNCTION)
"""Kinds that can change between two steps of one process. The other kinds apply from the process's start."""


@dataclass(frozen=True)
class ProgramSetting:
    """A setting of a program: what is set, and to which value."""

    kind: str  # one of the kinds above
    # the name of what is set: an option of Inductor, an attribute of torch, a key of an optimizer, an argument, or a
    # variable. A function has its place, ``FILE:LINE:NAME`` with any of its lines, or its dotted path
    setting: str
    value: str  # its value as Python writes it

    @property
    def words(self) -> str:
        """The setting in a line: ``inductor triton.cudagraphs=True``."""
        return f"{self.kind} {self.setting}={self.value}"

    @property
    def changes_compilation(self) -> bool:
        """Whether it may change what is compiled: a loader and the flags of an eager optimizer do not."""
        return self.kind != LOADER and (self.kind != OPTIMIZER or self.setting == COMPILED)


def parse_value(text: str) -> object:
    """The value that a text of Python has; the text itself if it is no literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


GROUPS = (
    *("cudagraphs", "optimizer", "attention", "max-autotune", "kernels", "padding", "convolutions", "layout"),
    *("cpp-wrapper", "freezing", "dynamic", "loader", "allocator", "tf32", "reduced-precision", "threads", "pins"),
    *("functions", "memory", "bf16", "graph-breaks"),
)
"""The names of groups of settings that ``--allow`` and ``--deny`` take."""

OWN = "own"
"""The group of the rows that the user adds."""


def check_groups(allowed: Sequence[str], denied: Sequence[str], option: str = "--allow") -> None:
    """Checks the names of groups; ``option`` is the one that allowed the first.

    Raises:
        UsageError: a name is unknown, or is both allowed and denied.
    """
    for name, groups in ((option, allowed), ("--deny", denied)):
        unknown = [group for group in groups if group not in GROUPS]
        if unknown:
            raise UsageError(f"{name} {unknown[0]}: no group has this name", f"give {', '.join(GROUPS)}", "bad-word")
    both = [group for group in allowed if group in denied]
    if both:
        raise UsageError(
            f"--allow {both[0]} and --deny {both[0]} exclude each other", "leave one out", "conflicting-options"
        )


def choose_groups(
    only: Sequence[str], allowed: Sequence[str], denied: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the allowed and the denied groups. ``only`` allows its groups, and denies all others.

    Raises:
        UsageError: a name is unknown, a group is both allowed and denied, or ``only`` is given beside another list.
    """
    if only and (allowed or denied):
        raise UsageError(
            f"--only {only[0]} already says which groups are tried",
            "leave out --allow and --deny",
            "conflicting-options",
        )
    check_groups(only, (), "--only")
    check_groups(allowed, denied)
    if not only:
        return tuple(allowed), tuple(denied)
    return tuple(group for group in GROUPS if group in only), tuple(group for group in GROUPS if group not in only)


# What one process of the program measured.


ORIGINAL, PLACEBO = "original", "placebo"
"""Names of the program as it is, and of the same program compiled once more under another cache key."""

SCREEN, PROVE, COMBINE, CONFIRM = "screen", "prove", "combine", "confirm"
"""The purposes of a process: to rank all settings; to prove settings that seem faster; to combine proven settings; to
run the result as the user would, in new processes in which its settings are on from the first step (whole runs)."""

WARMING = "warm"
"""The purpose of a process that only compiles variants, so that a later one finds them in its cache."""

TIMED = "timed"
"""The purpose of a process of ``compare``, whose steps are timed and nothing else."""


RANKS = "ranks"
"""Kind of the failure of a program whose ranks did not change their variants at the same steps."""


@dataclass(frozen=True)
class VariantCheck:
    """How far the outputs and gradients of one compiled callable differ between a variant and the original."""

    graph: str  # the callable
    outputs: int  # the number of compared outputs
    gradients: int  # the number of compared gradients
    worst: float  # the largest difference, as a multiple of the tolerance
    own: float  # the largest difference of the original from itself, as a multiple of the tolerance
    reason: str = ""  # why it differs, or was not compared; empty if it agrees
    where: str = ""  # the tensor that differs most
    is_compared: bool = True  # whether it was compared

    @property
    def differs(self) -> bool:
        """Whether it differs by more than is tolerated, and by more than the original differs from itself."""
        return self.is_compared and self.worst > max(1.0, 2 * self.own)


MODE_BITS = 8
"""The lowest bits of a step's kind: how many of its calls record gradients. The others are its graphs and shapes."""


KEPT_SIZES = 100
"""The largest number of sizes that are kept of a kind."""


@dataclass(frozen=True)
class KindSizes:
    """The sizes in the steps of one kind."""

    kind: int  # as in :attr:`TrialVariant.kinds`
    sizes: tuple[int, ...]  # all sizes of the tensors with which its graphs were called; of many the first ones


@dataclass(frozen=True)
class TrialVariant:
    """What one process measured of one variant."""

    slug: str  # its name: ``original``, ``placebo``, the name of a row, or the names of several rows joined by ``+``
    times_s: tuple[StepTime, ...] = ()  # the timed steps, in order
    places: tuple[int, ...] = ()  # the number of each timed step among all steps of the process
    # the kind of each timed step, by the graphs that it called and their shapes; only one number if all are of one kind
    kinds: tuple[int, ...] = ()
    compile_time_s: float = 0.0  # seconds that the compilation of its graphs took
    peak_memory_bytes: int | None = None  # the largest number of bytes that torch allocated in its steps
    refused: tuple[str, ...] = ()  # the settings that had no effect, each with its reason
    failure: str = ""  # why the process stopped to run it; empty if it did not
    checks: tuple[VariantCheck, ...] = ()  # one for each compiled callable


@dataclass(frozen=True)
class StepDigest:
    """The gradients with which an optimizer stepped."""

    step: int  # the number of the optimizer's step, from 0
    norm: float  # the norm of all gradients
    # the norm of each parameter's gradient, in the order of the optimizer; 0 without one
    sums: tuple[float, ...] = ()
    loss: float | None = None  # the last scalar from which gradients were computed; ``None`` if there was none


@dataclass(frozen=True)
class Trial:
    """One process of the program, in which variants were timed, or compiled ahead. ``trials/NAME.json`` holds it."""

    name: FileName  # the name of this process's files
    # why it ran: ``screen`` (to rank), ``prove``, ``combine``, ``confirm`` (whole runs), ``warm`` (to compile), or
    # ``timed`` (for ``compare``)
    purpose: str
    alternates: bool  # whether the process switched between the variants; otherwise it ran one variant all the time
    slugs: tuple[str, ...]  # the variants that were asked for, without the original
    variants: tuple[TrialVariant, ...] = ()  # what was measured of each variant; the original is the first
    digests: tuple[StepDigest, ...] = ()  # of the optimizer's first steps, if they were asked for
    time_s: float = 0.0  # seconds from the start of the process to its end
    device: str = ""  # the type of the device
    source: str = ""  # what delimits the steps
    failure: Failure | None = None  # why the process measured nothing, or less than was asked
    cold: bool = False  # whether it compiled with empty caches
    notes: tuple[str, ...] = ()  # what limits the figures
    load: MachineLoad | None = None  # the machine's load while its steps were timed; ``None`` without such steps
    late: bool = False  # whether the search ended it, because its time was over before everything was measured
    gpu: str = ""  # the GPU, as ``CUDA_VISIBLE_DEVICES`` names it; empty if the program has all of them, or none
    kind_sizes: tuple[KindSizes, ...] = ()  # of the kinds of its steps; of older versions none

    @property
    def compile_time_s(self) -> float:
        """Seconds in which all of its variants were compiled, the original included."""
        return sum(one.compile_time_s for one in self.variants)

    def variant(self, slug: str) -> TrialVariant | None:
        """What a variant did; ``None`` if it was not in the process."""
        return next((one for one in self.variants if one.slug == slug), None)


# What the trials mean.


FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
"""Verdicts. ``same`` is a difference that is no larger than the placebo's, or too small to matter."""


@dataclass(frozen=True)
class MeasuredGain:
    """What a change saves, as shares of the step without it; negative if the step becomes longer."""

    share: float  # the share that is saved
    low: float  # lower end of its interval
    high: float  # upper end of its interval
    before_s: float  # the step without the change: the mean of the processes' medians
    after_s: float  # the step with the change: ``before_s`` minus the saved share
    processes: int  # the number of processes that were measured
    samples: int  # the number of compared pairs: a block of steps with the change and its neighbour without
    placebo: float  # the largest difference between placebo and original in these processes, as a share of the step
    verdict: str  # ``faster``, ``slower``, ``same`` or ``undecided``


KEPT, REDUNDANT, LOST, DIFFERS, FAILED, UNPROVEN, UNTRIED, SUGGESTED = (
    *("kept", "redundant", "lost", "differs", "failed", "unproven", "untried", "suggested"),
)
"""The outcomes of a row of the menu: it is a part of the result; it is faster by itself, and adds nothing to the
result; it is no faster; its numbers differ; it failed; nothing was decided in the time; it was not tried; it is only
named. Beside them :data:`UNDECIDED`: the noise may hide that it is faster."""


DENIED = "its group is left out (--deny, --only)"
NEEDS_GPU = "it needs a GPU"
"""Why a row is not tried whose group was denied, or for a program on a CPU."""


@dataclass(frozen=True)
class MenuRow:
    """One change that may make the program faster, and the outcome of trying it."""

    slug: str  # its name
    title: str  # what it is, in words
    settings: tuple[ProgramSetting, ...]  # what is set
    group: str  # the name of its group for ``--allow`` and ``--deny``
    # what it may change in the program's numbers: ``nothing``, ``order of sums``, ``layout`` or ``precision``
    numbers: str
    alternates: bool  # whether it can change between two steps of one process
    why: str  # what in the program it may shorten
    bound: float | None = None  # the largest share of the step that it can save; ``None`` if nothing bounds it
    fails: str = ""  # how it can fail
    source: str = ""  # where it is described
    state: str = UNTRIED  # the outcome
    reason: str = ""  # why, in words
    screened: MeasuredGain | None = None  # what it saved in the ranking, which is not a proof
    proven: MeasuredGain | None = None  # what it saves without other settings, by its proof
    # how much the result saves because of it: the saving that is lost if only this row is taken out
    own: MeasuredGain | None = None
    # seconds that the first compilation of its graphs took, with the caches of the search; ``None`` if it compiles none
    compile_time_s: float | None = None
    peak_memory_bytes: int | None = None  # the largest number of bytes that torch allocated in its steps
    # whether it is expected to compile for long: its function repeats an operator in a loop, or calls a compiled graph
    is_costly: bool = False

    @property
    def changes_compilation(self) -> bool:
        """Whether it may change what is compiled."""
        return any(one.changes_compilation for one in self.settings)

    @property
    def needs_time(self) -> bool:
        """Whether a search with a longer budget may try or prove the row."""
        return self.state == UNPROVEN or "--budget" in self.reason


EMPTY_CACHES, SHARED_CACHES, NOT_YET = "empty caches", "shared caches", "not yet"
"""The caches of the whole runs of a result; see :attr:`OptimizedProgram.from_start`."""


@dataclass(frozen=True)
class OptimizedProgram:
    """The result of a search: the rows that are kept, and what they save together."""

    slugs: tuple[str, ...]  # the names of the rows
    gain: MeasuredGain  # what the rows save together, by the proof
    # the step's time after each row was added, beginning with the original: for a waterfall plot
    steps: tuple[tuple[str, float], ...]
    peak_memory_bytes: int | None = None  # the largest number of bytes that torch allocated in its steps
    original_peak_memory_bytes: int | None = None  # that number of bytes for the original
    # seconds that its compilation takes with empty caches, in a separate process; ``None`` unless both it and the
    # original ran with empty caches
    compile_time_s: float | None = None
    original_compile_time_s: float | None = None  # the compilation of the original, in seconds
    # the number of steps after which a longer compilation has paid off; ``None`` if no row changes what is compiled
    pays_after: float | None = None
    alone: MeasuredGain | None = None  # what the rows save together in whole runs, as the user would run the program
    # two shares of the step: if a new process with the settings is compared with one without them, the saving lies
    # between the two in 95% of such pairs; ``None`` if too few processes ran to tell
    expected: tuple[float, float] | None = None
    losses: str = ""  # what the comparison of gradients and losses says
    # the caches of its whole runs: ``empty caches`` (it compiled all that it needs), ``shared caches`` (what
    # earlier processes had compiled), or ``not yet`` (two processes agree on it, and there was no time for whole
    # runs, or in these the original was much slower or faster)
    from_start: str = EMPTY_CACHES
    missing_s: float | None = None  # seconds that its whole runs are expected to take if they are missing

    @property
    def is_confirmed(self) -> bool:
        """Whether there were whole runs of it."""
        return self.from_start != NOT_YET


@dataclass(frozen=True)
class Optimization:
    """A search for settings that make a program faster."""

    format: int  # the schema number
    tool_version: str  # the version of inductor-bench that wrote the record
    created: str  # when it began
    command: str  # the command line, without secrets
    target: str  # the program, as it was typed
    title: str  # the name of the program in reports
    request: BreakdownRequest  # the request of the program, without secrets
    environment: Environment  # the machine and the versions
    step_time_s: float  # the step in the RUN, in seconds
    budget_s: float  # the time limit
    # the time limit for ranking and proving settings, if it is shorter than ``budget_s`` because a later command only
    # made whole runs of the result; else ``None``
    searched_s: float | None = None
    # seconds of the original's step in the processes of the search: the median of the processes' medians; ``None`` if
    # none was timed
    measured_step_s: float | None = None
    before_s: float = 0.0  # seconds of the breakdown that it began with; 0 if there was one already
    allowed: tuple[str, ...] = ()  # groups that were allowed
    denied: tuple[str, ...] = ()  # groups that were denied
    devices: tuple[str, ...] = ()  # the GPUs that the user named; empty for all
    max_memory_bytes: int | None = None  # the memory that a variant may take
    rows: tuple[MenuRow, ...] = ()  # the menu
    trials: tuple[Trial, ...] = ()  # the processes, without the times of single steps
    winner: OptimizedProgram | None = None  # the result; ``None`` if nothing is proven
    spent_s: float = 0.0  # seconds that the search has taken
    is_complete: bool = False  # whether the search has come to its end
    notes: tuple[str, ...] = ()  # what limits the figures
    files: tuple[Place, ...] = field(default_factory=tuple)  # what was written for the user

    def row(self, slug: str) -> MenuRow:
        """The row of the menu with this name."""
        return next(row for row in self.rows if row.slug == slug)

    @property
    def longer_budget(self) -> str:
        """A time limit with which the search goes on: ``40m``."""
        return f"{max(2, round(self.budget_s / 30))}m"

    @property
    def step_s(self) -> float:
        """The original's step in seconds: as the search timed it, or else that of the RUN."""
        return self.measured_step_s or self.step_time_s

    @property
    def caveat(self) -> str:
        """What the result still lacks, in words; empty if it lacks nothing, or if there is no result."""
        is_open = self.winner is not None and not self.winner.is_confirmed
        return "not yet confirmed in new processes that start with the settings" if is_open else ""

    @property
    def tried(self) -> tuple[MenuRow, ...]:
        """The rows that were timed, or failed. Rows whose process the search's time limit ended do not count."""
        return tuple(row for row in self.rows if row.state not in (UNTRIED, SUGGESTED))
