"""Reads a list of models as text, ``name batch`` or ``name,batch``, or as YAML; errors name the lines."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..devices.table import DEVICES
from ..errors import InductorBenchError, UsageError
from ..records.request import BatchRequest, ModelRequest
from ..records.request_fields import (
    BY_KIND,
    LIBRARIES,
    ModelSource,
    OptionField,
    find_bare_library,
    list_options_by_field,
)
from ..store.folder import BATCH
from .modules.targets import find_path_kind

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

# What all forms of lists share: the collection of complaints, and the options that fit a target.


YAML = (".yaml", ".yml")
MOST_COMPLAINTS = 5
FORMS = "a line is `NAME`, `NAME BATCH` or `NAME,BATCH`; # begins a comment"

_DECIDED_BY_SOURCE = ("arguments", "batch_size", "training", "optimizer", "mode", "dynamic", "amp", "device", "seed")

FILE = re.compile(r"\.py(:\w+)?$")


class Complaints:
    """Collects the errors of a list by line, and raises them together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []

    def add(self, line: int, text: str) -> None:
        self._found.append((line, text))

    def raise_any(self) -> None:
        """Raises one error with all complaints.

        Raises:
            UsageError: there is a complaint.
        """
        if not self._found:
            return
        shown = [f"line {line}: {text}" for line, text in sorted(self._found)[:MOST_COMPLAINTS]]
        more = f"; and {len(self._found) - len(shown)} more" if len(self._found) > len(shown) else ""
        hint = "each model is a target, or has a `target:` and options" if self._path.suffix in YAML else FORMS
        raise UsageError(f"{self._path}, {'; '.join(shown)}{more}", hint, "bad-list")


def merge_batch_options(requests: Iterable[ModelRequest], options: Mapping[str, Any]) -> list[ModelRequest]:
    """Returns the requests with the options of the whole batch, as far as they fit their targets."""
    return [replace(request, **_keep_fitting_options(options, request.target)) for request in requests]


def _keep_fitting_options(options: Mapping[str, Any], target: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if fits_target(name, target)}


def fits_target(option: str, target: str) -> bool:
    """Whether an option has a meaning for a target; a script decides most options itself."""
    return option not in _DECIDED_BY_SOURCE or option in find_source(target).takes


def find_source(target: str) -> ModelSource:
    """Returns the source of a target in a list. A name without a known source is the name of a library's model."""
    if target.endswith(".py"):
        return BY_KIND["script"]
    if FILE.search(target):
        return BY_KIND["factory"]
    return LIBRARIES.get(target.partition(":")[0], BY_KIND[find_bare_library("space")])


# Reads a list of models as YAML: ``defaults:``, and ``models:`` with targets or mappings of options.


BARE = find_bare_library("space")
"""The source of a name without one."""


_MOST = 10**9
_LONGEST = 2_000_000  # characters; PyYAML reads a few hundred thousand in a second
_SIMPLE = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null"))


def _read_whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MOST:
        raise ValueError("a whole number of 1 or more")
    return value


def _read_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("a whole number")
    return value


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _read_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise ValueError("seconds, above 0")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.strip()


def _read_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise ValueError("a list of words")
    return tuple(str(item) for item in value)


