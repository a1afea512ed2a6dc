"""Reads a list of models as YAML: ``defaults:``, and ``models:`` with targets or mappings of options."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...devices.table import DEVICES
from ...errors import InductorBenchError, UsageError
from ...records.batches.batch import ModelRequest
from ...records.model_sources import bare_library
from ..options import AMP, DRAWN, MODES, RECORDED
from .list_options import Complaints, fits_target, merge

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

BARE = bare_library("space")
"""The source of a name without one."""


_MOST = 10**9
_LONGEST = 2_000_000  # characters; PyYAML reads a few hundred thousand in a second
_SIMPLE = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null"))


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MOST:
        raise ValueError("a whole number of 1 or more")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise ValueError("seconds, above 0")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.strip()


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise ValueError("a list of words")
    return tuple(str(item) for item in value)


def _one_of(known: Mapping[str, str]) -> Callable[[Any], str]:
    def choose(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(" or ".join(known))
        return known[value]

    return choose


_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "args": ("arguments", _words),
    "batch_size": ("batch_size", _whole),
    "training": ("training", _flag),
    "mode": ("mode", _one_of({mode: mode for mode in MODES})),
    "amp": ("amp", _one_of(AMP)),
    "dynamic": ("dynamic", _flag),
    "device": ("device", _one_of({device: device for device in DEVICES})),
    "seed": ("seed", _integer),
    "live": ("live", _flag),
    "repeat": ("repeat", _whole),
    "values": ("values", _one_of({DRAWN: DRAWN, RECORDED: RECORDED})),
    "timeout": ("timeout_s", _seconds),
}
"""Each key of a model, and of ``defaults``, with its field of ``ModelRequest`` and the function that reads it."""

_MODEL_OPTIONS = {"target": ("target", _text), "name": ("name", _text), **_OPTIONS}


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
            f"reading {path} needs PyYAML", "pip install pyyaml, or write the list as text"
        ) from error
    if len(text) > _LONGEST:
        raise UsageError(f"{path} has {len(text)} characters, more than the {_LONGEST} of the longest list")
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{line}: {error.problem or 'it is not YAML'}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    except (ValueError, OverflowError, RecursionError) as error:  # an invalid character, or lists nested too deep
        raise UsageError(f"{path} cannot be read as YAML: {error}") from error
    if root is not None and root.id == "sequence":
        parts = {"models": root}
    elif root is not None and root.id == "mapping":
        parts = {_key(key): value for key, value in root.value}
    else:
        raise UsageError(f"{path} is no list of models", "it needs `models:`, a list of targets")
    for key in sorted(parts.keys() - {"defaults", "models"}):
        complaints.add(_line(parts[key]), f"{key} is neither `defaults` nor `models`")
    defaults: dict[str, Any] = {}
    if parts.get("defaults") is not None and not _is_null(parts["defaults"]):
        defaults = _read_options(parts["defaults"], _OPTIONS, complaints)
    models = parts.get("models")
    if models is None or models.id != "sequence":
        raise UsageError(f"{path} has no list `models:`", "each of its items is a target, or a mapping with one")
    found = [request for item in models.value if (request := _read_model(item, complaints)) is not None]
    return [(request, BARE) for request in merge(found, defaults, defaults=True)]


def _read_model(node: Node, complaints: Complaints) -> ModelRequest | None:
    line = _line(node)
    if node.id == "scalar" and not _is_null(node):
        return ModelRequest("", node.value.strip(), line)
    if node.id != "mapping":
        complaints.add(line, "a model is a target, or a mapping with a `target`")
        return None
    values = _read_options(node, _MODEL_OPTIONS, complaints)
    if "target" not in values:
        if not any(_key(key) == "target" for key, _ in node.value):
            complaints.add(line, "this model has no `target`")
        return None
    request = replace(ModelRequest("", values["target"], line), **values)
    for name in values:
        if name == "arguments" and not fits_target(name, request.target):
            complaints.add(line, f"args go to a script, and {request.target} is not one")
        elif not fits_target(name, request.target):
            complaints.add(line, f"{name} is not for {request.target}: it decides that itself")
    return request


def _read_options(
    node: Node, known: Mapping[str, tuple[str, Callable[[Any], Any]]], complaints: Complaints
) -> dict[str, Any]:
    if node.id != "mapping":
        complaints.add(_line(node), "options are written as `name: value`")
        return {}
    values: dict[str, Any] = {}
    for key, value in _pairs(node):
        line = key.start_mark.line + 1
        name = _key(key)
        if name not in known:
            complaints.add(line, f"{name} is no option; there are {', '.join(known)}")
            continue
        field, read = known[name]
        if field in values:
            complaints.add(line, f"{name} is given twice")
        plain = _plain(value)
        try:
            values[field] = read(plain)
        except ValueError as error:
            complaints.add(line, f"{name} should be {error}, and is {_shorten(plain)}")
    return values


def _pairs(node: Node) -> list[tuple[Node, Node]]:
    mapping: MappingNode = node
    return list(mapping.value)


def _key(node: Node) -> str:
    return str(node.value) if node.id == "scalar" else f"a {node.id}"


def _plain(node: Node) -> Any:
    """The node's value as Python data. Sequences hold scalars only, because no option takes deeper data."""
    if node.id == "sequence":
        return [_scalar(item) for item in node.value]
    return _scalar(node)


def _scalar(node: Node) -> Any:
    """A scalar as Python data; its text where it is not a plain number, boolean or null."""
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


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
