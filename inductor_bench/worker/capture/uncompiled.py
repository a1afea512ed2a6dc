"""Observes a process without compiled graphs, the objects that Dynamo compiles, and the end of every process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

from ...messages.observed import (
    CAPTURE_FOLDER,
    COMPILE_USE,
    OBJECTS,
    UNCOMPILED,
    CompileCall,
    CompiledObject,
    CompiledObjects,
    CompileUse,
)
from ...store import codec
from ..upstream import observing as upstream
from .step_observer import DYNAMO_CALLBACK, RECOVERABLE, StepObserver, measure_window


def save_at_exit(finish: Callable[[], None], save: Callable[[], None]) -> None:
    """Calls ``save`` at the end of this process, and ``finish`` and ``save`` before ``os._exit``.

    ``os._exit`` calls no exit handlers. A forked child ends with it, and saves nothing.
    """
    atexit.register(save)
    owner, leave = os.getpid(), os._exit

    @functools.wraps(leave)
    def save_and_leave(status: int) -> NoReturn:
        if os.getpid() == owner:
            finish()
            save()
        leave(status)

    os._exit = save_and_leave


LONGEST_CONTAINER = 1000
"""Maximum number of elements of a list or a dictionary in which an object is looked for."""

MOST_OBJECTS = 10_000
"""Maximum number of compilations that are noted."""


class ObjectNames:
    """Notes for each compilation which object this process compiles.

    Args:
        folder: the folder of its file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}{OBJECTS}"
        self._owner = os.getpid()
        self._found: dict[tuple[int, int], CompiledObject] = {}
        self._wrapped: Counter[CodeType] = Counter()
        self._names: dict[CodeType, str] = {}  # the user's names of functions around which torch has put its own

    def note_wrapped(self, model: object) -> None:
        """Notes that the program gives a function or a module to ``torch.compile``."""
        code = getattr(getattr(model, "__func__", model), "__code__", None)
        if isinstance(code, CodeType):
            self._wrapped[code] += 1
            name = getattr(model, "__name__", None)
            if isinstance(name, str) and name != code.co_name and upstream.is_of_torch(code.co_filename):
                self._names[code] = name  # torch.func.vmap(f) is torch's function ``wrapped``, and is named ``f``

    def begin(self) -> Callable[[], None]:
        """Registers for compilations, after Dynamo is imported; returns a function that undoes this."""
        return upstream.call_on_frame(self._note)

    def _note(self, compile_id: str, frame: upstream.CompilingFrame, stack: FrameType | None) -> None:
        if len(self._found) >= MOST_OBJECTS or os.getpid() != self._owner:
            return
        with contextlib.suppress(*RECOVERABLE):
            number, again = (int(part) for part in compile_id.split("/")[-2:])
            name, alike = name_module(frame.owner, stack) if frame.owner is not None else ("", 1)
            of_class = type(frame.owner).__name__ if upstream.is_forward_of(frame.code, frame.owner) else ""
            wrapped = self._wrapped[frame.code]
            name = name or self._names.get(frame.code, "")
            self._found[number, again] = CompiledObject(number, again, name, alike, wrapped, of_class)
            self._save()

    def _save(self) -> None:
        temporary = self._path.with_suffix(".part")
        found = CompiledObjects(self._owner, tuple(self._found.values()))
        temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
        temporary.replace(self._path)


def name_module(module: Any, stack: FrameType | None) -> tuple[str, int]:
    """The program's name of a module, and the number of modules in its model that look the same.

    The name of a module within another one is its path: ``unet.down_blocks.1``. Any other module has the name of its
    variable, the outermost one if there are several: ``D``, ``networks[1]``. The name is empty if no frame has one.

    Args:
        module: the module.
        stack: the innermost frame of the program.
    """
    frames = list(_list_frames(stack))
    owner, path = _find_owner(module, [frame for frame, _ in frames])
    if owner is not None:
        root = _find_variable(owner, frames) or type(owner).__name__
        return f"{root}.{path}", sum(_looks_like(one, module) for one in owner.modules())
    return _find_variable(module, frames), 1


