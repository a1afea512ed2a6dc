"""Writes what a search found for the user: a module that applies it, the lines to paste, and the change of the file."""

from __future__ import annotations

import html
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import InductorBenchError
from ...records.optimization import (
    ATTENTION,
    COMPILE,
    DYNAMO,
    ENVIRONMENT,
    INDUCTOR,
    LOADER,
    MEMORY_FORMAT,
    OPTIMIZER,
    PINS,
    TORCH,
    Optimization,
    ProgramSetting,
)
from ...source.program_patch import OPTIMIZERS, difference, with_keywords, with_lines
from ...source.standalone_header import docstring, plain
from ...store.files import read_text, remove_file, write_text
from ...store.program_folders import OptimizationFolder
from .tried_program import value_of

_ABOUT = """Settings that make {title} faster.

    import apply
    apply.apply()

Call it before the model is compiled, and before the optimizer and the data loader are made. It needs nothing but torch.
Measured with torch {torch} on {device}: {answer}"""

_MODULE = '''{about}
import functools
import inspect
import os

SETTINGS = {settings}
"""The kind, the name and the value of each setting."""


def apply():
    """Applies all settings to what this process makes from now on."""
    for kind, name, value in SETTINGS:
        globals()["set_" + kind](name, value)


def set_attribute(thing, path, value):
    *places, last = path.split(".")
    for place in places:
        thing = getattr(thing, place)
    setattr(thing, last, value)


def set_inductor(name, value):
    """An option of Inductor."""
    import torch._inductor.config

    set_attribute(torch._inductor.config, name, value)


def set_dynamo(name, value):
    """An option of Dynamo."""
    import torch._dynamo.config

    set_attribute(torch._dynamo.config, name, value)


def set_torch(name, value):
    """An attribute of torch."""
    import torch

    set_attribute(torch, name.removeprefix("torch."), value)


def set_optimizer(name, value):
    """An argument of the optimizers that have it."""
    import torch

    for kind in list(vars(torch.optim).values()):
        if isinstance(kind, type) and name in inspect.signature(kind.__init__).parameters:
            kind.__init__ = with_argument(kind.__init__, name, value)


def set_loader(name, value):
    """An argument of data loaders."""
    from torch.utils.data import DataLoader

    DataLoader.__init__ = with_argument(DataLoader.__init__, name, value)


def set_compile(name, value):
    """An argument of torch.compile."""
    import torch

    torch.compile = with_argument(torch.compile, name, value)


def set_attention(name, value):
    """The order in which backends of attention are taken."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = sdpa_kernel([getattr(SDPBackend, word.strip()) for word in value.split(",")], set_priority=True)
    order.__enter__()
    KEPT.append(order)


def set_layout(name, value):
    """The memory format of modules that are compiled."""
    import torch

    compile = torch.compile

    @functools.wraps(compile)
    def changed(model=None, *arguments, **keywords):
        if isinstance(model, torch.nn.Module):
            model = model.to(memory_format=getattr(torch, name))
        return compile(model, *arguments, **keywords)

    torch.compile = changed


def set_environment(name, value):
    """A variable; one that torch reads when it is imported has to be set before the program starts."""
    os.environ[name] = str(value)


KEPT = []
EXCLUDED = {{"fused": "foreach", "foreach": "fused"}}


def with_argument(function, name, value):
    """The function, which gets an argument whatever it is called with."""

    @functools.wraps(function)
    def changed(*arguments, **keywords):
        other = EXCLUDED.get(name)
        if value and keywords.get(other):
            del keywords[other]
        return function(*arguments, **{{**keywords, name: value}})

    return changed
'''


def write_optimized(found: Optimization, folder: OptimizationFolder, program: Path) -> tuple[str, ...]:
    """Writes the files for the user, over those of an earlier search; returns their names.

    Args:
        found: the search, without secrets.
        folder: its folder.
        program: the program's file, if it is one.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    texts = {}
    if found.winner is not None:
        settings = winning_settings(found)
        texts = {folder.APPLY: module_text(found, settings), folder.LINES: page_text(found, settings, folder.path)}
        changed = diff_of(program, settings)
        if changed:
            texts[folder.DIFF] = changed
    for name in (folder.APPLY, folder.LINES, folder.DIFF):
        if name in texts:
            write_text(folder.path / name, texts[name])
        else:
            remove_file(folder.path / name)
    return tuple(texts)


def winning_settings(found: Optimization) -> tuple[ProgramSetting, ...]:
    """The settings of the rows that are kept."""
    slugs = found.winner.slugs if found.winner is not None else ()
    return tuple(setting for slug in slugs for setting in found.row(slug).settings)


def module_text(found: Optimization, settings: Sequence[ProgramSetting]) -> str:
    """The module ``apply``. The record may be another person's: its texts are literals, or words of the docstring."""
    versions = found.environment.versions
    device = found.environment.device.accelerator or found.environment.host.cpu
    words = {"title": found.title, "torch": versions.torch, "device": device, "answer": _answer(found)}
    about = docstring(_ABOUT.format(**{name: plain(value) for name, value in words.items()}))
    values = [(one.kind, one.setting, value_of(one.value)) for one in settings if one.kind != PINS]
    listed = "[\n" + "".join(f"    {value!r},\n" for value in values) + "]"
    return _MODULE.format(about=about, settings=listed)


