"""Observes the steps of a process as long as it has no compiled graph, and what it asks of ``torch.compile``."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...messages.observed import CAPTURE_FOLDER, COMPILE_USE, UNCOMPILED, CompileCall, CompileUse
from ...store import codec
from ..upstream import observing as upstream
from .compiled_objects import ObjectNames
from .exits import save_at_exit
from .step_observer import DYNAMO_CALLBACK, RECOVERABLE, StepObserver, measure_window

INDUCTOR = "inductor"
SWITCH = "TORCHDYNAMO_DISABLE"
"""The variable with which ``torch.compile`` returns what it is given."""

MOST_CALLS = 100
"""Maximum number of places of ``torch.compile`` that are noted."""

active: list[UncompiledProcess] = []
"""This process, as long as it has no compiled graph."""


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
        self._is_left = False
        self.steps = StepObserver(partial(measure_window, folder), self.save)
        self.objects = ObjectNames(folder.parent)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that takes the place of ``torch.compile``, and notes each call."""

        @functools.wraps(original)
        def compile(model: Any = None, **keywords: Any) -> Any:
            if model is not None:  # without one torch calls this function again with the model
                self.objects.note_wrapped(model)
            if model is not None and not self._is_left:
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
        if not self._is_left:
            self._is_left = True
            self.steps.leave()

    def save(self) -> None:
        """Writes what the process asked of ``torch.compile``. A forked child writes nothing."""
        if self._is_left or os.getpid() != self._owner:
            return
        found = CompileUse(
            pid=self._owner,
            calls=tuple(self._calls.values()),
            disabled_by=upstream.dynamo_switch(),
            stance=upstream.dynamo_stance(),
            frames=upstream.frames_of_dynamo(),
        )
        temporary = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):  # the parent misses the reason
            temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
            temporary.replace(self._path)


def observe_uncompiled(torch: Any) -> None:
    """Starts the observation in this process. ``torch`` has just been imported."""
    folder = Path(os.environ[CAPTURE_FOLDER], UNCOMPILED)
    try:
        folder.mkdir(exist_ok=True)
        process = UncompiledProcess(folder, torch)
        torch.compile = process.wrap(torch.compile)
        process.steps.begin_eager()
    except RECOVERABLE:
        traceback.print_exc()
        return
    active.append(process)
    if DYNAMO_CALLBACK in sys.modules:
        hear_compilations()
    save_at_exit(process.steps.finish, process.save)


def hear_compilations() -> None:
    """Begins to hear what this process compiles; Dynamo has just been imported."""
    for process in active:
        process.steps.hear_compilations()
        process.objects.begin()


def leave_uncompiled() -> None:
    """Ends the observation in this process, which has a compiled graph."""
    while active:
        active.pop().leave()
