"""The parts of requests: fields that are options of the command line, and the sources of models.

A source with a ``builder`` is a library of models: it is recognised by its kind as a prefix, ``timm:NAME``, and the
builder, a function of ``worker.capture.programs``, makes the model. The other kinds are recognised by what lies on
disk, in ``workflows.modules.targets``.

:func:`option`, :func:`same` and :func:`part` make such fields. ``cli.presentation`` makes click's options of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from ..errors import UsageError
from .base import IN_RECORD

_DECIDED_HERE = frozenset({"training", "optimizer", "mode", "dynamic", "amp", "device", "seed", "live"})
_LIBRARY = _DECIDED_HERE | {"batch_size"}
COMMAND = "command"
"""The kind of a target that is a command line."""

PROCESS = "process"
"""The kind of a target that is a block of a process: of a notebook, a test, or one of several ranks."""


@dataclass(frozen=True)
class ModelSource:
    """A kind of target: how it is typed, what the help says of it, and which options it takes."""

    kind: str  # its name in ``record.json``; for a library also the prefix of its models
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
        help=("transformers:CLASS", "a class of transformers, built from its default configuration"),
        list_help=(
            "transformers:CLASS",
            "a class of transformers, built from its default configuration (a bare name before a comma)",
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
    ModelSource(PROCESS),
)
"""``trace`` is a compiled module with a trace that was recorded elsewhere. A process is observed from within, and no
command line runs it again."""

BY_KIND = {source.kind: source for source in SOURCES}
LIBRARIES = {source.kind: source for source in SOURCES if source.builder}
PROGRAMS = frozenset(source.kind for source in SOURCES if source.program)
NAMED_IN_HINTS = tuple(source.kind for source in LIBRARIES.values() if source.accepted)
"""The libraries that errors name as examples of all."""


def names_program(target: str) -> bool:
    """Whether the name of a target is that of a Python file, a factory, or a library's model, and of no result."""
    name, colon, _ = target.partition(":")
    return name.endswith(".py") or (bool(colon) and name in LIBRARIES)


COMPILED_HERE = frozenset(source.kind for source in SOURCES if "mode" in source.takes)
"""Kinds of targets for which this tool writes the program around the model, and decides how it runs."""


def write_accepted_hint() -> str:
    """``give a script, FILE.py:FACTORY, …, or a RUN folder``."""
    words = [source.accepted for source in SOURCES if source.accepted]
    return f"give {', '.join(words[:-1])}, or {words[-1]}"