def _answer(found: Optimization) -> str:
    winner = found.winner
    return f"{winner.gain.share * 100:.1f}% of the step is saved." if winner is not None else ""


def lines_of(settings: Sequence[ProgramSetting]) -> Iterator[str]:
    """The lines that a user pastes, with what they call for the user's own names."""
    yield from assignments_of(settings)
    for one in settings:
        if one.kind == OPTIMIZER:
            yield f"optimizer = torch.optim.AdamW(…, {one.setting}={one.value})"
        elif one.kind == LOADER:
            yield f"loader = DataLoader(…, {one.setting}={one.value})"
        elif one.kind == COMPILE:
            yield f"model = torch.compile(model, {one.setting}={one.value})"
        elif one.kind == MEMORY_FORMAT:
            yield f"model = model.to(memory_format=torch.{one.setting})"
        elif one.kind == ATTENTION:
            names = ", ".join(f"SDPBackend.{name}" for name in str(value_of(one.value)).split(","))
            yield f"with torch.nn.attention.sdpa_kernel([{names}], set_priority=True):  # around the steps"
        elif one.kind == ENVIRONMENT:
            yield f"# in the shell: export {one.setting}={shlex.quote(str(value_of(one.value)))}"
        elif one.kind == PINS:
            yield "# the configs of the retunes: inductor-bench apply RUN writes RUN/tuned, with a line for each"


def assignments_of(settings: Sequence[ProgramSetting]) -> list[str]:
    """The lines that stand by themselves, after the imports."""
    modules = {INDUCTOR: "torch._inductor.config", DYNAMO: "torch._dynamo.config"}
    needed = dict.fromkeys(modules[one.kind] for one in settings if one.kind in modules)
    lines = [f"import {module}" for module in needed]
    for one in settings:
        if one.kind in modules:
            lines.append(f"{modules[one.kind]}.{one.setting} = {one.value}")
        elif one.kind == TORCH:
            lines.append(f"{one.setting} = {one.value}")
    return lines


def diff_of(program: Path, settings: Sequence[ProgramSetting]) -> str:
    """The change of the program's file that makes all settings; empty if some of them have no place in it."""
    if program.suffix != ".py" or not program.is_file():
        return ""
    try:
        text = before = read_text(program)
    except InductorBenchError:
        return ""
    calls = {OPTIMIZER: OPTIMIZERS, LOADER: frozenset({"DataLoader"}), COMPILE: frozenset({"torch.compile"})}
    for kind, names in calls.items():
        keywords = {one.setting: one.value for one in settings if one.kind == kind}
        changed = with_keywords(text, names, keywords) if keywords else text
        if changed is None:
            return ""
        text = changed
    if any(one.kind not in (*calls, INDUCTOR, DYNAMO, TORCH) for one in settings):
        return ""
    lines = assignments_of(settings)
    changed = with_lines(text, lines) if lines else text
    return difference(before, changed, program.name) if changed is not None and changed != before else ""


def page_text(found: Optimization, settings: Sequence[ProgramSetting], folder: Path) -> str:
    """The page of the folder, in Markdown."""
    place = shlex.quote(os.path.relpath(folder))
    words = found.request.arguments if found.request.kind == "command" else ("python", found.target)
    command = plain(f"inductor-bench apply {place} -- {shlex.join(words)}")
    lines = [
        f"# Settings that make {html.escape(plain(found.title))} faster",
        "",
        _answer(found),
        "",
        "```bash",
        f"{command}    # any program, unchanged",
        "```",
        "",
        "To paste (`settings.diff` has the change of the program's file if each line has a place in it):",
        "",
        "```python",
        *map(plain, lines_of(settings)),
        "```",
        "",
        "Or all of it by one call, from `apply.py`, before the model is compiled and the optimizer is made:",
        "",
        "```python",
        "import apply",
        "apply.apply()",
        "```",
    ]
    return "\n".join(lines) + "\n"
