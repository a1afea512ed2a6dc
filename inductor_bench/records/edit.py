"""The edited source of a kernel, and the verdict on it: whether it is right, and whether it is faster, by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import IN_RECORD, Inline
from .comparison import Pairing
from .request import KernelRequest
from .retune import Ratio, Resources, Timing

REFUSED = "refused"

PASSED, SKIPPED = "passed", "skipped"
"""The outcomes of a check beside ``refused``."""


@dataclass(frozen=True)
class EditCheck:
    """One check of an edited kernel: calls with one kind of input values, and one content of the output buffers."""

    # the values of the inputs: ``recorded``, ``other`` (drawn anew), ``nudged`` (the recorded ones with a few elements
    # changed), ``rounded``, ``large``, ``small``, ``zero``, ``infinite`` or ``nan``
    values: str
    # what the buffers that are only written held before the call: ``nan``, ``pattern``, or ``stale`` (the results of
    # the previous call)
    fill: str
    launch: int  # the number of the launch, from 0; the launch with most calls has number 0
    when: str  # ``first``, ``repeated`` (the same call again) or ``after`` (after it was timed)
    outcome: str  # ``passed``, ``refused``, or ``skipped`` (the original cannot run with these values)
    words: str = ""  # why it was refused or skipped
    # the largest error of an element, as a share of the element and of the root mean square of its tensor; ``None``
    # without floating-point results
    error: float | None = None
    original_error: float | None = None  # that error of the original, if the results in float64 are known
    limit: float | None = None  # the largest error that is not refused
    # what the result was compared with: ``float64`` (the same computation in float64) or ``original`` (the original
    # kernel)
    against: str = ""


@dataclass(frozen=True)
class EditHashes:
    """SHA-256 hashes of what the verdict is about, in hexadecimal digits."""

    source: str  # the edited source
    original: str  # the original source
    inputs: str  # the memory before each call, in order
    tool: str  # the files of this tool that run, time and judge kernels
    device: str  # the facts about the device and its driver


@dataclass(frozen=True)
class EditVerdict:
    """The verdict on an edited kernel that ran without its program."""

    file: str  # the path of the file
    kernel: str  # the kernel's name in its module
    kernel_id: str  # the id of the original
    language: str  # ``triton`` or ``cpp``
    device: str  # the name of the device
    torch: str  # the version of torch
    triton: str | None  # the version of Triton; ``None`` for C++
    tool_version: str  # the version of inductor-bench
    # ``faster``, ``slower``, ``same``, ``undecided``, or ``refused`` for a kernel that is wrong, or cannot be judged
    verdict: str
    hashes: EditHashes  # what the verdict is about
    changed: bool = True  # whether the edited source differs from the original
    # the id of the reason of a refusal: ``no-compile``, ``crashed``, ``hung``, ``raised``, ``not-written``, ``stale``,
    # ``outside``, ``input-changed``, ``special-values``, ``wrong``, ``precision``, ``not-repeatable``, ``clock`` or
    # ``above-roof``
    reason: str = ""
    words: str = ""  # the reason in words
    hint: str = ""  # what to do about it
    checks: tuple[EditCheck, ...] = ()  # the checks, in order
    launches: int = 1  # the number of different launches with which it was checked
    state: str = "cold"  # the times that were compared: ``cold`` or ``warm``
    original: Timing | None = None  # the times of the original; ``None`` if they were not timed
    edited: Timing | None = None  # the times of the edited kernel, taken in turn
    ratio: Ratio | None = None  # the edited kernel's time divided by the original's
    method: str = ""  # the method of timing
    moved_bytes: int | None = None  # bytes that one call must move
    # the largest rate at which the device can move these bytes, in bytes per second; ``None`` if it is unknown
    roof: float | None = None
    resources: Inline[Resources] = field(default_factory=Resources)  # the resources that the edited kernel occupies
    notes: tuple[str, ...] = ()  # what limits this verdict, in words
    run: str = ""  # the RUN that the file was written from, if it is still there
    program: str = ""  # the command line of that RUN's program; empty without one
    # why a faster median proves nothing, so that the verdict is undecided whatever the number of pairs; else empty
    doubt: str = ""
    # the request of the check; ``None`` for a verdict that was read from a file
    request: KernelRequest | None = field(default=None, metadata={IN_RECORD: False})

    @property
    def pair(self) -> Pairing:
        """The times of both kernels as a pair, the original first."""
        original_s, edited_s = (timing.median_s if timing else None for timing in (self.original, self.edited))
        return Pairing({}, {}, original_s, edited_s, self.ratio, "" if self.verdict == REFUSED else self.verdict)


@dataclass(frozen=True)
class WrittenEdit:
    """A file that was written for an edit of a kernel."""

    file: str  # the path of the file
    kernel: str  # the kernel's name in its module
    kernel_id: str  # the id of the kernel
    language: str  # ``triton`` or ``cpp``
    launches: int  # the number of different launches with which an edit is checked
    has_reference: bool = False  # whether the file has a function that computes the same in PyTorch
    values: str = ""  # the path of the file with the recorded values beside it; empty without any


TRITON, CPP = "triton", "cpp"
"""The languages of kernels that can be edited."""


@dataclass(frozen=True)
class EditPin:
    """The edited source of one kernel."""

    name: str  # of the kernel in the RUN
    # of the source that was edited, or of the calls: it is the same for every name and number of the kernel
    kernel_id: str
    family_id: str  # a hash that kernels of other sizes have, too
    language: str  # ``triton`` or ``cpp``
    source: str  # the edited text, as generated code passes it to its compiler
    file: str  # the path of the edited file, for people
    # for an edit that replaces calls: the id of each kernel that is called, or its operator; otherwise empty
    calls: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # what such a kernel takes: the names of the arguments, in C++ their types
    choice: tuple[str, ...] = ()  # what max-autotune chose for the source that was edited, if it is from a template

    @property
    def target(self) -> tuple[str, str]:
        """What a process knows the kernel by."""
        return self.language, self.kernel_id


def put_in_words(configs: int, edits: int) -> str:
    """What is put into a program: ``the configs``, ``the edit``, or ``the configs and the edits``, by their numbers."""
    edited = "the edit" if edits == 1 else "the edits"
    return f"the configs and {edited}" if configs and edits else edited if edits else "the configs"
