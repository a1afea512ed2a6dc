"""Replaces the program's own settings by a mode, by replacing ``torch.compile``, and reports the changes."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ...messages.observed import CAPTURE_FOLDER, MODE, ModeChange, ModeReport
from ...records.comparison import CHANNELS_LAST, CUDNN_BENCHMARK, EAGER, TF32, Agreement
from ...store import codec
from ..upstream import inductor
from ..upstream import inductor as compiling

INDUCTOR = "inductor"

WORDS = {"true": True, "false": False, "none": None}
"""Values of options as they are typed in a shell."""


class ModeSetter:
    """Replaces the settings of the program's calls of ``torch.compile``.

    Args:
        change: the new settings.
        path: the file of the report.
    """

    def __init__(self, change: ModeChange, path: Path) -> None:
        self.change = change
        self.report = ModeReport()
        self.modules: list[ModuleType] = []
        """The compiled modules of this process."""
        self._path = path
        self._owner = os.getpid()
        self._is_measured = False

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function that replaces ``torch.compile``."""

        @functools.wraps(original)
        def compile(model: Any = None, **keywords: Any) -> Any:
            if model is None:  # a decorator with arguments: torch calls this function again with the model
                return original(model, **keywords)
            self._set_switches(model)
            return original(model, **self._changed(keywords))

        return compile

    def _changed(self, keywords: dict[str, Any]) -> dict[str, Any]:
        backend = keywords.get("backend") or INDUCTOR
        if self.change.mode == EAGER:
            return keywords
        if keywords.get("disable"):
            return self._keep("disable=True", keywords)
        if backend != INDUCTOR:
            name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
            return self._keep(f"backend {name}", keywords)
        own = dict(keywords.get("options") or {})
        self.report = replace(self.report, calls=self.report.calls + 1)
        if own:
            self._note(f"the program's own options are kept: {', '.join(sorted(map(str, own)))}")
        self.save()
        if not own and not self.change.options:
            return {**keywords, "mode": self.change.mode, "options": None}
        given = {name: read_value(text) for name, text in self.change.options.items()}
        options = {**own, **compiling.list_options_of_mode(self.change.mode, keywords.get("dynamic")), **given}
        return {**keywords, "mode": None, "options": options}

    def _keep(self, reason: str, keywords: dict[str, Any]) -> dict[str, Any]:
        self.report = replace(self.report, kept=(*self.report.kept, reason))
        self.save()
        return keywords

    def _set_switches(self, model: Any) -> None:
        import torch

        switches = self.change.switches
        if TF32 in switches:
            torch.set_float32_matmul_precision("high")
        if CUDNN_BENCHMARK in switches:
            torch.backends.cudnn.benchmark = True
        if CHANNELS_LAST in switches:
            module = getattr(model, "__self__", model)  # ``Module.compile`` passes a method
            if isinstance(module, torch.nn.Module):
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            else:
                self._note("channels-last changed nothing: what is compiled is a function, not a module")

    def _note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report = replace(self.report, notes=(*self.report.notes, text))

    def note_agreement(self, agreement: Agreement) -> None:
        """Notes the comparison of the outputs."""
        self.report = replace(self.report, agreement=agreement)
        self.save()

    def note_measured(self, device: str) -> None:
        """Notes memory, threads, graphs and configs at the end of the measurement. Later calls do nothing."""
        if self._is_measured or os.getpid() != self._owner:
            return
        self._is_measured = True
        import torch

        from ..device.runtimes import find_runtime

        self.report = replace(
            self.report,
            graph_breaks=compiling.count_graph_breaks(),
            peak_memory_bytes=find_runtime(device).peak_memory_bytes(),
            threads=torch.get_num_threads(),
            compiled_graphs=compiling.count_compiled_graphs(),
            configs=_hash_of_configs(self.modules),
        )
        self.save()

    def save(self) -> None:
        """Writes the report, over an earlier one. A forked child writes none."""
        if os.getpid() != self._owner:
            return
        temporary = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):  # the program goes on; the parent misses the report
            temporary.write_text(json.dumps(codec.encode(self.report)), encoding="utf-8")
            temporary.replace(self._path)


def _hash_of_configs(modules: Iterable[ModuleType]) -> str:
    """A hash of the configs of the Triton kernels that ran, in any order of the modules; empty without kernels."""
    kernels = [kernel for module in modules for kernel in inductor.list_compiled_kernels(vars(module)).items()]
    texts = sorted(json.dumps([name, kernel.config], sort_keys=True) for name, kernel in kernels)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] if texts else ""


def read_value(text: str) -> Any:
    """Returns the value of an option: a Python literal, ``true``, ``false``, ``none``, or otherwise the text itself."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


active: list[ModeSetter] = []
"""The setter of this process, if it has one."""


def install(torch: Any) -> None:
    """Replaces ``torch.compile`` in the freshly imported module ``torch``, with the settings of the variable."""
    change = codec.decode(ModeChange, json.loads(os.environ[MODE]))
    setter = ModeSetter(change, Path(os.environ[CAPTURE_FOLDER]) / f"{os.getpid()}.mode.json")
    torch.compile = setter.wrap(torch.compile)
    active.append(setter)


def note_module(module: ModuleType) -> None:
    """Notes a compiled module that this process loads, if it has a setter."""
    for setter in active:
        setter.modules.append(module)


def note_measured(device: str) -> None:
    """Reports what the program needed, if this process has a setter."""
    for setter in active:
        setter.note_measured(device)
