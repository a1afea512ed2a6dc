"""The messages between ``optimize`` and the user's program: which variants of it to try, and what each of them did.

They are exchanged in files, because the output streams belong to the user's program. The parent writes one
:class:`VariantsRequest`; each process writes :class:`TriedVariants` as ``<pid>.variants.json`` into the folder of the
capture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..records.code import MachineLoad
from ..records.optimization import StepDigest

TRIED = ".variants.json"
"""The suffix of the file of :class:`TriedVariants`, after the process's id."""

JOURNAL = ".variants.journal"
"""The suffix, after the process's id, of the file that says what a process is about to do for the first time. Its last
line is ``<slug> <what>``, or ``-`` while the original runs. If a process dies, this line names the culprit.
"""

ORIGINAL = 0
"""The number of the unchanged program. The variants of a request have the numbers from 1 on."""

INCOMPARABLE = 1e9
"""The value of an error that has no number: the shapes differ, or infinities are in different elements."""


@dataclass(frozen=True)
class VariantSwitch:
    """One change that is made from outside of the program.

    What ``setting`` names depends on the kind:

    - ``inductor``, ``dynamo``: an option of ``torch._inductor.config`` for one compiled graph, of
      ``torch._dynamo.config``
    - ``torch``: an attribute's path, such as ``torch.backends.cuda.matmul.allow_tf32``
    - ``optimizer``: a key of a parameter group: ``fused``, ``foreach``, ``capturable``; or ``compiled``, for its step
    - ``function``: a function that is compiled: ``FILE:LINE:NAME`` with a line within it, or its dotted path
    - ``attention``: ``backends``; the value has names of ``SDPBackend`` in their order, separated by commas
    - ``layout``: ``channels_last`` of compiled modules
    - ``loader``, ``compile``: an argument of ``torch.utils.data.DataLoader``, of ``torch.compile``
    - ``environment``: a variable, which the parent sets
    - ``pins``: the folder of a retune's pins, which the parent sets
    """

    kind: str  # one of the kinds of ``records.optimization``
    setting: str
    value: Any = None  # a bool, whole number, number, text or None


@dataclass(frozen=True)
class ProgramVariant:
    """The program with some changes."""

    slug: str  # its name, unique in a request
    switches: tuple[VariantSwitch, ...] = ()  # none for the original
    is_placebo: bool = False  # the original, compiled once more under another cache key


@dataclass(frozen=True)
class VariantsRequest:
    """The variants that a process tries."""

    variants: tuple[ProgramVariant, ...]  # beside the original, which is always number 0
    alternates: bool  # in one process, in turn; else the one variant holds from the process's start
    timed_s: float = 3.0  # seconds of timed steps of each variant
    least: int = 24  # the minimum number of timed steps of each variant
    most: int = 400  # the maximum number of timed steps of each variant
    checks: bool = True  # whether outputs and gradients are compared before anything is timed
    losses: int = 0  # the number of optimizer steps whose gradients and loss are kept
    only_compiles: bool = False  # whether its variants are compiled, and nothing is compared and timed


@dataclass(frozen=True)
class VariantSample:
    """One timed step."""

    variant: int  # its number
    time_s: float  # on the device's clock if there is one
    place: int  # its place among all steps from the first timed one on


@dataclass(frozen=True)
class CheckedCallable:
    """The outputs and gradients of one compiled callable in one variant, against those of the original."""

    variant: int  # its number
    graph: str  # the name of the callable: Dynamo's number of the frame and compilation
    outputs: int = 0  # the number of compared tensors, with inputs that the callable changes
    gradients: int = 0  # the number of compared gradients of inputs and parameters
    worst: float = 0.0  # the largest difference as a multiple of what is tolerated; at most ``INCOMPARABLE``
    own: float = 0.0  # the same of the original against itself
    reason: str = ""  # why it differs, or why it was not compared; empty if it agrees
    where: str = ""  # the tensor that differs most: ``output 3``, ``gradient of input 5``
    is_compared: bool = True  # whether it was compared


@dataclass(frozen=True)
class VariantState:
    """What one variant needed, and what became of it."""

    variant: int  # its number; 0 is the original
    compile_s: float = 0.0  # seconds in which its graphs were compiled, backward graphs included
    peak_memory_bytes: int | None = None  # the most that torch allocated in its steps
    applied: tuple[str, ...] = ()  # the settings that took effect
    refused: tuple[str, ...] = ()  # those that did not, each with its reason: ``fused: …``
    failure: str = ""  # why it was given up; empty if it was not
    graphs: int = 0  # the number of graphs that were compiled for it


@dataclass(frozen=True)
class TriedVariants:
    """What one process found."""

    pid: int
    device: str  # the type of the device
    state: str  # as in ``ComparedSteps``
    rank: int | None = None  # of the process; ``None`` if no launcher says it
    ranks: int = 1  # the number of ranks on this machine, as the launcher says
    world: int = 1  # the number of ranks on all machines
    begin: int | None = None  # the number of the boundary from which the variants change; ``None`` before that is known
    # places of the schedule, the first one that it saw and the last one, each with the number of collectives that the
    # process had begun in its default group; empty if it has none
    collectives: tuple[tuple[int, int], ...] = ()
    source: str = ""  # what delimits the steps, as in ``ObservedSteps``
    samples: tuple[VariantSample, ...] = ()  # the timed steps in order
    checks: tuple[CheckedCallable, ...] = ()
    variants: tuple[VariantState, ...] = ()  # by their numbers, with the original first
    digests: tuple[StepDigest, ...] = ()  # at most ``losses`` of the request
    notes: tuple[str, ...] = ()  # what limits the figures
    load: MachineLoad | None = None  # the machine's load from the first timed steps on; ``None`` before them
    error: str = ""  # the reason of a failure of the whole measurement
    counts: dict[str, int] = field(default_factory=dict)  # of Dynamo: frames, graphs, breaks, recompilations
