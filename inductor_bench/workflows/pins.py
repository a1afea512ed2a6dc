"""Makes the pins of a RUN, and starts programs whose processes put them into their kernels."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..analysis.findings.finding import plural
from ..autotune.kernel_variants import fix_threads, make_variant_source
from ..devices.nvidia import NVIDIA
from ..devices.protocol import CPU
from ..devices.table import find_device
from ..errors import InductorBenchError, UsageError
from ..launch.worker import expose_package, join_paths
from ..messages.observed import APPLY, CAPTURE_FOLDER, OBSERVE, PINNED, PINS, PinnedProcess, Pins, PinState
from ..records.code import Launch
from ..records.edit import REFUSED, TRITON, EditPin
from ..records.retune import (
    FASTER,
    AnyPin,
    AppliedKernel,
    Config,
    CppPin,
    InputLayout,
    LibraryPin,
    Retune,
    RetuneRow,
    TritonPin,
    group_pins_by_kind,
    list_factors,
)
from ..records.run import Environment, Run
from ..source.calls import KernelKey, find_kernel_key
from ..source.edit_rules import find_template_choice
from ..source.edited import KernelEdit, read_edit
from ..source.generated_text import compute_family_id, remove_profiler_marks
from ..source.standalone_writer import read_recorded_facts, read_source
from ..source.stretch_texts import write_launched_source
from ..source.stretches import OUT
from ..store import codec
from ..store.caches import KnownTuning, TuningPlace, load_verdict, read_known_tunings
from ..store.files import read_json, read_text, write_message
from ..store.folder import RunFolder
from .modules.compile_environment import SITE

# Makes the pins of a RUN from its retunes and the standalone files of its kernels.


EXHAUSTIVE = "exhaustive"


@dataclass(frozen=True)
class Unpinned:
    """A retune with a faster config that cannot be pinned, and the reason."""

    row: RetuneRow
    reason: str


class WinnerPin(NamedTuple):
    """A winner and its pin, which may be the pin of a twin; or an edited kernel."""

    name: str
    kernel_id: str
    pin: AnyPin | EditPin


@dataclass(frozen=True)
class PinnedRun:
    """The faster configs and the edits of a RUN: as pins, and those that cannot be pinned."""

    pins: Pins  # those that can be pinned
    keys: dict[str, KernelKey]  # the keys of the Triton kernels, by the kernel's id
    rows: dict[str, RetuneRow]  # the retunes that won, by the kernel's id
    unpinned: tuple[Unpinned, ...] = ()  # the winners that cannot be pinned
    # the winners that share a pin, by the id of its kernel, from which a process cannot tell them
    twins: dict[str, list[RetuneRow]] = field(default_factory=dict)
    # the configurations that the winners ran in the RUN, by the kernel's id
    own_configs: dict[str, Config] = field(default_factory=dict)
    of_others: bool = False  # whether pins of other programs are included, whose kernels may be missing

    @property
    def pinned(self) -> tuple[WinnerPin, ...]:
        """Returns the winners that have a pin; a twin follows the kernel whose pin it shares."""
        found = []
        for pin in self.pins.all:
            found.append(WinnerPin(pin.name, pin.kernel_id, pin))
            found += [WinnerPin(row.name, row.kernel_id, pin) for row in self.twins.get(pin.kernel_id, ())]
        return tuple(found)

    @property
    def predicted_s(self) -> float:
        """Returns the projected saving of all pinned winners in seconds per step."""
        return sum(self.predicted_of(one.kernel_id) for one in self.pinned)

    def predicted_of(self, kernel_id: str) -> float:
        """Returns the projected saving of a kernel in seconds per step; 0 if the program's step is unknown."""
        row = self.rows.get(kernel_id)
        return (row.saving_s if row is not None else None) or 0.0