Locals = Mapping[str, Any]


def _list_frames(stack: FrameType | None) -> Iterator[tuple[Locals, bool]]:
    """Returns the variables of each frame outside of torch, innermost first, and whether it is a file's top level."""
    while stack is not None:
        if upstream.is_of_torch(stack.f_code.co_filename):
            found = stack.f_locals
            yield {name: found[name] for name in ("self",) if name in found}, False
        else:
            found = stack.f_locals
            yield dict(found), stack.f_code.co_name == "<module>"
        # Up to Python 3.12 a function's frame keeps this copy of its variables until it returns.
        if isinstance(found, dict) and stack.f_code.co_flags & inspect.CO_OPTIMIZED:
            found.clear()
        stack = stack.f_back


_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of a module's path that wrappers add: ``torch.compile``, FSDP and checkpointing."""


def _find_owner(module: Any, frames: Sequence[Locals]) -> tuple[Any, str]:
    """The outermost module that runs or has a name in a frame, and that holds this one; and the path in it."""
    running = [upstream.unwrap(one["self"]) for one in frames if "self" in one]
    named = [upstream.unwrap(value) for one in frames for value in one.values()]
    for candidates in (running, named):
        for candidate in reversed([one for one in candidates if upstream.is_module(one) and one is not module]):
            path = next((path for path, one in candidate.named_modules() if one is module), "")
            if names := [name for name in path.split(".") if name and name not in _WRAPPERS]:
                return candidate, ".".join(names)
    return None, ""


def _find_variable(module: Any, frames: Sequence[tuple[Locals, bool]]) -> str:
    """Returns the variable that holds a module.

    The outermost variable, and the module itself, come before the compiled form.
    """
    for found in (_direct, _list_attributes, _list_elements):
        for variables, _ in reversed(frames):
            names = sorted(found(module, variables), key=lambda pair: pair[1])
            if names:
                return names[0][0]
    return ""


def _direct(module: Any, variables: Locals) -> Iterator[tuple[str, bool]]:
    for name, value in variables.items():
        if name != "self" and not name.startswith("_") and upstream.unwrap(value) is module:
            yield name, value is not module


def _list_attributes(module: Any, variables: Locals) -> Iterator[tuple[str, bool]]:
    """Finds a module in an attribute of an object that is no module, such as a trainer."""
    holder = variables.get("self")
    if holder is not None and not upstream.is_module(holder):
        yield from _direct(module, getattr(holder, "__dict__", {}))


def _list_elements(module: Any, variables: Locals) -> Iterator[tuple[str, bool]]:
    for name, value in variables.items():
        if isinstance(value, list | tuple) and len(value) <= LONGEST_CONTAINER:
            pairs: Iterator[tuple[object, Any]] = enumerate(value)
        elif type(value) is dict and len(value) <= LONGEST_CONTAINER and not name.startswith("_"):
            pairs = iter(value.items())
        else:
            continue
        for key, one in pairs:
            if upstream.unwrap(one) is module:
                yield f"{name}[{key!r}]", one is not module


def _looks_like(one: Any, module: Any) -> bool:
    """Whether two modules are of one class and have parameters of the same shapes and types."""
    if one is module:
        return True
    if type(one) is not type(module):
        return False
    pairs = zip(one.parameters(), module.parameters(), strict=False)
    shapes = all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return shapes and len(list(one.parameters())) == len(list(module.parameters()))


INDUCTOR = "inductor"
SWITCH = "TORCHDYNAMO_DISABLE"
"""The variable with which ``torch.compile`` returns what it is given."""

MOST_CALLS = 100
"""Maximum number of places of ``torch.compile`` that are noted."""

active: list[UncompiledProcess] = []
"""The observation of this process, as long as it has no compiled graph."""

