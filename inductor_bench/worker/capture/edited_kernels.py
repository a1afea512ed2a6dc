"""Edited kernels of this process: finds the kernels that they replace, and compiles the edited sources instead."""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...errors import InductorBenchError
from ...messages.observed import PINNED, REFUSED, REPLACED, UNUSED, PinState
from ...records.edit import CPP, TRITON, EditPin
from ...source.edit_rules import find_template_choice, has_same_decorators
from ...source.generated_text import compute_cpp_kernel_id, compute_family_id, compute_triton_kernel_id
from ...source.module_reader import read_module
from ...source.stretches import CallGroup, Replaced, StretchReader, find_code, replace_calls
from ...store.files import read_text
from ..upstream import pinning

OWN_SOURCE = "the code that Inductor generated runs instead of the edit"
NOT_RUN = "its kernel has not run"
UNLIKE = "its source differs from the source that was edited: it has other sizes or options, or the program has changed"
OTHER_CHOICE = (
    "its source differs from the source that was edited: max-autotune may have chosen another config of its "
    "template, here {here}. In the program, "
    "torch._inductor.config.test_configs.autotune_choice_desc_regex = '{pattern}|^$' allows only the RUN's config and "
    "library calls"
)

_META = re.compile(r"^[ \t]*(triton_meta|inductor_meta)=\{.*\},?[ \t]*$", re.MULTILINE)
_FUNCTION = re.compile(r"^@triton_heuristics\..*?^@triton\.jit\s+def (\w+)\(", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"\berror: .+")
_MOST_LETTERS = 240


@dataclass
class EditedAutotuner:
    """A Triton kernel with an edited source.

    The program holds Inductor's object, or that of the edited source if steps are not compared.
    """

    pin: EditPin  # the edit
    name: str  # of the kernel in this program
    tuned: Any  # the object of the edited source; ``None`` if it did not compile
    own: Any = None  # the object of Inductor's source; ``None`` where only the edited one is compiled
    reason: str = ""  # why the edited source did not compile
    ran: bool = False  # whether the edited kernel has been launched
    keeps_config: bool = False  # whether the edited source has the decorators, and so the configs, of Inductor's

    _launch: Callable[..., Any] | None = field(init=False, default=None)  # launches the edited kernel

    def __post_init__(self) -> None:
        if self.tuned is None:
            return
        self._launch = self.tuned.run
        if self.own is None:
            self.tuned.run = self._run_first

    def _run_first(self, *arguments: Any, **keywords: Any) -> Any:
        """Makes the first launch of the edited kernel. Later launches do not pass here."""
        assert self._launch is not None
        self.ran = True
        if self.own is None:
            vars(self.tuned).pop("run", None)
        else:
            # Inductor times its configs again for each source. If two configs are equally fast, it may choose another
            # one, and the difference would be counted as the edit's.
            if self.keeps_config:
                pinning.take_config(self.tuned, self.own)
            self.own.run = self._launch
        return self._launch(*arguments, **keywords)

    def switch_config(self, tuned: bool) -> None:
        """Launches the edited kernel, or Inductor's, as in ``PinnedKernel``.

        If the source is unchanged, both are one object.
        """
        if self.tuned is None or self.own is None:
            return
        if tuned:
            self.own.run = self._launch if self.ran else self._run_first
        else:
            vars(self.own).pop("run", None)

    def state(self) -> PinState:
        replaced = self.own is not None and "run" not in vars(self.own)
        return _describe_edit_state(self, self.tuned is not None, replaced, self.name)


def _describe_edit_state(
    edited: EditedAutotuner | EditedCalls, compiled: bool, replaced: bool, event_name: str = ""
) -> PinState:
    """Returns the state of an edit: whether it compiled, and whether the program's own source runs instead of it."""
    if not compiled:
        state, reason = REFUSED, edited.reason
    elif replaced:
        state, reason = REPLACED, OWN_SOURCE
    elif not edited.ran:
        state, reason = UNUSED, NOT_RUN
    else:
        state, reason = PINNED, ""
    return PinState(edited.pin.kernel_id, edited.pin.name, state, reason=reason, event_name=event_name)


class EditedSources:
    """The edits of this process, by the sources that they replace."""

    def __init__(self, edits: Iterable[EditPin]) -> None:
        self._by_target = {edit.target: edit for edit in edits if not edit.calls}
        self._unlike: dict[str, tuple[EditPin, str]] = {}

    def holds(self, language: str) -> bool:
        """Whether kernels of a language are edited."""
        return any(edit.language == language for edit in self._by_target.values())

    def find(self, language: str, source: str, name: str = "") -> EditPin | None:
        """Returns the edit of a source, whatever the kernel's name is in this program.

        If an edit is not for this source, but for a source of the same name or family, it is noted.
        """
        if not self.holds(language):
            return None
        kernel_id = compute_triton_kernel_id(source) if language == TRITON else compute_cpp_kernel_id(source)
        found = self._by_target.get((language, kernel_id))
        if found is None:
            family = compute_family_id(language, source, name)
            edits = [one for one in self._by_target.values() if one.language == language]
            alike = [one for one in edits if name == one.name or family == one.family_id]
            self._unlike.update({one.kernel_id: (one, describe_unlike_source(one, source)) for one in alike})
        return found

    def states(self, known: Iterable[PinState]) -> list[PinState]:
        """Returns the states of edits whose kernels have only other sources in this process.

        States that are known are left out.
        """
        return list_unlike_states(self._unlike.values(), known)


