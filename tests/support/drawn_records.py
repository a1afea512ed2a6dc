"""Draws records for property tests: any value that a dataclass of ``records`` or ``messages`` may hold."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from inductor_bench.records import base
from inductor_bench.records.code import TensorView
from inductor_bench.records.evidence import GraphCallers, HostSamples
from inductor_bench.store.codec import LARGEST, LARGEST_INT, SMALLEST

DEEPEST = 3
"""The levels of a record that contains itself."""

names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=8)
texts = st.one_of(st.text(max_size=8), st.sampled_from(["\x1b[31mred", "\u202eleft", "a\0b", "x" * 300, "../x", ""]))
measured = st.one_of(st.just(0.0), st.floats(SMALLEST, LARGEST), st.floats(-LARGEST, -SMALLEST))
whole = st.one_of(st.integers(-9, 9), st.integers(-LARGEST_INT, LARGEST_INT))
FORMED: dict[str, st.SearchStrategy[Any]] = {
    "the name of a file": names.map(lambda text: text.replace("/", "_")).filter(base.is_file_name),
    "a path inside the folder": st.lists(names, min_size=1, max_size=3).map("/".join).filter(base.is_relative_path),
    "a name of small letters, digits and dashes": st.from_regex(r"[a-z0-9-]{1,9}", fullmatch=True),
    "the time of a step, from 1e-12 to 1e9 seconds": st.floats(1e-12, 1e9),
    "a finite number": st.floats(allow_nan=False, allow_infinity=False),
}
plain_json = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), measured, texts)
any_json = st.recursive(
    st.one_of(plain_json, st.floats(), st.integers(), st.sampled_from([10**400, -(10**30), 1e999, 5e-324])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def values(hint: Any, depth: int = DEEPEST) -> st.SearchStrategy[Any]:
    """What a field of this type may hold."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*(st.none() if one is NoneType else values(one, depth) for one in arguments))
    if origin is Annotated:
        form = next((mark for mark in arguments if isinstance(mark, base.Form)), None)
        return FORMED[form.name] if form else values(arguments[0], depth)
    if is_dataclass(hint):
        return st.deferred(lambda: records(hint, depth - 1))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return st.lists(values(arguments[0], depth), max_size=2).map(tuple) if depth > 0 else st.just(())
        return st.tuples(*(values(one, depth) for one in arguments))
    if origin is dict:
        return st.dictionaries(texts, values(arguments[1], depth), max_size=2) if depth > 0 else st.just({})
    return {Any: plain_json, str: texts, bool: st.booleans(), int: whole, float: measured, Path: names.map(Path)}[hint]


@cache
def records(kind: Any, depth: int = DEEPEST) -> st.SearchStrategy[Any]:
    """Any instance of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    recorded = (item for item in fields(kind) if item.metadata.get(base.IN_RECORD, True))
    held = {item.name: values(hints[item.name], depth) for item in recorded}
    left_out = (item for item in fields(kind) if not item.metadata.get(base.IN_RECORD, True))
    held |= {item.name: st.none() for item in left_out if item.default is item.default_factory is MISSING}
    if kind is TensorView:
        sides = st.lists(st.tuples(held.pop("shape"), held.pop("stride")).filter(_fit), max_size=1)
        return st.builds(_view, sides, **held)
    if kind is GraphCallers:
        return st.builds(_callers, **held)
    if kind is HostSamples:
        return st.builds(_samples, st.lists(st.integers(0, 9), max_size=3), **held)
    return st.builds(kind, **held)


def _callers(graph: int, lines: tuple[Any, ...], calls: tuple[int, ...]) -> GraphCallers:
    """Calls whose lines are known, or -1."""
    return GraphCallers(graph, lines, tuple(call % (len(lines) + 1) - 1 for call in calls))


def _samples(nodes: list[int], **held: Any) -> HostSamples:
    """Samples whose nodes have parents and frames, and whose stacks have nodes."""
    frames, stacks = held["frames"], held["stacks"]
    nodes = nodes if frames else []
    return HostSamples(
        **held
        | {
            "parents": tuple(number % (place + 1) - 1 for place, number in enumerate(nodes)),
            "frame_of": tuple(number % len(frames) for number in nodes),
            "stacks": tuple(replace(one, node=abs(one.node) % len(nodes)) for one in stacks) if nodes else (),
        }
    )


def _fit(sides: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    return len(sides[0]) == len(sides[1])


def _view(sides: list[tuple[tuple[int, ...], tuple[int, ...]]], **held: Any) -> TensorView:
    shape, stride = sides[0] if sides else ((), ())
    return TensorView(shape=shape, stride=stride, **held)
