"""A finding, and what the rules share: a run's figures, phrases, the bottleneck, and the command to type again."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ... import units
from ...devices.protocol import Device
from ...devices.table import find_device
from ...records.base import Category
from ...records.module import Kernel, ModuleRecord
from ...records.request import BreakdownRequest, ModesRequest, RetuneRequest
from ...records.request_fields import PROGRAMS, list_option_fields, list_option_words
from ...records.run import Part, Prediction, ProgramChange, Run
from ..step_costs import Cost, compute_cost, compute_weight_s, compute_whole_time_s, find_step

# A finding: one statement about a run. The functions that make findings are in ``rule_table.FILES``.


ADVICE, CAUTION, NOTE, FINE = "advice", "caution", "note", "fine"
"""The levels, in the order in which findings are listed."""


class KernelPlace(NamedTuple):
    """A kernel of one graph: the graph's slug and the kernel's full name."""

    slug: str
    name: str


@dataclass(frozen=True)
class RemovedWork:
    """What the step would lose if the user follows a finding. The simulation computes how long the step then takes."""

    kernels: tuple[tuple[KernelPlace, float], ...] = ()  # the share of each kernel's time that goes, 0 to 1
    parts: tuple[Part, ...] = ()  # working parts of the step that go
    joined: tuple[Part, ...] = ()  # working parts of which one launch would do all the work
    idle: tuple[Part, ...] = ()  # idle parts whose host work goes
    graphs: tuple[str, ...] = ()  # slugs of graphs of which one launch would replay each call
    gaps: bool = False  # the gaps between works that were launched in time go


@dataclass(frozen=True)
class Finding:
    """One statement about the program, derived from the record."""

    kind: str  # a fixed name, for programs that read findings
    text: str  # a whole sentence without a full stop. It names graphs; the kernels are in ``kernels``.
    modules: tuple[str, ...] = ()  # slugs of the graphs concerned; empty for a finding about the whole run
    # the kernels concerned, the most important first, so that a table can refer to its rows
    kernels: tuple[KernelPlace, ...] = ()
    # ``advice`` (the user can act on it), ``caution`` (something is wrong, or a figure is less certain than it looks),
    # ``note`` (additional information) or ``fine`` (a check without a problem)
    level: str = ADVICE
    # largest possible saving in the captured program, in seconds. It orders advice that was not simulated.
    gain_s: float = 0.0
    assumed: RemovedWork = RemovedWork()  # what to simulate; nothing if no simulation can answer
    changes: tuple[ProgramChange, ...] = ()  # the proposed changes; each can be made without the others
    prediction: Prediction | None = None  # what the changes would save of the step; ``None`` if that was not simulated
    about: str = ""  # what distinguishes findings of one kind in one run; empty if there is only one

    @property
    def id(self) -> str:
        """Returns an id of the kind and the subject.

        It is the same in each run, whatever kernels and parts the finding names.
        """
        return f"{self.kind}-{hash_text(remove_figures(self.about))}" if self.about else self.kind

    @property
    def key(self) -> str:
        """Returns the key of its prediction in the record. The key changes with the kernels and parts concerned."""
        assumed = self.assumed
        parts = (*assumed.parts, *assumed.joined, *assumed.idle)
        subject = [self.kind, *self.modules, *(place.name for place in self.kernels), *assumed.graphs]
        subject += [f"{part.kind} {part.label} {part.graph or ''}" for part in parts]
        return f"{self.kind}-{hash_text(repr(subject))}"


_FIGURE = r"\d[\d.,]*(?: ?(?:[µmn]?s|[kMGT]i?B|%)\b)?"
"""A figure with its unit."""


def remove_figures(text: str) -> str:
    """Removes figures and their units from a text, so that the text is the same in each run of a program."""
    return re.sub(_FIGURE, "", text)


def hash_text(text: str) -> str:
    """Eight characters that stand for a text in an id."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]


# Formats phrases that findings share: lists, plurals, names of graphs, short paths.


_BEFORE_LINE = re.compile(r"(?<![^\s:])[^\s:]+(?=:\d)")
"""A word before a line number. A match begins only at the start of a word, so the search takes linear time."""