def join_by_or(words: Iterable[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def write_help_lines(width: int) -> str:
    """The forms of a target and their meanings for ``breakdown --help``, meanings from column ``width`` on."""
    return _write_lines([source.help for source in SOURCES if source.help], width)


def write_list_help_lines(width: int) -> str:
    """The forms and meanings of the lines of a batch's list."""
    return _write_lines([source.list_help for source in SOURCES if source.list_help], width)


def _write_lines(rows: list[tuple[str, str]], width: int) -> str:
    indented = "\n".ljust(width + 3)
    return "\n".join(f"  {form:<{width}}{meaning}".replace("\n", indented) for form, meaning in rows)


def find_bare_library(separator: str) -> str:
    """The library of bare names on lines with this separator."""
    return next(source.kind for source in SOURCES if source.bare == separator)


class Needs(NamedTuple):
    """Another field that an option needs to have an effect."""

    field: str  # the name of the other field, or several names, of which one is enough
    message: str  # what the error says after the option's name
    hint: str  # what to type
    refused: object = None  # a value of the other field, beside ``None``, with which the option has no effect


JOINED = {"pairs": "=", "shard": "/", "names": ","}
"""What joins the texts of one word, by the kind of the option."""

ONE_WORD = ("shard", "names")
"""Kinds of options that take several values as one word. Other options are repeated for each value."""


@dataclass(frozen=True)
class Option:
    """The option of a field. The type of the field decides the type of its value if nothing else is said."""

    names: tuple[str, ...]  # as click takes them: ("-o", "--output"), ("--training/--inference",)
    help: str = ""
    metavar: str | None = None
    kind: str = ""  # a word of ``cli.presentation.KINDS`` for a value that is no plain text, number or path
    choices: tuple[str, ...] | Mapping[str, Any] = ()  # the words, or the value of each word
    least: int | None = None  # of a number
    shown: bool | str = False  # whether the help shows the default; or the text that it shows for the default
    needs: Needs | None = None
    late: bool = False  # whether the help has it after the options of formats
    shared: bool = False  # whether another field has this option, so that this field takes the other field's value

    @property
    def name(self) -> str:
        """The long name, as in an error: ``--training``."""
        return self.names[-1].partition("/")[0]

    @property
    def key(self) -> str:
        """The key in a list of models: ``batch_size``."""
        return self.name.removeprefix("--").replace("-", "_")

    def words(self, value: object) -> Iterator[str]:
        """Yields the command-line words that give the field this value."""
        if isinstance(value, bool):
            yield self.name if value else self.names[-1].rpartition("/")[2]
            return
        several = isinstance(value, tuple) and self.kind not in ONE_WORD
        for one in value if several else (value,):  # type: ignore[attr-defined]
            text = self._text(one)
            yield from [f"{self.name}={text}"] if text.startswith("-") else [self.name, text]

    def _text(self, value: object) -> str:
        if isinstance(self.choices, Mapping):
            return next(word for word, chosen in self.choices.items() if chosen == value)
        if isinstance(value, float):
            return f"{Decimal(repr(value)).normalize():f}"  # no exponent: no option reads one
        return JOINED[self.kind].join(map(str, value)) if isinstance(value, tuple) else str(value)


WHOLE, ASKED, GIVEN = "whole", "asked", "given"
"""What a part holds: the whole other request; the whole other request, if an option asks for it; or only the values
that were given."""


class OptionGroup(NamedTuple):
    """The options that a request takes from another one."""

    kind: type  # the other request
    names: tuple[str, ...]  # its fields, in the order of the help
    changes: Mapping[str, Mapping[str, Any]]  # the changes of some of these options
    form: str  # :data:`WHOLE`, :data:`ASKED` or :data:`GIVEN`


class OptionField(NamedTuple):
    """A field that is an option, and its default."""

    name: str
    kind: type  # the request that has it
    option: Option
    default: Any

    @property
    def hint(self) -> Any:
        """The type of the field."""
        return _find_type_hints(self.kind)[self.name]

    def changed(self, said: Mapping[str, Any]) -> OptionField:
        """Returns this field with other values of its option: ``said`` are fields of :class:`Option`."""
        return self._replace(option=replace(self.option, **said))


@cache
def _find_type_hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


OPTION, PART = "option", "part"
"""The keys of the metadata."""


def option(default: Any, *names: str, recorded: bool = True, **said: Any) -> Any:
    """A field that is an option; ``said`` are the fields of :class:`Option`."""
    return field(default=default, metadata={OPTION: Option(names, **said), IN_RECORD: recorded})


def same(kind: type, name: str, **changes: Any) -> Any:
    """A field with the same option as a field of another request, with some changes."""
    (found,) = (item for item in fields(kind) if item.name == name)
    default = changes.pop("default", found.default)
    return field(default=default, metadata={OPTION: replace(found.metadata[OPTION], **changes)})


def part(kind: type, names: str, form: str = WHOLE, **changes: Mapping[str, Any]) -> Any:
    """A field that takes its options from another request; see :class:`OptionGroup`."""
    make: Any = {WHOLE: kind, ASKED: lambda: None, GIVEN: dict}[form]
    return field(default_factory=make, metadata={PART: OptionGroup(kind, tuple(names.split()), changes, form)})


def list_option_fields(kind: type) -> list[OptionField]:
    """The options of a request and of its parts, in the order of the help."""
    return [one for found in list_options_by_field(kind).values() for one in found]


def list_options_by_field(kind: type) -> dict[str, list[OptionField]]:
    """The options of a request by its fields; a field that is a part has several."""
    found: dict[str, list[OptionField]] = {}
    for item in fields(kind):
        taken: OptionGroup | None = item.metadata.get(PART)
        if taken is not None:
            theirs = list_options_by_field(taken.kind)
            own = [one for name in taken.names for one in theirs[name]]
            found[item.name] = [one.changed(taken.changes.get(one.name, {})) for one in own]
        elif OPTION in item.metadata:
            found[item.name] = [OptionField(item.name, kind, item.metadata[OPTION], item.default)]
    return found


def list_option_words(request: Any) -> tuple[str, ...]:
    """The options of the command line that give this request: those that differ from their defaults."""
    found: list[str] = []
    for item in fields(request):
        value = getattr(request, item.name)
        if PART in item.metadata:
            found += list_option_words(value) if is_dataclass(value) else ()
        elif OPTION in item.metadata and value != item.default:
            found += item.metadata[OPTION].words(value)
    return tuple(found)


def as_recorded(request: Any) -> Any:
    """The request as a record holds it. Fields that the record leaves out, such as the folder to write, have their
    default."""
    left_out = [item for item in fields(request) if not item.metadata.get(IN_RECORD, True)]
    return replace(request, **{item.name: item.default for item in left_out})


def make_target_fields(names: Sequence[str], accepted: str = write_accepted_hint()) -> Mapping[str, Any]:
    """The fields of a request that name its targets: none, one, or several compiled modules.

    Raises:
        UsageError: a name is empty, for example because a shell variable is not set; ``accepted`` says what a target
            is.
    """
    if "" in names:
        raise UsageError("the target is an empty name", accepted, "missing-target")
    target, *others = names or ("",)
    return {"target": target, "others": tuple(others)}