timed: list[StepObserver] = []
"""The observation of a process whose steps are timed, and nothing else, as long as it has no compiled graph."""


class UncompiledProcess:
    """A process without a compiled graph: its steps, and its calls of ``torch.compile``.

    Args:
        folder: the folder of its files.
        torch: the module ``torch``.
    """

    def __init__(self, folder: Path, torch: Any) -> None:
        self._path = folder / f"{os.getpid()}{COMPILE_USE}"
        self._torch = os.path.dirname(torch.__file__)
        self._owner = os.getpid()
        self._calls: dict[str, CompileCall] = {}
        self._has_ended = False
        self.steps = StepObserver(partial(measure_window, folder), self.save)
        self.objects = ObjectNames(folder.parent)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function that replaces ``torch.compile``, and notes each call."""

        @functools.wraps(original)
        def compile(model: Any = None, **keywords: Any) -> Any:
            if model is not None:  # without one torch calls this function again with the model
                self.objects.note_wrapped(model)
            if model is not None and not self._has_ended:
                with contextlib.suppress(*RECOVERABLE):
                    self._note(keywords.get("backend") or INDUCTOR, is_disabled=bool(keywords.get("disable")))
            return original(model, **keywords)

        return compile

    def _note(self, backend: Any, *, is_disabled: bool) -> None:
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
        disabled = "disable=True" if is_disabled else ""
        if os.environ.get(SWITCH) == "1":
            disabled = f"{SWITCH}=1"
        place = self._place()
        if len(self._calls) < MOST_CALLS:
            self._calls.setdefault(place, CompileCall(place, name, disabled))

    def _place(self) -> str:
        """The line of the program that calls ``torch.compile``."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(
            (self._torch, os.path.dirname(__file__))
        ):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def leave(self) -> None:
        """Ends this observation, because the process has a compiled graph."""
        if not self._has_ended:
            self._has_ended = True
            self.steps.leave()

    def save(self) -> None:
        """Writes which calls of ``torch.compile`` the process made. A forked child writes nothing."""
        if self._has_ended or os.getpid() != self._owner:
            return
        found = CompileUse(
            pid=self._owner,
            calls=tuple(self._calls.values()),
            disabled_by=upstream.find_dynamo_switch(),
            stance=upstream.find_dynamo_stance(),
            frames=upstream.count_frames_of_dynamo(),
        )
        temporary = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):  # the parent misses the reason
            temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
            temporary.replace(self._path)


def begin_observation(folder: Path, torch: Any) -> tuple[UncompiledProcess, Callable[[], None]]:
    """Begins the observation in this process; returns the observation and a function that ends it.

    Args:
        folder: the folder of its files.
        torch: the module ``torch``.
    """
    folder.mkdir(exist_ok=True)
    process = UncompiledProcess(folder, torch)
    original = torch.compile
    torch.compile = replaced = process.wrap(original)

    def undo() -> None:
        process.leave()
        if process in active:
            active.remove(process)
        if torch.compile is replaced:
            torch.compile = original

    process.steps.begin_eager()
    active.append(process)
    return process, undo


def observe_uncompiled(torch: Any) -> None:
    """Starts the observation in this process. ``torch`` has just been imported."""
    try:
        process, _ = begin_observation(Path(os.environ[CAPTURE_FOLDER], UNCOMPILED), torch)
    except RECOVERABLE:
        traceback.print_exc()
        return
    if DYNAMO_CALLBACK in sys.modules:
        hear_compilations()
    save_at_exit(process.steps.finish, process.save)


def hear_compilations() -> list[Callable[[], None]]:
    """Registers for what this process compiles, after Dynamo is imported; returns a function that undoes this."""
    for process in active:
        process.steps.hear_compilations()
    return [process.objects.begin() for process in active]


def leave_uncompiled() -> None:
    """Ends the observation in this process, which has a compiled graph."""
    while active:
        active.pop().leave()
    while timed:
        timed.pop().leave()