_OPENING = re.compile(r"""^["'`(\[{<,;=|]+|["'`(\[{<,;=|](?=/)""")
_FOLDER_AND_FILE = re.compile(r"(?<=[^/]/)/*(?P<tail>[^/]+/+[^/]+)$")


def join_words(words: list[str], most: int = 4, last: str = "and") -> str:
    """Joins words: ``a``, ``a and b``, ``a, b and c``, or ``a, b, c, d and 7 more`` for more than ``most`` words.

    ``last`` is the conjunction.
    """
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def plural(number: float, noun: str) -> str:
    """Returns the number with the noun in singular or plural: ``1 kernel``, ``2 kernels``, ``1 graph break``."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def join_labels(modules: Iterable[ModuleRecord]) -> str:
    """Joins the labels of the graphs in one phrase."""
    return join_words([module.label for module in modules])


def list_slugs(modules: Iterable[ModuleRecord]) -> tuple[str, ...]:
    """Returns the distinct slugs of the graphs."""
    return tuple(dict.fromkeys(module.slug for module in modules))


def describe_replay(module: ModuleRecord) -> str:
    """Compares a replay as one CUDA graph with the wall time: ``1.20 ms instead of 1.50 ms (forward)``."""
    times = module.times
    return f"{units.seconds(times.graph_time_s)} instead of {units.seconds(times.wall_time_s)} ({module.label})"


def shorten_paths(text: str) -> str:
    """Shortens each path with a line number in ``text`` to its folder and file: ``to/file.py:12``. Keeps addresses."""
    return _BEFORE_LINE.sub(lambda match: _shorten_path(match[0]), text)


def _shorten_path(word: str) -> str:
    """Shortens the path at the end of a word, and keeps the quotes and brackets before it."""
    begin = max((match.end() for match in _OPENING.finditer(word)), default=0)
    found = None if word.startswith("//", begin) else _FOLDER_AND_FILE.search(word, begin)
    return word[:begin] + found["tail"] if found else word


# Finds what limits a graph besides its kernels: launches, the host, or gaps between kernels.


LAUNCH_BOUND = 0.7  # busy share below which a graph is bound by its launches or its host
GAPS = 0.9  # busy share below which idle gaps are reported
LONG_WAIT_S = 100e-6  # idle seconds per launch above which the host is slow, because a launch takes less
GRAPH_GAIN = 0.98  # share of the wall time below which a CUDA graph replay is reported as a gain
HOST_SHARE = 0.15  # share of a CPU graph's wall time outside kernels from which it is reported

WAITS_FOR_HOST = ("launch-bound", "host-bound")
"""Bottlenecks with which a faster kernel does not shorten the run."""


def find_bottleneck(module: ModuleRecord) -> str:
    """Returns the bottleneck of a graph outside its kernels, as far as its own run tells that of the program's calls.

    Returns:
        ``launch-bound``, ``host-bound``, ``cuda-graph`` (a replay as one CUDA graph is faster), ``gaps`` or, on a CPU,
        ``host-share``; an empty string if there is no such bottleneck, the times are unknown, or the program
        compiles it for CUDA graphs.
    """
    times = module.times
    if not times.wall_time_s or times.busy_share is None or module.cuda_graphs:
        return ""
    if find_device(module.device).runs_on_host:
        return "host-share" if 1 - times.busy_share >= HOST_SHARE else ""
    if times.busy_share < LAUNCH_BOUND:
        return "host-bound" if compute_idle_per_launch(module) > LONG_WAIT_S else "launch-bound"
    if replay_gain_s(module) > (1 - GRAPH_GAIN) * times.wall_time_s:
        return "cuda-graph"
    return "gaps" if times.busy_share < GAPS else ""


def replay_gain_s(module: ModuleRecord) -> float:
    """Seconds that one iteration saves when replayed as one CUDA graph; 0 if the replay is slower or unmeasured."""
    times = module.times
    if not times.graph_time_s or not times.wall_time_s:
        return 0.0
    return max(0.0, times.wall_time_s - times.graph_time_s)


def compute_idle_s(module: ModuleRecord) -> float:
    """Seconds of one iteration in which the device is idle."""
    return (module.times.wall_time_s or 0.0) * max(0.0, 1 - (module.times.busy_share or 0.0))


def compute_idle_per_launch(module: ModuleRecord) -> float:
    """Idle seconds of one iteration divided by the number of its launches."""
    return compute_idle_s(module) / module.launches if module.launches else 0.0


# The input of the rules: a run, its kernels with their graphs, and the time that shares refer to.


LEAST_SHARE = 0.01  # smallest time or gain of a finding, as a share of the whole time
LEAST_GAIN = 0.0005  # smallest gain of one kernel in a finding, as a share of the whole time
FAR_FROM_ROOF = 0.7  # share of peak below which a kernel is far from its roof
SHORT_S = 5e-6  # seconds per call below which a kernel is short
SHORT_TIME = 0.1  # share of the whole time from which short or unsteady kernels matter

LIBRARY = (Category.EXTERN_CONV, Category.EXTERN_GEMM, Category.EXTERN_ATTENTION, Category.EXTERN_ATEN)
UNTUNABLE = (*LIBRARY, Category.COPY, Category.MEMSET, Category.COLLECTIVE, Category.OTHER)
PRODUCTS = LIBRARY[:3]
"""Categories of library calls that multiply matrices."""

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
TUNING_MODES = ("max-autotune", "max-autotune-no-cudagraphs")

_ADDS = ("aten.addmm", "aten.baddbmm")
"""Matrix products for which cuBLAS adds to what their output already holds."""

_LAYOUT_COPIES = ("direct_copy_kernel", "tensorTransform", "nchwToNhwc", "nhwcToNchw")


@dataclass(frozen=True)
class CostedKernel:
    """A kernel, its graph, and its cost in the step or in one iteration of its graph."""

    module: ModuleRecord
    kernel: Kernel
    cost: Cost

    @property
    def device(self) -> Device:
        return find_device(self.module.device)

    @property
    def place(self) -> KernelPlace:
        return KernelPlace(self.module.slug, self.kernel.name)


Rows = list[CostedKernel]


@dataclass(frozen=True)
class WholeTime:
    """The time that shares refer to, in seconds."""

    time_s: float

    def part(self, seconds: float) -> float:
        """Returns the share (0 to 1) of a time in the whole."""
        return seconds / self.time_s if self.time_s else 0.0

    def format(self, seconds: float) -> str:
        """Returns the time with its share: ``1.20 ms (3.4%)``."""
        return f"{units.seconds(seconds)} ({units.percent(self.part(seconds))})"


@dataclass(frozen=True)
class RunEvidence:
    """A run with the values that several rules derive from it."""

    run: Run

    @cached_property
    def in_step(self) -> bool:
        """Whether costs are per step of the program.

        Then a graph's run outside the program says nothing about waiting.
        """
        return find_step(self.run) is not None

    @cached_property
    def whole(self) -> WholeTime:
        return WholeTime(compute_whole_time_s(self.run))

    @cached_property
    def rows(self) -> Rows:
        """Returns the kernels of compiled graphs, the most expensive first. Eager work is only in ``Program.parts``.

        If the program's step is known, only the kernels that it runs.
        """
        rows = [
            CostedKernel(module, kernel, compute_cost(self.run, module, kernel))
            for module in self.run.modules
            for kernel in module.kernels
        ]
        if self.in_step:
            rows = [row for row in rows if row.cost.time_s]
        return sorted(rows, key=lambda row: -row.cost.time_s)

    @cached_property
    def critical_rows(self) -> Rows:
        """Returns the kernels whose time determines the time of the run, the most expensive first.

        They belong to graphs in which the device does not wait for the host. If the program's step is known, returns
        all its kernels; ``rule_table`` says which advice holds for a host-bound step.
        """
        return (
            self.rows
            if self.in_step
            else [row for row in self.rows if find_bottleneck(row.module) not in WAITS_FOR_HOST]
        )

    @cached_property
    def _group_by_bottleneck(self) -> dict[str, list[ModuleRecord]]:
        groups: dict[str, list[ModuleRecord]] = {}
        if self.in_step:
            return groups
        for module in sorted(self.run.modules, key=lambda module: compute_weight_s(self.run, module), reverse=True):
            groups.setdefault(find_bottleneck(module), []).append(module)
        return groups

    def graphs_with(self, kind: str) -> list[ModuleRecord]:
        """The graphs with this bottleneck, the most expensive first."""
        return self._group_by_bottleneck.get(kind, [])


class Rule(NamedTuple):
    """A function that reports findings, with the kinds that it can report. Its row stands at the end of its file."""

    kinds: tuple[str, ...]
    find: Callable[[RunEvidence], Iterator[Finding]]
    names_host_work: bool = False  # whether it names what the device waits for; ``host-pace`` is then left out
    is_measurement: bool = False  # whether it is about the measurement, or only divides the step


def sum_times(rows: Iterable[CostedKernel]) -> float:
    """Sums the device times of the kernels: seconds of the step, or of one iteration of each graph."""
    return sum(row.cost.time_s for row in rows)


def sum_gain_limits(rows: Iterable[CostedKernel]) -> float:
    """Sums the gain limits of the kernels: seconds of the step, or of one iteration of each graph."""
    return sum(row.cost.gain_limit_s or 0.0 for row in rows)


def select_kernels_worth_naming(evidence: RunEvidence, rows: Rows) -> tuple[Rows, str]:
    """Returns the kernels that could each save at least :data:`LEAST_GAIN`, and a sentence about the others, if any.

    The sentence follows the text of a finding, which has no full stop.
    """
    shares = [evidence.whole.part(row.cost.gain_limit_s or 0.0) for row in rows]
    named = [row for row, share in zip(rows, shares, strict=True) if share >= LEAST_GAIN]
    others = [row for row, share in zip(rows, shares, strict=True) if share < LEAST_GAIN]
    if not others:
        return named, ""
    each = f"less than {100 * LEAST_GAIN:g}% of {'a step' if evidence.in_step else 'the whole time'}"
    if len(others) == 1:
        return named, f". 1 more kernel is left out, because it could save {each}"
    together = evidence.whole.format(sum_gain_limits(others))
    return named, f". {len(others)} more kernels are left out, because each could save {each}: {together} together"


def is_layout_copy(kernel: Kernel) -> bool:
    """Whether the kernel of a library call rearranges or converts a tensor."""
    return kernel.category in PRODUCTS and any(mark in kernel.name for mark in _LAYOUT_COPIES)


def is_addend_copy(kernel: Kernel) -> bool:
    """Whether the kernel copies the addend of a matrix product into the product's output.

    Copies of the product's matrices are never contiguous, so they are kernels and not memory copies. ``addmm`` copies
    matrices with an inner operator, which the shapes show, and its addend without one.
    """
    if kernel.category is Category.COPY:
        return "DtoD" in kernel.name and kernel.operator in _ADDS
    shapes = [group.shapes for group in kernel.shapes]
    own = bool(shapes) and all(text and not text.startswith("copy_ ") for text in shapes)
    return kernel.operator == "aten.addmm" and "direct_copy_kernel" in kernel.name and own


def make_finding(
    kind: str,
    text: str,
    rows: Rows,
    level: str = ADVICE,
    saves_s: Callable[[CostedKernel], float] | None = None,
    changes: tuple[ProgramChange, ...] = (),
) -> Finding:
    """Makes a finding about some kernels and their graphs.

    Args:
        kind: a fixed name.
        text: the sentence.
        rows: the kernels.
        level: the level.
        saves_s: returns the seconds of a row's cost that the change can save at most.
        changes: what to change.
    """
    saved = [(row, saves_s(row)) for row in rows] if saves_s is not None else []
    shares = [(row.place, min(1.0, seconds / row.cost.time_s)) for row, seconds in saved if row.cost.time_s]
    return Finding(
        kind,
        text,
        list_slugs(row.module for row in rows),
        tuple(row.place for row in rows),
        level,
        sum(seconds * row.cost.repeats for row, seconds in saved),
        RemovedWork(kernels=tuple(shares)),
        changes,
    )


def assume_without_kernel(row: CostedKernel) -> float:
    """All seconds of a row's cost."""
    return row.cost.time_s


