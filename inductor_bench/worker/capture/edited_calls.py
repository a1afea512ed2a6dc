"""Edits in the place of calls: finds these calls in the modules of this process, and puts one call in their place."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...errors import InductorBenchError
from ...messages.observed import PINNED, REFUSED, REPLACED, UNUSED, PinState
from ...records.edit_pin import CPP, EditPin
from ...source.module_reader import read_module
from ...source.stretches import CallGroup, Replaced, StretchReader, find_code, replace_calls
from ...store.files import read_text
from ..upstream import pinning
from .edited_kernels import NOT_RUN, OWN_SOURCE, UNLIKE, attempt, find_function, list_unlike_states

OVERLAP = "another edit replaces one of its calls"
_CALLED = "inductor_bench_edit_"


@dataclass(eq=False)
class EditedFunction:
    """A function of a module with edits in the place of some of its calls."""

    function: FunctionType
    text: str  # of the module
    path: str
    edits: list[EditedCalls] = field(default_factory=list)
    active: list[EditedCalls] = field(default_factory=list)  # those that are in use
    _codes: dict[frozenset[str], CodeType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._codes[frozenset()] = self.function.__code__

    def use(self, edit: EditedCalls, tuned: bool) -> None:
        """Puts an edit in the place of its calls, or its calls back."""
        self.active = [one for one in self.edits if (tuned if one is edit else one in self.active)]
        self.function.__code__ = self.code()

    def code(self) -> CodeType:
        """The code of the function with the edits that are in use."""
        key = frozenset(one.place.name for one in self.active)
        if key not in self._codes:
            tree, name, line = replace_calls(self.text, [one.place for one in self.active])
            self._codes[key] = find_code(tree, self.path, name, line)
        return self._codes[key]


@dataclass(eq=False)
class EditedCalls:
    """An edit in the place of calls of a module, as ``PinnedKernel``."""

    pin: EditPin
    place: Replaced
    owner: EditedFunction
    kernel: Callable[..., Any] | None  # ``None`` if it did not compile
    reason: str = ""  # why it did not compile
    ran: bool = False  # whether it has been launched

    def __call__(self, *arguments: Any) -> None:
        assert self.kernel is not None
        self.ran = True
        self.owner.function.__globals__[self.place.name] = self.kernel  # later launches take no detour
        self.kernel(*arguments)

    def use(self, tuned: bool) -> None:
        if self.kernel is not None:
            self.owner.use(self, tuned)

    def state(self) -> PinState:
        if self.kernel is None:
            state, reason = REFUSED, self.reason
        elif self not in self.owner.active:
            state, reason = REPLACED, OWN_SOURCE
        elif not self.ran:
            state, reason = UNUSED, NOT_RUN
        else:
            state, reason = PINNED, ""
        return PinState(self.pin.kernel_id, self.pin.name, state, reason=reason)


class CallEdits:
    """The edits of this process in the place of calls.

    Args:
        edits: those of all kinds.
    """

    def __init__(self, edits: Iterable[EditPin]) -> None:
        self._edits = [edit for edit in edits if edit.calls]
        self._unlike: dict[str, EditPin] = {}

    def __bool__(self) -> bool:
        return bool(self._edits)

    def put_into(self, module: ModuleType, path: str) -> list[EditedCalls]:
        """Finds the calls in a module that has just been loaded. The edits are in use from then on.

        A failure costs the edits of the module, and no program.
        """
        try:
            return list(self._put_into(module, path))
        except Exception:  # a module of another version of Inductor may be anything
            traceback.print_exc()
            return []

    def _put_into(self, module: ModuleType, path: str) -> Iterator[EditedCalls]:
        text = read_text(Path(path))
        reader = StretchReader(text, read_module(text))
        owners: dict[tuple[str, int], EditedFunction] = {}
        taken: dict[tuple[str, int], list[Replaced]] = defaultdict(list)
        for edit, (first, last) in ((one, lines) for one in self._edits for lines in reader.find(one.calls)):
            stretch = _read(reader, first, last)
            if stretch is None or stretch.id != edit.kernel_id:
                self._unlike[edit.kernel_id] = edit
                continue
            place = Replaced(first, last, stretch, f"{_CALLED}{edit.kernel_id}_{first}", len(edit.arguments))
            _, name, line = replace_calls(text, [place])
            owner = owners.get((name, line)) or EditedFunction(_find_function(module, name, line), text, path)
            owners[name, line] = owner
            reason = OVERLAP if any(place.overlaps(other) for other in taken[name, line]) else ""
            compiled, failed = (None, reason) if reason else attempt(lambda: compile_call(edit, owner))  # noqa: B023
            found = EditedCalls(edit, place, owner, compiled, failed)
            if compiled is not None:
                taken[name, line].append(place)
                vars(module)[place.name] = found
                owner.edits.append(found)
                found.use(True)
            yield found

    def states(self, known: Iterable[PinState]) -> list[PinState]:
        """The states of edits whose calls this process makes with other sizes only, beside those that are known."""
        return list_unlike_states([(edit, UNLIKE) for edit in self._unlike.values()], known)


def _read(reader: StretchReader, first: int, last: int) -> CallGroup | None:
    try:
        return reader.read(first, last)
    except InductorBenchError:  # in this module these calls cannot be one
        return None


def _find_function(module: ModuleType, name: str, line: int) -> FunctionType:
    """The function of a module that begins in a line."""
    owners = [vars(module), *(vars(one) for one in vars(module).values() if isinstance(one, type))]
    for function in (one for owner in owners for one in owner.values() if isinstance(one, FunctionType)):
        if function.__code__.co_name == name and function.__code__.co_firstlineno == line:
            return function
    raise InductorBenchError(f"the module has no function {name}")


def compile_call(edit: EditPin, owner: EditedFunction) -> Callable[..., Any]:
    """Compiles the kernel of an edit, and gives what launches it."""
    if edit.language == CPP:
        return pinning.compile_cpp_call(edit.arguments, edit.source)
    return pinning.compile_triton_call(edit.source, find_function(edit), owner.text)