def list_winners(run: Run) -> dict[str, Retune]:
    """Returns the retunes with a config that is reliably faster, by the kernel's id; of several methods the fastest.

    A config that a verification dropped is used only if there is no other one.
    """
    found: dict[str, Retune] = {}
    for retune in sorted(run.retunes, key=lambda retune: retune.failure is not None):
        if retune.tuning is None or retune.tuning.verdict != FASTER or (retune.failure and retune.kernel_id in found):
            continue
        other = found.get(retune.kernel_id)
        if other is None or other.tuning is None or retune.tuning.speedup > other.tuning.speedup:
            found[retune.kernel_id] = retune
    return found


def make_pins(run: Run, folder: RunFolder) -> PinnedRun:
    """Makes the pins of a RUN's winners, in the order of their savings."""
    chosen: list[AnyPin] = []
    keys: dict[str, KernelKey] = {}
    twins: dict[str, list[RetuneRow]] = {}
    unpinned = []
    found = sorted(list_winners(run).values(), key=lambda retune: -(retune.row.saving_s or 0.0))
    for retune in found:
        try:
            pin, key = make_pin(retune, folder)
            twin = next((other for other in chosen if other.target == pin.target), None)
            if twin is not None and twin.config != pin.config:
                raise InductorBenchError(f"a process cannot tell it from {twin.name}, which has another config")
        except InductorBenchError as error:
            unpinned.append(Unpinned(retune.row, error.message))
            continue
        if twin is not None:
            twins.setdefault(twin.kernel_id, []).append(retune.row)
            continue
        chosen.append(pin)
        if isinstance(pin, TritonPin):
            keys[pin.kernel_id] = key or KernelKey(pin.key, pin.types, pin.name)
    rows = {retune.kernel_id: retune.row for retune in found}
    timed = [retune for retune in found if retune.known_from is None]  # others were timed with another RUN's config
    own = {retune.kernel_id: retune.kernel.config for retune in timed if retune.kernel is not None}
    return PinnedRun(join_pins(chosen, run.environment), keys, rows, tuple(unpinned), twins, own)


def join_pins(chosen: Sequence[AnyPin], environment: Environment, edits: Sequence[EditPin] = ()) -> Pins:
    """Joins the pins and the edits that a program applies, for the versions of an environment."""
    versions = environment.versions
    digest = digest_pins([*chosen, *edits])
    return Pins(APPLY, digest, versions.torch, versions.triton, *group_pins_by_kind(chosen), tuple(edits))


def lookup_table(pinned: PinnedRun) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """Returns the pins in the form of ``torch._inductor.config.autotune_lookup_table``.

    Returns:
        The table, and the reasons by the ids of the kernels that it cannot pin.
    """
    table: dict[str, dict[str, int]] = {}
    left: dict[str, str] = {pin.kernel_id: "a C++ kernel has no entry in the table" for pin in pinned.pins.cpp_pins}
    left |= {pin.kernel_id: "the table is for generated kernels" for pin in pinned.pins.library_pins}
    count: dict[str, int] = {}
    for pin in pinned.pins.triton_pins:
        count[pin.key] = count.get(pin.key, 0) + 1
    for pin in pinned.pins.triton_pins:
        others = sorted(name for name in pin.config if "BLOCK" not in name and name not in ("num_warps", "num_stages"))
        if not pinned.keys[pin.kernel_id].is_looked_up:
            left[pin.kernel_id] = "Inductor looks up only kernels whose name holds _fused_"
        elif others:
            left[pin.kernel_id] = f"the table drops {', '.join(others)}"
        elif count[pin.key] > 1:
            left[pin.kernel_id] = "another kernel with other types has the same key"
        else:
            table[pin.key] = dict(pin.config)
    return table, left


def set_mode(pinned: PinnedRun, mode: str) -> Pins:
    """Returns the pins for processes that apply or compare them."""
    return replace(pinned.pins, mode=mode)