def _make_choice_reader(known: Mapping[str, Any]) -> Callable[[Any], Any]:
    def choose(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise ValueError(" or ".join(known))
        return known[value]

    return choose


def _choose_reader(one: OptionField) -> Callable[[Any], Any]:
    """The function that reads the value of an option."""
    option, hint = one.option, str(one.hint)
    if option.kind == "type of device":
        return _make_choice_reader({device: device for device in DEVICES})
    if option.choices:
        return _make_choice_reader(
            option.choices if isinstance(option.choices, Mapping) else {one: one for one in option.choices}
        )
    if option.kind == "seconds":
        return _read_seconds
    if "bool" in hint:
        return _read_flag
    return _read_whole_number if option.least else _read_integer if "int" in hint else _text


Known = dict[str, tuple[str, Callable[[Any], Any]]]
"""The field of ``ModelRequest`` and the function that reads it, by key."""

_OPTIONS: Known = {
    "args": ("arguments", _read_words),
    **{one.option.key: (one.name, _choose_reader(one)) for one in list_options_by_field(BatchRequest)["overrides"]},
}
"""The keys of a model, and of ``defaults``: the options of ``batch`` for all models."""

_MODEL_OPTIONS: Known = {"target": ("target", _text), "name": ("name", _text), **_OPTIONS}


def read_yaml(text: str, path: Path, complaints: Complaints) -> list[tuple[ModelRequest, str]]:
    """Reads the models of a YAML list; errors in its items are added to ``complaints``.

    Raises:
        UsageError: the text is not YAML, or has no list of models.
        InductorBenchError: PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise InductorBenchError(
            f"reading {path} needs PyYAML", "pip install pyyaml, or write the list as text", "missing-package"
        ) from error
    if len(text) > _LONGEST:
        raise UsageError(
            f"{path} has {len(text)} characters, more than the {_LONGEST} of the longest list", name="bad-list"
        )
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{line}: {error.problem or 'it is not YAML'}", name="bad-list") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}", name="bad-list") from error
    except (ValueError, OverflowError, RecursionError) as error:  # an invalid character, or lists nested too deep
        raise UsageError(f"{path} cannot be read as YAML: {error}", name="bad-list") from error
    if root is not None and root.id == "sequence":
        parts = {"models": root}
    elif root is not None and root.id == "mapping":
        parts = {_read_key(key): value for key, value in root.value}
    else:
        raise UsageError(f"{path} is no list of models", "it needs `models:`, a list of targets", "bad-list")
    for key in sorted(parts.keys() - {"defaults", "models"}):
        complaints.add(_find_line(parts[key]), f"{key} is neither `defaults` nor `models`")
    defaults: dict[str, Any] = {}
    if parts.get("defaults") is not None and not _is_null(parts["defaults"]):
        defaults = _read_options(parts["defaults"], _OPTIONS, complaints)
    models = parts.get("models")
    if models is None or models.id != "sequence":
        raise UsageError(
            f"{path} has no list `models:`", "each of its items is a target, or a mapping with one", "bad-list"
        )
    found = (_read_model(item, defaults, complaints) for item in models.value)
    return [(request, BARE) for request in found if request is not None]


def _read_model(node: Node, defaults: Mapping[str, Any], complaints: Complaints) -> ModelRequest | None:
    line = _find_line(node)
    if node.id == "scalar" and not _is_null(node):
        return _request(line, {"target": node.value.strip()}, defaults)
    if node.id != "mapping":
        complaints.add(line, "a model is a target, or a mapping with a `target`")
        return None
    values = _read_options(node, _MODEL_OPTIONS, complaints)
    if "target" not in values:
        if not any(_read_key(key) == "target" for key, _ in node.value):
            complaints.add(line, "this model has no `target`")
        return None
    target = values["target"]
    for name in values:
        if name == "arguments" and not fits_target(name, target):
            complaints.add(line, f"args go to a script, and {target} is not one")
        elif not fits_target(name, target):
            complaints.add(line, f"{name} is not for {target}: it decides that itself")
    return _request(line, values, defaults)


def _request(line: int, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> ModelRequest:
    return ModelRequest(**{"name": "", **_keep_fitting_options(defaults, values["target"]), **values}, line=line)


def _read_options(node: Node, known: Known, complaints: Complaints) -> dict[str, Any]:
    if node.id != "mapping":
        complaints.add(_find_line(node), "options are written as `name: value`")
        return {}
    values: dict[str, Any] = {}
    for key, value in _list_pairs(node):
        line = key.start_mark.line + 1
        name = _read_key(key)
        if name not in known:
            complaints.add(line, f"{name} is no option; there are {', '.join(known)}")
            continue
        field, read = known[name]
        if field in values:
            complaints.add(line, f"{name} is given twice")
        plain = _make_plain_value(value)
        try:
            values[field] = read(plain)
        except ValueError as error:
            complaints.add(line, f"{name} should be {error}, and is {_shorten(plain)}")
    return values


def _list_pairs(node: Node) -> list[tuple[Node, Node]]:
    mapping: MappingNode = node
    return list(mapping.value)


def _read_key(node: Node) -> str:
    return str(node.value) if node.id == "scalar" else f"a {node.id}"


def _make_plain_value(node: Node) -> Any:
    """Returns the node's value as Python data. Sequences hold only scalars, because no option takes deeper data."""
    if node.id == "sequence":
        return [_read_scalar(item) for item in node.value]
    return _read_scalar(node)


def _read_scalar(node: Node) -> Any:
    """A scalar as Python data; its text if it is not a plain number, boolean or null."""
    import yaml

    if node.id != "scalar":
        return {"sequence": [], "mapping": {}}[node.id]
    loader = yaml.SafeLoader("")
    implied = loader.resolve(yaml.ScalarNode, node.value, (True, False))
    if node.tag == implied and node.tag in _SIMPLE and len(node.value) < 100:
        return loader.construct_object(node)
    return node.value


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _find_line(node: Node) -> int:
    return int(node.start_mark.line) + 1


_COMMENT = re.compile(r"(?:^|\s)#.*")
_COMMA, _SPACE = find_bare_library("comma"), find_bare_library("space")
"""The libraries of names without a prefix: PyTorch's suites write one list with commas, the other with spaces."""


def read_list(path: Path, source: str | None = None) -> tuple[ModelRequest, ...]:
    """Reads the models of a list, with the options of the list.

    Args:
        path: the list.
        source: the source of names without one; ``None`` to infer it from the form of their lines.

    Raises:
        UsageError: the list is missing, is a folder, or has unreadable lines; the error names all of them.
    """
    text, complaints = _read_text(path), Complaints(path)
    found = read_yaml(text, path, complaints) if path.suffix in YAML else list(_read_lines(text, complaints))
    requests = []
    for request, form in found:
        try:
            requests.append(replace(request, target=_resolve(request.target, source or form, path.parent)))
        except InductorBenchError as error:
            complaints.add(request.line, error.message)
    _find_duplicates(requests, complaints)
    complaints.raise_any()
    if not requests:
        raise UsageError(f"{path} lists no model", FORMS, "bad-list")
    return tuple(_add_names(requests))


def select_requests(
    requests: Sequence[ModelRequest], filters: Sequence[str], excludes: Sequence[str], shard: tuple[int, int] | None
) -> tuple[ModelRequest, ...]:
    """The requests that match any filter and no exclusion; of these, every n-th if a shard is given.

    Args:
        requests: all requests of the list.
        filters, excludes: globs, or parts of names.
        shard: ``(i, n)``, with ``i`` from 1 to ``n``.

    Raises:
        UsageError: no request is left.
    """
    chosen = [
        request
        for request in requests
        if (not filters or _is_selected(request, filters)) and not (excludes and _is_selected(request, excludes))
    ]
    if not chosen:
        raise UsageError(
            f"--filter and --exclude leave none of the {len(requests)} models",
            "--list shows their names",
            "no-fitting-model",
        )
    if shard is not None:
        index, count = shard
        chosen = chosen[index - 1 :: count]
        if not chosen:
            raise UsageError(
                f"shard {index}/{count} is empty: fewer models than shards", "take fewer shards", "no-fitting-model"
            )
    return tuple(chosen)


def _is_selected(request: ModelRequest, patterns: Iterable[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(text, pattern if re.search(r"[*?\[]", pattern) else f"*{pattern}*")
        for pattern in patterns
        for text in (request.name, request.target)
    )


MOST_CHARACTERS = 4_000_000
"""The largest number of characters that a list may have."""


def _read_text(path: Path) -> str:
    if find_path_kind(path) == "folder":
        if find_path_kind(path / BATCH) == "file":
            raise UsageError(f"{path} is a batch, not a list", f"show it: inductor-bench report {path}", "wrong-target")
        inside = sorted(file for end in (".txt", *YAML) for file in path.glob(f"*{end}"))
        hint = f"try: inductor-bench batch {inside[0]}" if inside else "give a file with a model on each line"
        raise UsageError(f"{path} is a folder, not a list", hint, "wrong-target")
    try:
        # A pipe without a writer ends at once; a pipe with a writer, such as `<(…)`, is read to its end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, encoding="utf-8-sig") as stream:
            text = stream.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise UsageError(
            f"the list {path} does not exist", "give a file with a model on each line", "no-such-target"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", name="unreadable") from error
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{path} is not a list of models, but binary data", FORMS, "bad-list")
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{path} is longer than a list of models, {MOST_CHARACTERS:,} characters", FORMS, "bad-list")
    return text


def _read_lines(text: str, complaints: Complaints) -> Iterator[tuple[ModelRequest, str]]:
    """Reads the request of each line, with the source of its name if the line does not name one."""
    for number, line in enumerate(text.splitlines(), 1):
        content = _COMMENT.sub("", line).strip()
        if not content:
            continue
        comma = "," in content
        target, *rest = [word.strip() for word in content.split(",")] if comma else content.split()
        if not target or len(rest) > 1:
            complaints.add(number, f"{content!r} is not a name and a batch size")
        elif rest and not (rest[0].isascii() and rest[0].isdigit() and int(rest[0][:10]) and len(rest[0]) < 10):
            complaints.add(number, f"the batch size of {target} is {rest[0]!r}, not a whole number of 1 or more")
        else:
            size = int(rest[0]) if rest else None
            yield ModelRequest(target, name="", line=number, batch_size=size), _COMMA if comma else _SPACE


def _resolve(target: str, form: str, folder: Path) -> str:
    """Returns the target in the form that ``breakdown`` takes: a source with a name, or an absolute path."""
    source, colon, name = target.partition(":")
    if colon and source in LIBRARIES:
        if not name:
            raise UsageError(f"{target} needs a model name", name="bad-list")
        return target
    file, colon, function = (
        target.rpartition(":") if not target.endswith(".py") and FILE.search(target) else (target, "", "")
    )
    if file.endswith(".py"):
        path = next((path for path in (folder / file, Path(file)) if find_path_kind(path) == "file"), None)
        if path is None:
            raise UsageError(f"{file} does not exist", name="bad-list")
        return f"{path.resolve()}{colon}{function}"
    if ":" in target:
        raise UsageError(
            f"{source}: is not a source of models; these are: {', '.join(f'{one}:' for one in LIBRARIES)}",
            name="bad-list",
        )
    return f"{form}:{target}"


def _find_duplicates(requests: Sequence[ModelRequest], complaints: Complaints) -> None:
    seen: dict[ModelRequest, int] = {}
    for request in requests:
        bare = replace(request, line=0)
        if bare in seen:
            complaints.add(request.line, f"{request.target} stands on line {seen[bare]} already")
        else:
            seen[bare] = request.line


def _add_names(requests: Iterable[ModelRequest]) -> Iterator[ModelRequest]:
    """The requests with unique names, which are file names too."""
    taken: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}
    for request in requests:
        stem = make_plain_name(request.name or request.target)
        candidates = [stem, f"{stem}-batch{request.batch_size}" if request.batch_size else stem]
        more = (f"{stem}-{number}" for number in numbers.setdefault(stem.lower(), itertools.count(2)))
        name = next(name for name in itertools.chain(candidates, more) if name.lower() not in taken)
        taken.add(name.lower())
        yield replace(request, name=name)


def make_plain_name(target: str) -> str:
    """Makes a file name for a target: the name of its model, or its file name with its factory."""
    source, colon, name = target.partition(":")
    if not (colon and source in LIBRARIES):
        file, colon, function = target.rpartition(":") if ".py:" in target else (target, "", "")
        name = Path(file).name.removesuffix(".py") + (f"-{function}" if function else "")
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).strip("-.")[:80] or "model"
