"""The table of model sources: every kind of target that ``breakdown`` accepts, and how each is described and run.

A source with a ``builder`` is a library of models: it is recognised by its kind as a prefix, ``timm:NAME``, and the
builder, a function of ``worker.capture.programs``, makes the model. The other kinds are recognised by what lies on
disk, in ``workflows.modules.targets``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_DECIDED_HERE = frozenset({"training", "optimizer", "mode", "dynamic", "amp", "device", "seed", "live"})
_LIBRARY = _DECIDED_HERE | {"batch_size"}
COMMAND = "command"
"""The kind of a target that is a command line."""


@dataclass(frozen=True)
class ModelSource:
    """One row of the table."""

    kind: str  # as in ``record.json``; of a library also the prefix of its models
    accepted: str = ""  # its form in the hints of errors; empty leaves it out of them
    help: tuple[str, str] | None = None  # ``(form, meaning)`` in ``breakdown --help``
    list_help: tuple[str, str] | None = None  # the same in ``batch --help``
    takes: frozenset[str] = frozenset()  # the options that have a meaning for a program of this kind
    program: bool = False  # whether it is run to compile its modules
    builder: str = ""  # the function of ``worker.capture.programs`` that builds the model, of a library
    example: str = ""  # a name that works, of a library
    install: str = ""  # the hint if the library is not installed
    # the module of the library whose import shows that it loads, if the library itself loads when it is used
    loads: str = ""
    download_marks: str = ":"  # characters that only names of models to be downloaded contain
    bare: str = ""  # the separator (``comma`` or ``space``) of list lines whose bare names are of this library


SOURCES = (
    ModelSource(
        "script",
        accepted="a script",
        help=("model.py", "a script, run untouched; arguments for it after --"),
        takes=frozenset({"arguments", "live", "steps"}),
        program=True,
    ),
    ModelSource(
        COMMAND,
        help=("-- COMMAND...", "a command that starts Python, run as it is:\ntorchrun, python -m, …"),
        takes=frozenset({"arguments", "live", "steps"}),
        program=True,
    ),
    ModelSource(
        "factory",
        accepted="FILE.py:FACTORY",
        help=("model.py:factory", "a callable that returns\n(module_or_function, example_inputs)"),
        takes=_DECIDED_HERE,
        program=True,
    ),
    ModelSource(
        "timm",
        accepted="timm:NAME",
        help=("timm:NAME", "a timm model with random weights"),
        list_help=("timm:NAME", "a timm model with random weights (also a bare name)"),
        takes=_LIBRARY,
        program=True,
        builder="build_timm",
        example="timm:mobilenetv3_small_050",
        install="pip install 'inductor-bench[timm]'",
        bare="space",
    ),
    ModelSource(
        "torchvision",
        help=("torchvision:NAME", "a torchvision model with random weights"),
        list_help=("torchvision:NAME", "a torchvision model"),
        takes=_LIBRARY,
        program=True,
        builder="build_torchvision",
        example="torchvision:resnet18",
        install="pip install torchvision",
    ),
    ModelSource(
        "transformers",
        help=("transformers:CLASS", "a class of transformers, built from its configuration"),
        list_help=(
            "transformers:CLASS",
            "a class of transformers, built from its configuration (a bare name before a comma)",
        ),
        takes=_LIBRARY,
        program=True,
        builder="build_transformers",
        example="transformers:BertForMaskedLM",
        install="pip install 'inductor-bench[transformers]'",
        loads="transformers.modeling_utils",
        download_marks=":/",
        bare="comma",
    ),
    ModelSource("module", accepted="a compiled module", help=("c….py", "a compiled module, or several")),
    ModelSource("log", accepted="a log", help=("run.log", "a log that holds `Compiled module path:` lines")),
    ModelSource("structured-trace", help=("FOLDER", "a TORCH_TRACE folder, or an earlier run, analysed again")),
    ModelSource("run", accepted="a RUN folder"),
    ModelSource("trace"),
)
"""``trace`` is a compiled module with a trace that was recorded elsewhere."""

BY_KIND = {source.kind: source for source in SOURCES}
LIBRARIES = {source.kind: source for source in SOURCES if source.builder}
PROGRAMS = frozenset(source.kind for source in SOURCES if source.program)
NAMED_IN_HINTS = tuple(source.kind for source in LIBRARIES.values() if source.accepted)
"""The libraries that errors name as examples of all."""

COMPILED_HERE = frozenset(source.kind for source in SOURCES if "mode" in source.takes)
"""Programs that this tool writes around a model, and so decides how they run."""


def accepted_hint() -> str:
    """``give a script, FILE.py:FACTORY, …, or a RUN folder``."""
    words = [source.accepted for source in SOURCES if source.accepted]
    return f"give {', '.join(words[:-1])}, or {words[-1]}"


def listed(words: Iterable[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def help_lines(width: int) -> str:
    """The forms of a target and their meanings for ``breakdown --help``, meanings from column ``width`` on."""
    return _lines([source.help for source in SOURCES if source.help], width)


def list_help_lines(width: int) -> str:
    """The same for the lines of a batch's list."""
    return _lines([source.list_help for source in SOURCES if source.list_help], width)


def _lines(rows: list[tuple[str, str]], width: int) -> str:
    indented = "\n".ljust(width + 3)
    return "\n".join(f"  {form:<{width}}{meaning}".replace("\n", indented) for form, meaning in rows)


def bare_library(separator: str) -> str:
    """The library of bare names on lines with this separator."""
    return next(source.kind for source in SOURCES if source.bare == separator)