def make_pin(retune: Retune, folder: RunFolder) -> tuple[AnyPin, KernelKey | None]:
    """Makes the pin of a winner, and its key if it is a Triton kernel.

    Raises:
        InductorBenchError: the kernel cannot be pinned; the message says why.
    """
    tuning = retune.tuning
    assert tuning is not None
    if retune.failure is not None:
        raise InductorBenchError(retune.failure.message)
    if retune.obstacle is not None:
        raise InductorBenchError(retune.obstacle.words)
    path = folder.optional_file(retune.file) if retune.file else None
    if path is None or not path.is_file():
        raise InductorBenchError("its standalone file is missing")
    text = read_text(path)
    recorded = read_recorded_facts(text)
    if retune.category.is_library:
        return _make_library_pin(retune, recorded), None
    if recorded.get("cpp"):
        source, changed = make_variant_source(read_source(text), recorded["cpp"], tuning.best_config)
        source = fix_threads(remove_profiler_marks(source), tuning.best_config["threads"])
        return CppPin(retune.kernel_id, retune.name, tuning.best_config, source, changed.get("options") or {}), None
    key = find_kernel_key(text)
    if key is None:
        raise InductorBenchError("its standalone file defines no kernel of Inductor")
    return TritonPin(key.key, key.types, retune.name, retune.kernel_id, tuning.best_config), key


def _make_library_pin(retune: Retune, recorded: Mapping[str, Any]) -> LibraryPin:
    """The pin of a library call."""
    tuning = retune.tuning
    assert tuning is not None
    try:
        launch = codec.decode(Launch, recorded["launch"])
        operator = ".".join((launch.operator or "").split(".")[:2])
        on_host = find_device(recorded["device_type"]).runs_on_host
    except (KeyError, InductorBenchError):
        raise InductorBenchError("this version cannot read the calls in its standalone file") from None
    tensors = [one.tensor for one in launch.arguments if one.tensor is not None]
    inputs = [InputLayout.of(one.dtype, one.shape, one.stride) for one in tensors]
    places = [*map(str, range(len(launch.arguments))), *launch.keywords]
    values = [*launch.arguments, *launch.keywords.values()]
    return LibraryPin(
        retune.name,
        retune.kernel_id,
        operator,
        tuple(list_factors(operator, inputs)),
        {place: one.plain() for place, one in zip(places, values, strict=True) if one.tensor is None},
        tuning.best_config,
        exhaustive=tuning.method == EXHAUSTIVE,
        on_host=on_host,
    )


