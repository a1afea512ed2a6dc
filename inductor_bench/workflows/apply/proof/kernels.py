"""What became of each winner in the program, and what it saves of the device's time in the profiled steps."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....messages.pins import PINNED, PinnedProcess, PinState
from ....records.retunes.pins import LibraryPin
from ....records.retunes.verification import DROPPED, UNPINNABLE, AppliedKernel
from ....records.tuning import Config
from ....trace.program.durations import StepDurations
from ..pins import PinnedRun, Unpinned

_NUMBER = re.compile(r"_\d+$")


def savings_by_name(flags: Sequence[bool], durations: Sequence[StepDurations]) -> dict[str, float | None]:
    """The device seconds per step that the kernels of each name save; medians over the steps.

    A name ends in a number that shifts where the graph's code differs. Where names that differ only in this number are
    not the same on both sides, the saving of each is ``None``.

    Args:
        flags: whether each step ran the pins.
        durations: the durations of these steps.
    """
    own = [step.by_name for tuned, step in zip(flags, durations, strict=False) if not tuned]
    tuned = [step.by_name for tuned, step in zip(flags, durations, strict=False) if tuned]
    if not own or not tuned:
        return {}
    in_own, in_tuned = ({name for step in side for name in step} for side in (own, tuned))
    renumbered = {_without_number(name) for name in in_own ^ in_tuned}
    return {
        name: None
        if _without_number(name) in renumbered
        else statistics.median(step.get(name, 0.0) for step in own)
        - statistics.median(step.get(name, 0.0) for step in tuned)
        for name in in_own | in_tuned
    }


def _without_number(name: str) -> str:
    return _NUMBER.sub("", name)


def savings_by_kernel(processes: Sequence[PinnedProcess], by_name: Mapping[str, float | None]) -> dict[str, float]:
    """The seconds per step that each pinned kernel saves, by the kernel's id.

    A kernel may have several names, one in each graph; one that no profile shows did not run. A kernel is left out
    where the saving of one of its names is unknown, and where it shares a name with another pinned kernel, as those of
    two graphs may: a profile does not tell which one saves what.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for state in (state for process in processes for state in process.states):
        if state.event_name:
            names[state.kernel_id].add(state.event_name)
    owners = Counter(name for own in names.values() for name in own)
    found = {}
    for kernel_id, own in names.items():
        savings = [by_name[name] for name in own if name in by_name]
        known = [saving for saving in savings if saving is not None]
        if known and len(known) == len(savings) and all(owners[name] == 1 for name in own):
            found[kernel_id] = sum(known)
    return found


def describe_kernels(
    pinned: PinnedRun, states: Mapping[str, PinState], dropped: Sequence[str], savings: Mapping[str, float]
) -> tuple[AppliedKernel, ...]:
    """Every winner in the program, the largest projection first. Without a RUN those that the program has.

    What kernels that share a pin save each is not known.
    """
    library = [pin.kernel_id for pin in pinned.pins.library_pins]
    absorbs = any(state.kernel_id in library and state.state == PINNED for state in states.values())
    missing = f"{NO_SUCH_KERNEL}{ABSORBED if absorbs else ''}"
    found = []
    for name, kernel_id, pin in pinned.pinned:
        predicted_s, state = pinned.predicted_of(kernel_id), states.get(pin.kernel_id)
        if state is None and not pinned.rows and pin.kernel_id not in dropped:
            continue  # the pins of other programs, too
        one = AppliedKernel(name, kernel_id, pin.config, "missing", missing, predicted_s)
        if pin.kernel_id in dropped:
            one = replace(one, state=DROPPED, reason=CHANGES_OUTPUTS)
        elif state is not None:
            saving_s = savings.get(pin.kernel_id) if pin.kernel_id not in pinned.twins else None
            own = state.own_config if _differs(state.own_config, pinned.own_configs.get(kernel_id, {})) else {}
            one = replace(one, state=state.state, reason=state.reason, saving_s=saving_s, own_config=own)
        found.append(one)
    found += map(describe_unpinned, pinned.unpinned)
    return tuple(sorted(found, key=lambda one: -one.predicted_s))


def _differs(config: Config, other: Config) -> bool:
    """Whether two configurations differ in what both of them name."""
    return any(config[name] != other[name] for name in config.keys() & other.keys())


def describe_unpinned(left: Unpinned) -> AppliedKernel:
    """A winner that cannot be pinned."""
    return AppliedKernel(left.row.name, left.row.kernel_id, {}, UNPINNABLE, left.reason, left.row.saving_s or 0.0)


NOT_COMPARED = "outputs were compared kernel by kernel only"
CHANGES_OUTPUTS = "its config changes the outputs of its graph, or fails in it"
NO_SUCH_KERNEL = (
    "the program compiled no such kernel: it uses other options or sizes than the RUN's, or did not come to that part"
)


ABSORBED = "; or the choice of a library call, which runs here, computes it, too"


def library_calls(pinned: PinnedRun) -> set[str]:
    """The ids of the winners that are library calls with a pin."""
    return {one.kernel_id for one in pinned.pinned if isinstance(one.pin, LibraryPin)}


def replaced_calls(pinned: PinnedRun, kernels: Sequence[AppliedKernel]) -> list[AppliedKernel]:
    """The library calls among the kernels that run their choice."""
    library = library_calls(pinned)
    return [one for one in kernels if one.kernel_id in library and one.state == PINNED]


def sum_predicted(kernels: Sequence[AppliedKernel]) -> float:
    """The projected saving of the kernels that run their pins, in seconds per step."""
    return sum(kernel.predicted_s for kernel in kernels if kernel.state == PINNED)
