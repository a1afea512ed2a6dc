"""What the screen of a result says, for programs: its first line, parts, kernels, findings, and what to type next."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Category, Place, Slug
from .run import ProgramChange

SCHEMA_VERSION = 1
"""The version of all JSON that the tool prints. It is raised if a key changes its meaning or goes."""


@dataclass(frozen=True)
class SummaryPart:
    """A part of the program's step."""

    id: str  # the kind and a hash of the label, the place and the graph; for idle time without the line
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective``, ``copy`` or ``idle``
    label: str  # its name on the screen
    time_s: float  # seconds of the step
    share: float  # the share of the step, 0 to 1
    calls: float | None = None  # the number of its calls in a step; ``None`` for idle time
    place: str = ""  # the line or the module that it comes from, or how a graph is launched, in words


@dataclass(frozen=True)
class SummaryKernel:
    """A kernel with its cost in a step, or in one iteration of its graph if no step was profiled."""

    id: str  # a hash of its content
    number: int  # its number on the screen
    name: str  # its full name, for ``RUN#NAME``
    graph: Slug  # the slug of its graph
    category: Category  # its category
    calls: float  # the number of its calls
    time_s: float  # seconds of all calls
    share: float | None  # the share of the step or of the time of all graphs, 0 to 1; ``None`` if that is unknown
    bound: str  # the roof that is nearest: ``memory``, ``cache``, ``compute``, ``latency``, … or ``unknown``
    peak_share: float | None = None  # its share of that roof, 0 to 1; ``None`` if it is unknown
    gain_limit_s: float | None = None  # seconds that all calls would save at that roof, an upper bound
    step_saving_s: float | None = None  # what the step would save then, simulated; ``None`` without a simulation
    file: Place | None = None  # its standalone file in the RUN; ``None`` if it has none
    origin: str = ""  # the user's line and the operation, in words


@dataclass(frozen=True)
class SummaryFinding:
    """A statement about the program or the measurement."""

    # the kind; if a run may have several of it with a hash of what this one is about: an operator, a function, a reason
    id: str
    kind: str  # a fixed name; ``docs/findings.md`` has those of runs
    # ``advice`` (the user can act on it), ``caution`` (something is wrong, or a figure is less certain than it looks),
    # ``note`` (additional information) or ``fine`` (a check without a problem)
    level: str
    text: str  # the statement
    hint: str = ""  # what to do about it
    saving_s: float | None = None  # seconds that the step saves at most; ``None`` if that is unknown
    graphs: tuple[Slug, ...] = ()  # the slugs of the graphs that it is about
    kernels: tuple[str, ...] = ()  # the names of the kernels that it is about, the most important first
    changes: tuple[ProgramChange, ...] = ()  # what to change, each by itself
    command: str = ""  # the command that tries it; empty if no command does


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
    command: str  # in one piece, as a shell reads it
    why: str  # what it does


@dataclass(frozen=True)
class Summary:
    """What the screen of a result says."""

    headline: str  # the first line
    # the kind of a run's first line: ``step``, ``parts``, …, ``failed`` if nothing was measured; empty for another
    # result
    headline_id: str = ""
    folder: str = ""  # the folder of the result, as it was typed; empty if it has none
    failures: tuple[SummaryFailure, ...] = ()  # of a run, what failed, in the order of the record
    parts: tuple[SummaryPart, ...] = ()  # of a run, the parts of the step, the longest first
    kernels: tuple[SummaryKernel, ...] = ()  # of a run, the first kernels of its table
    findings: tuple[SummaryFinding, ...] = ()  # in the order of the screen
    next_commands: tuple[SummaryCommand, ...] = ()  # the most useful first
    # of the brief form, how many ``parts``, ``kernels``, ``findings`` and ``failures`` it leaves out
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ErrorReport:
    """Why a command did not do what was asked."""

    id: str  # one of those that ``docs/agents.md`` lists
    cause: str  # what happened, and why
    hint: str = ""  # what to do about it
    command: str = ""  # what to type next; empty if the hint is no command
    exit_code: int = 1  # that of the command


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool of ``inductor-bench mcp`` answers."""

    state: str  # ``done``, ``running``, ``stopped`` (it was interrupted; what it knows is here) or ``failed``
    job: int = 0  # the number of the job, for the tool ``job``; 0 if there is none
    command: str = ""  # the command line that does the same
    time_s: float = 0.0  # seconds since it began, or that it took
    progress: str = ""  # what it does now, in words; empty after its end
    exit_code: int | None = None  # that of the command; ``None`` while it is running
    verdict: str = ""  # ``passed``, ``slower`` or ``undecided``; empty if nothing was to be decided
    error: ErrorReport | None = None  # why it did not do what was asked; ``None`` if it did
    # what it found, in few words; ``None`` if the answer is a text, or nothing was found
    summary: Summary | None = None
    text: str = ""  # a page of the text that was asked for: of a table, a report or a kernel's file
    page: int = 0  # its number, from 1; 0 without a text
    pages: int = 0  # how many there are