def assume_at_roof(row: CostedKernel) -> float:
    """Returns the seconds of a row's cost that the kernel would save at its roof."""
    return row.cost.gain_limit_s or 0.0


def is_max_autotuned(run: Run, rows: Iterable[CostedKernel]) -> bool:
    """Whether max-autotune has already chosen the configs of all these kernels."""
    return run.request.mode in TUNING_MODES or all(row.module.max_autotune for row in rows)


# Rewrites the command of a run with other options, so that the user can run it again.


_OPTIONS = {one.name: one.option for one in list_option_fields(BreakdownRequest)}

SHARED = {
    name: "/" in one.option.names[-1]
    for one in list_option_fields(ModesRequest)
    if one.name in _OPTIONS and one.name not in ("output", "force")
    for name in one.option.names[-1].split("/")
}
"""The options that ``breakdown`` and ``modes`` both have, and whether they are switches without a value."""


def repeat_command(run: Run, *, elsewhere: bool = False, **changes: object) -> str:
    """Returns the command of a run with other options, or an empty string if the command cannot be parsed.

    Args:
        run: the record that holds the command.
        elsewhere: let the new run write a new folder; otherwise it replaces the folder of ``run``.
        changes: other values of fields of ``BreakdownRequest`` that are options.
    """
    begin, options, rest = _split(run)
    if not begin:
        return ""
    for name, value in changes.items():
        options = options if isinstance(value, bool) else _leave_out_option(options, _OPTIONS[name].name)
    if elsewhere:
        for dropped in _OPTIONS["output"].names:
            options = _leave_out_option(options, dropped)
        options = [word for word in options if word != "--force"]
    elif any(word == "-o" or word.startswith("--out") for word in options) and "--force" not in options:
        options = ["--force", *options]
    # The new options stand between the target and the arguments of the program.
    added = [word for name, value in changes.items() for word in _OPTIONS[name].words(value)]
    return shlex.join([*begin, *options, *added, *rest])