def describe_unlike_source(edit: EditPin, source: str) -> str:
    """Why an edit does not fit a Triton or C++ source of the same name or kind."""
    here = find_template_choice(source)
    if not edit.choice or here in ((), edit.choice):
        return UNLIKE
    return OTHER_CHOICE.format(here=", ".join(here), pattern=".*".join(edit.choice))


def list_unlike_states(unlike: Iterable[tuple[EditPin, str]], known: Iterable[PinState]) -> list[PinState]:
    """Returns the states of edits that fit a kernel of this process only in name or kind, with the reason of each.

    They are added to the known states.
    """
    placed = {state.kernel_id for state in known}
    left = [(edit, reason) for edit, reason in unlike if edit.kernel_id not in placed]
    return [PinState(edit.kernel_id, edit.name, REFUSED, reason=reason) for edit, reason in left]


def compile_triton(
    edit: EditPin, compile_source: pinning.CompileSource, name: str, source: str, *, compares: bool
) -> tuple[Any, Callable[[], EditedAutotuner]]:
    """Compiles the edited source instead of the source that it replaces.

    Args:
        edit: the edit.
        compile_source: compiles a source; its result may be a future.
        name: the name of the kernel in this program.
        source: the source that is replaced.
        compares: whether the replaced source is compiled, too, for a comparison of steps.

    Returns:
        The work in another process, if there is any, and a function that makes the kernel. The kernel has Inductor's
        source, too, if the edited source does not compile.
    """
    text = make_source(edit, name, source)
    tuned, failed = try_to_compile(lambda: compile_source(text))
    own = compile_source(source) if compares or failed else None

    def join() -> EditedAutotuner:
        compiled, reason = (None, failed) if failed else try_to_compile(lambda: pinning.find_result(tuned))
        inductors = compile_source(source) if reason and own is None else own
        keeps = not reason and has_same_decorators(text, source)
        return EditedAutotuner(edit, name, compiled, pinning.find_result(inductors), reason, keeps_config=keeps)

    return getattr(own if failed else tuned, "future", None), join


def make_source(edit: EditPin, name: str, replaced: str) -> str:
    """Returns an edited Triton source for the place of another: with that kernel's name, and what its caller relies on.

    That has the number of the device, for example, and each process of a program has its own device.
    """
    text = re.sub(rf"\b{re.escape(find_function(edit))}\b", name, edit.source)
    lines = {found[1]: found[0] for found in _META.finditer(replaced)}
    return _META.sub(lambda found: lines.get(found[1], found[0]), text)


def find_function(edit: EditPin) -> str:
    """The name of the function that an edited Triton source launches."""
    found = _FUNCTION.search(edit.source)
    return found[1] if found else edit.name


def try_to_compile(compile_now: Callable[[], Any]) -> tuple[Any, str]:
    """Returns what a compilation returns; or ``None``, and why it failed."""
    try:
        return compile_now(), ""
    except Exception as error:  # the source may be anything
        return None, compile_words(error)


def compile_words(error: BaseException) -> str:
    """Why an edited source did not compile: the compiler's first error, or the last line of what it said."""
    text = str(error).strip()
    found = _ERROR.search(text)
    line = found[0] if found else next((line for line in reversed(text.splitlines()) if line.strip()), "")
    words = " ".join(line.split())[:_MOST_LETTERS]
    return f"it did not compile here: {type(error).__name__}{f': {words}' if words else ''}"


OVERLAP = "another edit replaces one of its calls"
_CALLED = "inductor_bench_edit_"


@dataclass(eq=False)
class EditedFunction:
    """A function of a module in which edits replace some of the calls."""

    function: FunctionType
    text: str  # of the module
    path: str
    edits: list[EditedCalls] = field(default_factory=list)
    active: list[EditedCalls] = field(default_factory=list)  # those that are in use
    _codes: dict[frozenset[str], CodeType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._codes[frozenset()] = self.function.__code__

    def switch_edit(self, edit: EditedCalls, tuned: bool) -> None:
        """Replaces the calls of an edit by its kernel, or restores the calls."""
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
    """An edit that replaces calls of a module; it can be switched like a ``PinnedKernel``."""

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

    def switch_config(self, tuned: bool) -> None:
        if self.kernel is not None:
            self.owner.switch_edit(self, tuned)

    def state(self) -> PinState:
        return _describe_edit_state(self, self.kernel is not None, self not in self.owner.active)


class CallEdits:
    """The edits of this process that replace calls.

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

        A failure gives up the edits of the module, and ends no program.
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
            compiled, failed = (None, reason) if reason else try_to_compile(lambda: compile_call(edit, owner))  # noqa: B023
            found = EditedCalls(edit, place, owner, compiled, failed)
            if compiled is not None:
                taken[name, line].append(place)
                vars(module)[place.name] = found
                owner.edits.append(found)
                found.switch_config(True)
            yield found

    def states(self, known: Iterable[PinState]) -> list[PinState]:
        """Returns the states of edits whose calls this process makes only with other sizes.

        States that are known are left out.
        """
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
    """Compiles the kernel of an edit, and returns a function that launches it."""
    if edit.language == CPP:
        return pinning.compile_cpp_call(edit.arguments, edit.source)
    return pinning.compile_triton_call(edit.source, find_function(edit), owner.text)
