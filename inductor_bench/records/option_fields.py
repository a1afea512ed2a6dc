"""Fields of requests that are options of the command line: what their metadata say, and the words that give them.

:func:`option`, :func:`same` and :func:`part` make such fields. ``cli.options`` makes click's options of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from .base import IN_RECORD


class Needs(NamedTuple):
    """Another field without which an option means nothing."""

    field: str  # the name of the other field, or several of which any is enough
    message: str  # what the error says after the option's name
    hint: str  # what to type
    refused: object = None  # a value of the other field with which the option means nothing, beside ``None``


JOINED = {"pairs": "=", "shard": "/", "names": ","}
"""By the kind of an option what stands between the texts of one word."""

ONE_WORD = ("shard", "names")
"""Kinds whose several texts are one word. Other options are repeated for each value."""


@dataclass(frozen=True)
class Option:
    """The option of a field. The type of the field decides the type of its value if nothing else is said."""

    names: tuple[str, ...]  # as click takes them: ("-o", "--output"), ("--training/--inference",)
    help: str = ""
    metavar: str | None = None
    kind: str = ""  # a word of ``cli.options.KINDS`` for a value that is no plain text, number or path
    choices: tuple[str, ...] | Mapping[str, Any] = ()  # the words, or the value of each word
    least: int | None = None  # of a number
    shown: bool | str = False  # whether the help tells the default, or how it tells it
    needs: Needs | None = None
    late: bool = False  # whether the help has it after the options of formats
    shared: bool = False  # whether another option has this name, so that this field takes its value

    @property
    def name(self) -> str:
        """The long name, as in an error: ``--training``."""
        return self.names[-1].partition("/")[0]

    @property
    def key(self) -> str:
        """The key in a list of models: ``batch_size``."""
        return self.name.removeprefix("--").replace("-", "_")

    def words(self, value: object) -> Iterator[str]:
        """The words that give the field this value."""
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
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        return JOINED[self.kind].join(map(str, value)) if isinstance(value, tuple) else str(value)


WHOLE, ASKED, GIVEN = "whole", "asked", "given"
"""What a part holds: the other request, the same if an option asks for it, or only the values that were given."""


class OptionGroup(NamedTuple):
    """The options that a request takes from another one."""

    kind: type  # the other request
    names: tuple[str, ...]  # its fields, in the order of the help
    changes: Mapping[str, Mapping[str, Any]]  # what is said otherwise about the options of some
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
        return _hints(self.kind)[self.name]

    def changed(self, said: Mapping[str, Any]) -> OptionField:
        """The same with something said otherwise about its option."""
        return self._replace(option=replace(self.option, **said))


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


OPTION, PART = "option", "part"
"""The keys of the metadata."""


def option(default: Any, *names: str, recorded: bool = True, **said: Any) -> Any:
    """A field that is an option; ``said`` are the fields of :class:`Option`."""
    return field(default=default, metadata={OPTION: Option(names, **said), IN_RECORD: recorded})


def same(kind: type, name: str, **changes: Any) -> Any:
    """A field that is the same option as that of another request, with some changes."""
    (found,) = (item for item in fields(kind) if item.name == name)
    default = changes.pop("default", found.default)
    return field(default=default, metadata={OPTION: replace(found.metadata[OPTION], **changes)})


def part(kind: type, names: str, form: str = WHOLE, **changes: Mapping[str, Any]) -> Any:
    """A field that takes its options from another request; see :class:`Part`."""
    make: Any = {WHOLE: kind, ASKED: lambda: None, GIVEN: dict}[form]
    return field(default_factory=make, metadata={PART: OptionGroup(kind, tuple(names.split()), changes, form)})


def option_fields(kind: type) -> list[OptionField]:
    """The options of a request and of its parts, in the order of the help."""
    return [one for found in options_by_field(kind).values() for one in found]


def options_by_field(kind: type) -> dict[str, list[OptionField]]:
    """The options of a request by its fields; a field that is a part has several."""
    found: dict[str, list[OptionField]] = {}
    for item in fields(kind):
        taken: OptionGroup | None = item.metadata.get(PART)
        if taken is not None:
            theirs = options_by_field(taken.kind)
            own = [one for name in taken.names for one in theirs[name]]
            found[item.name] = [one.changed(taken.changes.get(one.name, {})) for one in own]
        elif OPTION in item.metadata:
            found[item.name] = [OptionField(item.name, kind, item.metadata[OPTION], item.default)]
    return found


def option_words(request: Any) -> tuple[str, ...]:
    """The options of the command line that give this request: those that differ from their defaults."""
    found: list[str] = []
    for item in fields(request):
        value = getattr(request, item.name)
        if PART in item.metadata:
            found += option_words(value) if is_dataclass(value) else ()
        elif OPTION in item.metadata and value != item.default:
            found += item.metadata[OPTION].words(value)
    return tuple(found)


def recorded(request: Any) -> Any:
    """The request as a record holds it: fields that it leaves out, such as the folder to write, have their default."""
    left_out = [item for item in fields(request) if not item.metadata.get(IN_RECORD, True)]
    return replace(request, **{item.name: item.default for item in left_out})