def digest_pins(pins: Iterable[AnyPin | EditPin]) -> str:
    """Returns a hash of pins in their order."""
    text = json.dumps([asdict(pin) for pin in pins], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Edited kernels, which are put back like configs.


EDITED_NOW = "its source is edited, and this config was found for the original"


def read_edits(paths: Iterable[Path], run: Run) -> tuple[KernelEdit, ...]:
    """The edited kernels of files, each of which replaces a kernel of a RUN.

    Raises:
        InductorBenchError: a file cannot be read, is for another torch, Triton or device than the RUN's or for none
            of its kernels, was refused when it was checked, or two are for the same kernel.
    """
    found: dict[str, KernelEdit] = {}
    kernels = [kernel for module in run.modules for kernel in module.kernels]
    known = {name for one in kernels for name in (one.kernel_id, f"{one.operator}{OUT}")}
    for path in paths:
        edit = read_edit(path)
        require_made_for(edit, run.environment)
        _require_not_refused(edit)
        if not known.issuperset(edit.calls or (edit.kernel_id,)):
            hint = "give the RUN that it was written from, or write it anew: inductor-bench kernel RUN#NAME --edit FILE"
            words = f"{path} is an edit of {edit.kernel}, and the RUN has no such kernel"
            raise UsageError(words, hint, "no-fitting-kernel")
        other = found.setdefault(edit.kernel_id, edit)
        if other is not edit:
            words = f"{other.path} and {path} are both edits of {edit.kernel}"
            raise UsageError(words, "give one of them", "conflicting-options")
    return tuple(found.values())


def _require_not_refused(edit: KernelEdit) -> None:
    """Checks that a check has not refused an edit. The values of this program might not show the error."""
    verdict = load_verdict(edit.sha256, edit.original)
    if verdict is not None and verdict.verdict == REFUSED:
        words = f"{edit.path} was refused when it was checked: {verdict.words}"
        again = f"inductor-bench kernel {shlex.quote(str(edit.path))} --check"
        raise UsageError(words, f"correct the edit, then check it again: `{again}`", "refused-edit")


def warn_of_unchecked_edits(edits: Iterable[KernelEdit]) -> tuple[str, ...]:
    """Returns a warning, in one sentence, about the edits that were not checked alone on this machine."""
    files = [str(edit.path) for edit in edits if load_verdict(edit.sha256, edit.original) is None]
    if not files:
        return ()
    first, others = files[0], f"and {plural(len(files) - 1, 'other edit')} " if len(files) > 1 else ""
    return (
        f"{first} {others}{'were' if others else 'was'} not checked by {'themselves' if others else 'itself'}: for "
        "values that this program does not have, the results may be wrong. This checks "
        f"{'one of them' if others else 'it'}: inductor-bench kernel {shlex.quote(first)} --check",
    )


def add_checked_ratios(kernels: Iterable[AppliedKernel], edits: Iterable[KernelEdit]) -> tuple[AppliedKernel, ...]:
    """Returns the kernels; edited ones have the ratio of their times from their last check on this machine."""
    verdicts = {str(edit.path): load_verdict(edit.sha256, edit.original) for edit in edits}
    ratios = {file: verdict.ratio for file, verdict in verdicts.items() if verdict is not None}
    return tuple(replace(one, alone=ratios.get(one.edit)) for one in kernels)


def require_made_for(edit: KernelEdit, environment: Environment) -> None:
    """Checks that a file was written for the versions and the device of an environment.

    Raises:
        InductorBenchError: it was not; the message names each difference.
    """
    versions = environment.versions
    on_gpu = edit.language == TRITON
    device = (NVIDIA if on_gpu else CPU).name_in(environment)
    compared = [("torch", edit.torch, versions.torch), ("device", edit.device or device, device)]
    compared += [("Triton", edit.triton, versions.triton)] if on_gpu else []
    different = [f"{what} {there or 'none'}, not {now or 'none'}" for what, there, now in compared if there != now]
    if different:
        hint = "write it anew from a RUN of this torch and device: inductor-bench kernel RUN#NAME --edit FILE"
        raise InductorBenchError(f"{edit.path} is for {'; '.join(different)}", hint, "elsewhere")


def edit_pin(edit: KernelEdit) -> EditPin:
    """Returns the pin that puts an edited kernel into a program."""
    if not edit.calls:
        family = compute_family_id(edit.language, edit.original_source, edit.kernel)
        known = edit.kernel, edit.kernel_id, family, edit.language, edit.source, str(edit.path)
        return EditPin(*known, choice=find_template_choice(edit.original_source))
    source = write_launched_source(edit.source, edit.facts["replaces"]) if edit.language == TRITON else edit.source
    known = edit.kernel, edit.kernel_id, "", edit.language, source, str(edit.path)
    return EditPin(*known, calls=edit.calls, arguments=edit.arguments)


def add_edits(pinned: PinnedRun, edits: Sequence[EditPin], environment: Environment) -> PinnedRun:
    """Returns the winners with edited kernels. These do not run the configs that were found before the edit."""
    if not edits:
        return pinned
    edited = {edit.kernel_id for edit in edits}
    left, unpinned, twins = [], list(pinned.unpinned), {}
    for pin in pinned.pins.configs:
        if pin.kernel_id not in edited:
            left.append(pin)
            twins[pin.kernel_id] = [row for row in pinned.twins.get(pin.kernel_id, ()) if row.kernel_id not in edited]
    kept = {pin.kernel_id for pin in left} | {row.kernel_id for rows in twins.values() for row in rows}
    for one in pinned.pinned:
        if one.kernel_id not in kept:
            unpinned.append(Unpinned(pinned.rows[one.kernel_id], EDITED_NOW))
    twins = {kernel_id: rows for kernel_id, rows in twins.items() if rows}
    return replace(pinned, pins=join_pins(left, environment, edits), unpinned=tuple(unpinned), twins=twins)


# Starts a program whose processes put pins into their kernels, and reads their reports.


STATES = ".pins.json"
PINS_FILE = "pins.json"


def make_pinned_environment(pins: Pins, work: Path, environment: Mapping[str, str], observe: str) -> dict[str, str]:
    """The environment of a program with pins.

    Args:
        pins: the pins, which are written into ``work``.
        work: the folder for the pins and for the reports of the processes.
        environment: the environment of the program without them.
        observe: what the processes also observe; see ``messages.observed``.
    """
    work.mkdir(parents=True, exist_ok=True)
    write_message(work / PINS_FILE, codec.encode(pins))
    return {
        **environment,
        CAPTURE_FOLDER: str(work.resolve()),
        PINS: str((work / PINS_FILE).resolve()),
        OBSERVE: observe,
        "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
    }


def read_states(work: Path) -> tuple[PinnedProcess, ...]:
    """Reads what the processes of a program report about their pins.

    Raises:
        InductorBenchError: a file is damaged.
    """
    files = (file for file in sorted(work.glob(f"*{STATES}")) if file.name.removesuffix(STATES).isdigit())
    return tuple(codec.decode(PinnedProcess, read_json(file)) for file in files)


def require_taken(processes: Sequence[PinnedProcess]) -> None:
    """Checks that no process refused all pins.

    Raises:
        InductorBenchError: one did; the message says why.
    """
    refusal = next((process.refusal for process in processes if process.refusal), "")
    if refusal:
        raise InductorBenchError(
            f"nothing was put in: {refusal}",
            "break the program down again, here and with these versions",
            "nothing-applied",
        )


def join_states(processes: Sequence[PinnedProcess]) -> dict[str, PinState]:
    """Returns the state of each pin over all processes, by the kernel's id.

    If a process has not pinned it, that state counts.
    """
    found: dict[str, PinState] = {}
    for state in (state for process in processes for state in process.states):
        known = found.get(state.kernel_id)
        if known is None or (known.state == PINNED and state.state != PINNED):
            found[state.kernel_id] = state
    return found


def make_users_environment() -> dict[str, str]:
    """Returns the environment in which the user typed the command."""
    return dict(os.environ)


# The pins of all kernels whose tunings are known for this machine, without a RUN.


def list_places(environment: Environment) -> list[TuningPlace]:
    """Returns the places in which an environment's tunings are stored: that of a GPU, and those of the processor."""
    versions = environment.versions
    names = []
    if environment.device.accelerator:
        names.append(NVIDIA.name_in(environment))
    if environment.host.cpu:
        names.append(f"{CPU.name_in(environment)} {environment.host.threads} threads")
    return [TuningPlace(name, versions.torch, versions.triton or "") for name in names if name]


def pin_known(environment: Environment) -> PinnedRun:
    """Returns the pins of all known winners for an environment."""
    known = [one for place in list_places(environment) for one in read_known_tunings(place)]
    chosen = [pin for kind in choose_pins(known) for pin in kind]
    return PinnedRun(join_pins(chosen, environment), {}, {}, of_others=True)


def choose_pins(
    known: Iterable[KnownTuning],
) -> tuple[tuple[TritonPin, ...], tuple[CppPin, ...], tuple[LibraryPin, ...]]:
    """Returns one pin for each kernel: the fastest one of several methods and sizes, and of equal ones the last
    tuned."""
    return group_pins_by_kind(
        {one.pin.target: one.pin for one in sorted(known, key=_rank) if one.pin is not None}.values()
    )


def _rank(one: KnownTuning) -> tuple[float, str]:
    tuning = one.kernel.tuning if one.kernel is not None else None
    return (tuning.speedup if tuning is not None and tuning.verdict == FASTER else 0.0), one.origin.tuned_at
