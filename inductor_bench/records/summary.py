"""The screen of a result as data for programs: its first line, parts, kernels, findings, and commands to type next."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Category, Place, Slug
from .retune import Ratio
from .run import ProgramChange

SCHEMA_VERSION = 1
"""The version of all JSON that the tool prints. It rises if a key changes its meaning or is removed."""


@dataclass(frozen=True)
class SummaryPart:
    """A part of the program's step."""

    id: str  # the kind and a hash of the label, the place and the graph; for idle time the place has no line
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective``, ``copy`` or ``idle``
    label: str  # the part's name on the screen
    time_s: float  # seconds of the step
    share: float  # the share of the step, 0 to 1
    calls: float | None = None  # the number of the part's calls in a step; ``None`` for idle time
    place: str = ""  # the line or the module that it comes from, or how a graph is launched, in words


@dataclass(frozen=True)
class SummaryKernel:
    """A kernel with its cost in a step, or in one iteration of its graph if no step was profiled."""

    id: str  # a hash of its content
    number: int  # the kernel's number on the screen
    name: str  # its full name, for ``RUN#NAME``
    graph: Slug  # the slug of its graph
    category: Category  # its category
    calls: float  # the number of its calls
    time_s: float  # seconds of all calls
    share: float | None  # the share of the step or of the time of all graphs, 0 to 1; ``None`` if that is unknown
    bound: str  # the roof that limits the kernel: ``memory``, ``cache``, ``compute``, ``latency``, … or ``unknown``
    peak_share: float | None = None  # the kernel's rate as a share of this roof, 0 to 1; ``None`` if it is unknown
    gain_limit_s: float | None = None  # seconds that all calls would save at this roof, an upper bound
    # what the step would save if the kernel ran at the roof, simulated; ``None`` without a simulation
    step_saving_s: float | None = None
    file: Place | None = None  # its standalone file in the RUN; ``None`` if it has none
    origin: str = ""  # the user's line and the operation, in words


@dataclass(frozen=True)
class SummaryFinding:
    """A statement about the program or the measurement."""

    # the kind; if a run may have several findings of this kind, also a hash of what it is about: an operator, a
    # function or a reason
    id: str
    kind: str  # a fixed name; ``docs/findings.md`` lists the names for runs
    # ``advice`` (the user can act on it), ``caution`` (something is wrong, or a figure is less certain than it looks),
    # ``note`` (additional information) or ``fine`` (a check without a problem)
    level: str
    text: str  # the statement
    hint: str = ""  # what to do about it
    saving_s: float | None = None  # seconds that the step would save at most; ``None`` if they are unknown
    graphs: tuple[Slug, ...] = ()  # the slugs of the graphs that it is about
    kernels: tuple[str, ...] = ()  # the names of the kernels that it is about, the most important first
    changes: tuple[ProgramChange, ...] = ()  # single changes, each made without the others
    command: str = ""  # the command that tries it; empty if no command does


@dataclass(frozen=True)
class SummaryApplied:
    """A kernel to which a proof gave an edit or a config, and what is known of the kernel outside the program."""

    name: str  # the kernel's name
    file: str = ""  # the file of the edit; empty for a config
    state: str = "pinned"  # as in the record: ``pinned`` if it runs what was put in
    # the device time per step of the kernels with its name, without what was put in; ``None`` if it was not measured:
    # only the profile of a GPU shows it
    before_s: float | None = None
    after_s: float | None = None  # that time with what was put in
    saving_s: float | None = None  # the difference, compared in pairs
    low_s: float | None = None  # lower end of the difference's interval; its range for whole processes
    high_s: float | None = None  # upper end
    # the edited kernel's time divided by the original's, from its last check; ``None`` without one
    alone: Ratio | None = None


@dataclass(frozen=True)
class SummaryFailure:
    """Something that failed, or a run that was stopped."""

    stage: str  # the step that failed: ``capture``, ``profile``, ``retune``, …
    # what happened: ``exit``, ``signal``, ``timeout``, ``interrupted``, ``memory``, ``nothing-compiled``, …
    kind: str
    text: str  # what happened, as the screen says it
    hint: str = ""  # what to do about it


@dataclass(frozen=True)
class SummaryCommand:
    """A command to type next."""

    id: str  # the verb and the options of the command, without values
    command: str  # the command line, quoted for a shell
    why: str  # what it does


@dataclass(frozen=True)
class Summary:
    """What the screen of a result says."""

    headline: str  # the first line
    # the kind of a run's first line: ``step``, ``parts``, …, ``failed`` if nothing was measured; empty for another
    # result
    headline_id: str = ""
    folder: str = ""  # the folder of the result, as it was typed; empty if it has none
    failures: tuple[SummaryFailure, ...] = ()  # for a run: what failed, in the order of the record
    parts: tuple[SummaryPart, ...] = ()  # for a run: the parts of the step, the longest first
    kernels: tuple[SummaryKernel, ...] = ()  # for a run: the first kernels of its table
    findings: tuple[SummaryFinding, ...] = ()  # in the order of the screen
    next_commands: tuple[SummaryCommand, ...] = ()  # the most useful first
    # for a proof: the kernels that got an edit or a config, those that save most first
    applied: tuple[SummaryApplied, ...] = ()
    # for ``--brief``: how many ``parts``, ``kernels``, ``applied``, ``findings`` and ``failures`` are left out
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ErrorReport:
    """Why a command did not do what was asked."""

    id: str  # one of the ids that ``docs/agents.md`` lists
    cause: str  # what happened, and why
    hint: str = ""  # what to do about it
    command: str = ""  # what to type next; empty if the hint is no command
    exit_code: int = 1  # the exit code of the command


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool of ``inductor-bench mcp`` answers."""

    # ``done``, ``running``, ``stopped`` (the job was interrupted; the answer has what was measured) or ``failed``
    state: str
    job: int = 0  # the number of the job, for the tool ``job``; 0 if there is none
    command: str = ""  # the command line that does the same
    time_s: float = 0.0  # seconds since the job began; after its end, seconds that it took
    progress: str = ""  # what the job does now, in words; empty after its end
    exit_code: int | None = None  # the exit code of the command; ``None`` while it is running
    verdict: str = ""  # ``passed``, ``slower`` or ``undecided``; empty if nothing was to be decided
    error: ErrorReport | None = None  # why the tool did not do what was asked; ``None`` if it did
    # the result in short; ``None`` if the answer is a text, or nothing was found
    summary: Summary | None = None
    text: str = ""  # a page of the text that was asked for: of a table, a report or a kernel's file
    page: int = 0  # the number of the page, from 1; 0 without a text
    pages: int = 0  # the number of pages