def write_retune_command(place: str, retune: RetuneRequest) -> str:
    """Returns the command that retunes kernels of a RUN. ``place`` is the RUN's path, quoted for the shell."""
    return f"inductor-bench breakdown {place} {shlex.join(list_option_words(retune))}"


def write_modes_command(run: Run, setting: str = "", modes: Sequence[str] = ()) -> str:
    """Returns the command that measures a run's program with and without a setting, or in several modes.

    Empty if the run has no program, or its command cannot be parsed.
    """
    begin, options, rest = _split(run)
    if not begin or run.request.kind not in PROGRAMS:
        return ""
    target = [] if run.request.kind == "command" else [run.request.target]
    mode = run.request.mode or "default"
    compared = ["--mode", mode, "--with", f"{mode},{setting}"] if setting else []
    compared += [word for one in modes for word in ("--mode", one)]
    return shlex.join([*begin[:-1], "modes", *target, *_keep_shared_options(options), *compared, *rest])


def _split(run: Run) -> tuple[list[str], list[str], list[str]]:
    """Splits a run's command: words up to the verb, target and options, and words from ``--``; empty if unknown."""
    try:
        words = shlex.split(run.command)
    except ValueError:
        words = []
    if "breakdown" not in words[:3] or not words[0].endswith("inductor-bench"):
        return [], [], []
    verb = words.index("breakdown") + 1
    end = words.index("--") if "--" in words else len(words)
    return words[:verb], words[verb:end], words[end:]


def _keep_shared_options(options: Sequence[str]) -> Iterator[str]:
    """Yields the options that ``modes`` has as well, with their values."""
    for place, word in enumerate(options):
        name, _, value = word.partition("=")
        if name in SHARED:
            yield word
        if not SHARED.get(name, True) and not value:
            yield from options[place + 1 : place + 2]


def _leave_out_option(words: list[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def write_apply_command(place: str, program: str, *options: str) -> str:
    """The command that runs a program with the configs of a RUN.

    Args:
        place: the RUN, as a shell reads it.
        program: the command line of the program; empty for a placeholder.
        options: options of ``apply``.
    """
    return " ".join(["inductor-bench apply", place, *options, "--", program or "python train.py"])


def list_program_words(request: BreakdownRequest) -> str:
    """The command line of a request's program; empty if it is a factory, a named model or no program."""
    if request.kind == "command":
        return shlex.join(request.arguments)
    if request.kind == "script":
        return shlex.join([request.python or "python", request.target, *request.arguments])
    return ""
