"""Consecutive calls of a compiled module as one call: their inputs, their outputs, and one call that replaces them.

A stretch is one library call with an ``out`` argument, or several such calls and calls of generated kernels. Whatever
the numbers of buffers and kernels are, the same calls with the same sizes have the same id.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from ..errors import InductorBenchError
from ..records.code import Argument, KernelDefinition, Launch, ModuleSource, Storage, TensorView, Values
from .calls import find_entry, write_dotted_name
from .generated_text import Buffer
from .module_reader import parse_module
from .static_calls import LaunchReader, call_parts
from .static_wrapper import ALIGNMENT, KernelCall, StorageView, Value, find_item_size, is_drawn, lay_out

# The calls of a module that can be in a stretch.

OUT = ".out"
_ALLOCATORS = ("empty_strided_cpu", "empty_strided_cuda", "empty_strided")
_ASSERTIONS = ("assert_size_stride", "assert_alignment")
_STREAM = "get_raw_stream"


@dataclass(frozen=True)
class Site:
    """A call of a kernel or of an operator with an ``out`` argument."""

    line: int  # in the module, from 1
    kernel: KernelDefinition | None
    operator: str | None  # the overload of a library call
    values: tuple[Value | None, ...]  # what is passed, positional arguments first
    expressions: tuple[str, ...]  # the same as the module has it
    uses: tuple[Buffer, ...]  # of the tensors among the values, in order
    keywords: tuple[str, ...] = ()  # the names of the last values

    @property
    def target(self) -> str:
        """Returns what is called, independent of its name in this module."""
        return self.kernel.kernel_id if self.kernel is not None else str(self.operator)

    @property
    def name(self) -> str:
        """Returns the name of what is called in this module."""
        return self.kernel.name if self.kernel is not None else str(self.operator)


class _SiteReader(LaunchReader):
    """Collects the calls that can be in a stretch."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        super().__init__(tree, source)
        self.sites: list[Site] = []
        self._statement: ast.stmt = ast.Pass()

    @property
    def sizes(self) -> Sequence[int]:
        """Returns the bytes of each storage."""
        return self._sizes

    def follow(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement = statement
            super().follow([statement])

    def receive_kernel_call(self, alternatives: Sequence[KernelCall]) -> None:
        super().receive_kernel_call(alternatives)
        kernel, values = alternatives[0]
        call, pointers = self._called(), self._read_pointers(kernel)
        tensors = [value for value in values if isinstance(value, StorageView)]
        if call is None or len(alternatives) > 1 or (call.keywords != [] and kernel.language == "cpp"):
            return
        if pointers is None or len(pointers) != len(tensors):
            return
        given, uses = (tuple(self._with_dtypes(values, pointers)), tuple(pointer.use for pointer in pointers))
        texts = tuple(map(ast.unparse, call.args))
        self.sites.append(Site(self._statement.lineno, kernel, None, given, texts, uses))

    def receive_library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        dtypes, parts = super().receive_library_call(call), call_parts(call)
        if parts is None or not parts[0].endswith(OUT) or self._called() is not call:
            return dtypes
        nodes = [*parts[1], *(keyword.value for keyword in call.keywords)]
        names = tuple(str(keyword.arg) for keyword in call.keywords)
        values = tuple(map(self._evaluate, nodes))
        places = [place for place, value in enumerate(values) if isinstance(value, StorageView)]
        out = len(parts[1]) + names.index("out")
        uses = tuple(Buffer("", written=place == out, output_only=place == out) for place in places)
        texts = tuple(map(ast.unparse, nodes))
        self.sites.append(Site(self._statement.lineno, None, parts[0], values, texts, uses, names))
        return dtypes

    def _called(self) -> ast.Call | None:
        """Returns the call that a statement consists of; ``None`` if it contains anything else."""
        value = self._statement.value if isinstance(self._statement, ast.Expr) else None
        return value if isinstance(value, ast.Call) else None


# A stretch.


@dataclass(frozen=True)
class GroupCall:
    """One of the calls of a stretch. Its launch has the storages of the whole."""

    kernel: KernelDefinition | None
    launch: Launch
    line: int
    places: tuple[int | None, ...]  # the argument of the whole that each argument is; ``None`` for another value
    uses: tuple[Buffer, ...]

    @property
    def target(self) -> str:
        return self.kernel.kernel_id if self.kernel is not None else str(self.launch.operator)


@dataclass(frozen=True)
class CallGroup:
    """Consecutive calls as one call."""

    parts: tuple[GroupCall, ...]
    launch: Launch  # of the whole: tensors alone; those that it only needs for itself are the last ones
    expressions: tuple[str, ...]  # what the module passes for each of these
    required: int  # the number of arguments before those that it only needs for itself
    output_only: tuple[int, ...]  # the arguments of which nothing is read that was there before
    fresh: tuple[str, ...] = ()  # the variables of memory that is allocated for the stretch alone

    @property
    def id(self) -> str:
        """Returns an id that the same calls with the same sizes have in every program."""
        views = [
            [view.dtype, view.shape, view.stride, view.offset, view.storage]
            for view in map(_view, self.launch.arguments)
        ]
        calls = [
            [
                part.target,
                [
                    _make_plain_argument(one, place)
                    for one, place in zip(_list_arguments(part.launch), part.places, strict=True)
                ],
            ]
            for part in self.parts
        ]
        text = json.dumps([calls, views, self.required, self.launch.mutated])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def scratch(self) -> tuple[int, ...]:
        """Returns the arguments that only serve the kernel as scratch memory."""
        return tuple(range(self.required, len(self.launch.arguments)))


def _view(argument: Argument) -> TensorView:
    assert argument.tensor is not None
    return argument.tensor


def _list_arguments(launch: Launch) -> list[Argument]:
    return [*launch.arguments, *launch.keywords.values()]


def _make_plain_argument(argument: Argument, place: int | None) -> Any:
    return {"argument": place} if place is not None else argument.plain()


class StretchReader:
    """The calls of a module that can be in a stretch, and the stretches of them.

    Args:
        text: the module.
        source: what was read from it.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """

    def __init__(self, text: str, source: ModuleSource) -> None:
        self._tree, self._source = parse_module(text), source
        reader = _SiteReader(self._tree, source)
        entry = find_entry(self._tree)
        if entry is not None and not source.dynamic:
            reader.follow(entry.body)
        self.sites: Sequence[Site] = reader.sites
        self._sizes = reader.sizes

    def find(self, targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Returns the first and the last line of each place at which these targets are called one after the other."""
        called = [site.target for site in self.sites]
        for first in range(len(called) - len(targets) + 1):
            if called[first : first + len(targets)] == list(targets):
                yield self.sites[first].line, self.sites[first + len(targets) - 1].line

    def read(self, first: int, last: int) -> CallGroup:
        """Returns the stretch from the call in one line to that in another.

        Raises:
            InductorBenchError: these calls cannot be replaced by one call; the message says why.
        """
        if self._source.dynamic:
            raise InductorBenchError(
                "the module has symbolic sizes, but a kernel for several calls gets no symbolic sizes"
            )
        sites = [site for site in self.sites if first <= site.line <= last]
        others = [call for call in self._source.calls if first <= call.line <= last]
        left = [call.target for call in others if call.line not in {site.line for site in sites}]
        if left:
            raise InductorBenchError(
                f"{left[0]} is among these calls: it allocates its results, or chooses among kernels"
            )
        if len(others) != len(sites) or not sites or any(call.conditional for call in others):
            raise InductorBenchError("these calls run more than once, or never")
        block = _Block(*_find_body(self._tree, first, last), [site.line for site in sites])
        return _join(sites, self._sizes, self._source.device, block)


@dataclass
class _Given:
    """A tensor that is passed to the calls of a stretch."""

    view: StorageView
    expression: str
    written: bool
    output_only: bool
    is_alive: bool = True  # whether it is read after the stretch
    is_fresh: bool = False  # whether nothing has been in it before
    places: list[tuple[int, int]] = field(default_factory=list)  # the calls, and the places of it in each


def _join(sites: Sequence[Site], sizes: Sequence[int], device: str, block: _Block) -> CallGroup:
    given: list[_Given] = []
    for number, site in enumerate(sites):
        uses = iter(site.uses)
        for place, value in enumerate(site.values):
            if isinstance(value, StorageView):
                _note(given, value, site, place, next(uses), number)
            elif value is None or isinstance(value, tuple):
                raise InductorBenchError(
                    f"{site.expressions[place]}, which {site.name} gets, is not known from the text"
                )
    for one in given:
        one.is_fresh, one.is_alive = block.find_lifetime(one.view.storage, given)
        one.output_only = one.output_only or one.is_fresh
    scratch = [one for one in given if (one.written or one.is_fresh) and not one.is_alive]
    ordered = [*(one for one in given if one not in scratch), *scratch]
    tensors, regions = lay_out([one.view for one in ordered], sizes)
    storages = []
    for size, members in regions:
        drawn = is_drawn(tensors[members[0]].dtype) and not all(ordered[member].output_only for member in members)
        values = Values("normal" if drawn else "zeros")
        storages.append(Storage(size, tensors[members[0]].dtype, device, ALIGNMENT, values))
    arguments = tuple(Argument("tensor", tensor=tensor) for tensor in tensors)
    written = tuple(place for place, one in enumerate(ordered) if one.written)
    name = sites[0].name if len(sites) == 1 else f"{sites[0].name}..{sites[-1].name}"
    whole = Launch(name, None, 1, (), tuple(storages), arguments, {}, written)
    places = {spot: place for place, one in enumerate(ordered) for spot in one.places}
    parts = tuple(_make_part(site, number, whole, places) for number, site in enumerate(sites))
    dropped = {one.view.storage for one in scratch if one.is_fresh} - {
        one.view.storage for one in given if one not in scratch
    }
    return CallGroup(
        parts,
        whole,
        tuple(one.expression for one in ordered),
        len(ordered) - len(scratch),
        tuple(place for place, one in enumerate(ordered) if one.output_only),
        tuple(sorted(name for storage in dropped for name in block.names_of(storage, given))),
    )


def _note(given: list[_Given], view: StorageView, site: Site, place: int, use: Buffer, number: int) -> None:
    if view.shape is None or view.stride is None or view.dtype is None:
        raise InductorBenchError(f"the sizes of {site.expressions[place]}, which {site.name} gets, are not in the text")
    if use.cleared:
        raise InductorBenchError(
            f"{site.name} needs a workspace of zeros, which one kernel for several calls does not get"
        )

    def is_same(other: StorageView) -> bool:
        if site.kernel is None:
            return other == view
        return (other.storage, other.dtype, other.extent) == (view.storage, view.dtype, view.extent)

    found = next((one for one in given if is_same(one.view)), None)
    if found is None:
        # memory that was read before it was written held a value from before the stretch
        found = _Given(view, site.expressions[place], False, use.output_only)
        given.append(found)
    found.written = found.written or use.written
    found.places.append((number, place))


def _make_part(site: Site, number: int, whole: Launch, places: Mapping[tuple[int, int], int]) -> GroupCall:
    where = tuple(places.get((number, place)) for place in range(len(site.values)))
    arguments = [
        whole.arguments[at] if at is not None else _make_constant(value)
        for at, value in zip(where, site.values, strict=True)
    ]
    views = iter(view for view in site.values if isinstance(view, StorageView))
    for place, at in enumerate(where):
        if at is not None:
            arguments[place] = _view_argument(arguments[place], next(views))
    tensors = [place for place, at in enumerate(where) if at is not None]
    mutated = tuple(place for place, use in zip(tensors, site.uses, strict=True) if use.written)
    count = len(arguments) - len(site.keywords)
    keywords = dict(zip(site.keywords, arguments[count:], strict=True))
    kernel = site.kernel.name if site.kernel is not None else ""
    launch = Launch(kernel, site.operator, 1, (number,), whole.storages, tuple(arguments[:count]), keywords, mutated)
    return GroupCall(site.kernel, launch, site.line, where, site.uses)


def _view_argument(argument: Argument, view: StorageView) -> Argument:
    """Returns the argument with the shape and strides that a call sees."""
    tensor = replace(_view(argument), shape=view.shape or (), stride=view.stride or ())
    return replace(argument, tensor=replace(tensor, itemsize=find_item_size(tensor.dtype)))


def _make_constant(value: Value | None) -> Argument:
    if isinstance(value, bool):
        return Argument("bool", integer=int(value))
    return Argument("float", number=value) if isinstance(value, float) else Argument("int", integer=int(value or 0))  # type: ignore[arg-type]


# The statements around the calls: which memory exists before the calls, and which is read after them.


class _Block:
    """The statements around a stretch: those of its block that are from its first call to its last one, those of the
    function before them, and those after them.

    Args:
        function: the function.
        body: the statements of the block in it.
        lines: the lines of the calls of the stretch, in order.
    """

    def __init__(self, function: ast.FunctionDef, body: Sequence[ast.stmt], lines: Sequence[int]) -> None:
        self._lines = lines
        places = [place for place, one in enumerate(body) if isinstance(one, ast.Expr) and one.lineno in lines]
        self.begin, self.end = places[0], places[-1] + 1
        self.inside = body[self.begin : self.end]
        leaves = list(_list_statements(function.body))
        self.before = leaves[: leaves.index(self.inside[0])]
        self.after = leaves[leaves.index(self.inside[-1]) + 1 :]
        strange = next((one for one in self.inside if not self._is_known(one)), None)
        if strange is not None:
            raise InductorBenchError(f"`{ast.unparse(strange)}` stands between these calls")
        assigned = [one for one in self.inside if isinstance(one, ast.Assign) and not _is_stream(one)]
        made = [name for one in assigned for name in _list_targets(one)]
        if len(made) != len(set(made)):
            raise InductorBenchError("a variable between these calls is assigned more than once")

    def _is_known(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assign):
            return _is_stream(statement) or _is_alias(statement) or _is_allocation(statement)
        return isinstance(statement, ast.Delete) or _is_assertion(statement) or statement.lineno in self._lines

    def find_lifetime(self, storage: int, given: Sequence[_Given]) -> tuple[bool, bool]:
        """Whether a memory is allocated only for the stretch, and whether it is read after the stretch."""
        names = self.names_of(storage, given)
        earlier = [one for one in self.before if _list_reads(one, names)]
        fresh = not earlier and any(
            _is_allocation(one) and set(_list_targets(one)) & names
            for one in (*self.before, *self.inside)
            if isinstance(one, ast.Assign)
        )
        return fresh, any(_list_reads(one, names) for one in self.after)

    def names_of(self, storage: int, given: Sequence[_Given]) -> set[str]:
        """Returns the variables of a memory."""
        names = {
            _find_root(ast.parse(one.expression, mode="eval").body) for one in given if one.view.storage == storage
        }
        while True:
            more = set(names)
            for one in (*self.before, *self.inside, *self.after):
                if (
                    isinstance(one, ast.Assign)
                    and _is_alias(one)
                    and {*_list_targets(one), _find_root(one.value)} & more
                ):
                    more |= {*_list_targets(one), _find_root(one.value)}
            if more == names:
                return names - {""}
            names = more


def _list_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a block and of its inner blocks, in order.

    Of a compound statement, only the part before its blocks.
    """
    for statement in body:
        blocks = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
        if not any(blocks):
            yield statement
            continue
        for name, value in ast.iter_fields(statement):
            if name not in ("body", "orelse", "finalbody"):
                heads = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
                yield from (ast.Expr(node) for head in heads for node in ast.walk(head) if isinstance(node, ast.Name))
        for block in blocks:
            yield from _list_statements(block)


def _list_targets(statement: ast.Assign) -> list[str]:
    return [node.id for node in statement.targets if isinstance(node, ast.Name)]


def _find_root(node: ast.expr) -> str:
    """Returns the variable of an expression that is a variable, or a view of one."""
    if isinstance(node, ast.Call) and write_dotted_name(node.func) == ("reinterpret_tensor",) and node.args:
        return _find_root(node.args[0])
    return node.id if isinstance(node, ast.Name) else ""


def _is_stream(statement: ast.Assign) -> bool:
    return isinstance(statement.value, ast.Call) and write_dotted_name(statement.value.func) == (_STREAM,)


def _is_alias(statement: ast.Assign) -> bool:
    return bool(_list_targets(statement)) and bool(_find_root(statement.value))


def _is_allocation(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Assign) else None
    return (
        isinstance(value, ast.Call)
        and write_dotted_name(value.func)[-1:] != ()
        and write_dotted_name(value.func)[-1] in _ALLOCATORS
    )


def _is_assertion(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(value, ast.Call)
        and write_dotted_name(value.func)[-1:] != ()
        and write_dotted_name(value.func)[-1] in _ASSERTIONS
    )


def _list_reads(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement uses one of the variables in another way than by its name, its deletion or its allocation."""
    if isinstance(statement, ast.Delete) or _is_assertion(statement):
        return False
    if isinstance(statement, ast.Assign) and (_is_alias(statement) or _is_allocation(statement)):
        return False
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement))


def _list_blocks(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef | None, list[ast.stmt]]]:
    """Returns the blocks of all functions, each with its function."""

    def inside(node: ast.AST, function: ast.FunctionDef | None) -> Iterator[tuple[ast.FunctionDef | None, Any]]:
        function = node if isinstance(node, ast.FunctionDef) else function
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield function, value
                for statement in value:
                    yield from inside(statement, function)

    yield from inside(tree, None)


def _find_body(tree: ast.Module, first: int, last: int) -> tuple[ast.FunctionDef, list[ast.stmt]]:
    for function, body in _list_blocks(tree):
        lines = {one.lineno for one in body if isinstance(one, ast.Expr)}
        if function is not None and {first, last} <= lines:
            return function, body
    raise InductorBenchError("these calls are in different blocks of the module")


# Replaces a stretch by one call.


@dataclass(frozen=True)
class Replaced:
    """One call that replaces a stretch of a module."""

    first: int  # the line of the first call of the stretch
    last: int  # that of the last one
    stretch: CallGroup
    name: str  # of what is called instead
    passed: int  # the number of arguments that this takes

    def overlaps(self, other: Replaced) -> bool:
        """Whether the two stretches share a call of the module."""
        return self.first <= other.last and other.first <= self.last


def replace_calls(text: str, places: Sequence[Replaced]) -> tuple[ast.Module, str, int]:
    """Returns a module in which one call replaces each stretch. All stretches are in one function.

    Returns:
        The syntax tree, the name of the function, and its first line.
    """
    tree = ast.parse(text)
    name, line = "", 0
    for place in places:
        function, body = _find_body(tree, place.first, place.last)
        name, line = function.name, function.lineno
        stretch, ours = place.stretch, [part.line for part in place.stretch.parts]
        block = _Block(function, body, ours)
        given = ", ".join(stretch.expressions[: place.passed])
        call = ast.parse(f"{place.name}({given})").body[0]
        for node in ast.walk(call):
            ast.copy_location(node, block.inside[-1])
        gone = set(stretch.fresh) if place.passed == stretch.required else set()
        kept = [one for one in block.inside if not (isinstance(one, ast.Expr) and one.lineno in ours)]
        deletes = [one for one in kept if isinstance(one, ast.Delete)]
        inside = [*(one for one in kept if one not in deletes), call, *deletes]
        every = (*body[: block.begin], *inside, *body[block.end :])
        body[:] = [one for one in every if not _is_of(one, gone)]
    return ast.fix_missing_locations(tree), name, line


def _is_of(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement only allocates, names or deletes variables of memory that is no longer needed."""
    if isinstance(statement, ast.Delete):
        return bool(names) and all(isinstance(node, ast.Name) and node.id in names for node in statement.targets)
    return (
        isinstance(statement, ast.Assign)
        and bool(_list_targets(statement))
        and set(_list_targets(statement)) <= set(names)
    )


def find_code(tree: ast.Module, path: str, name: str, line: int) -> CodeType:
    """Returns the code of a function of a module."""
    waiting: list[CodeType] = [compile(tree, path, "exec")]
    while waiting:
        code = waiting.pop()
        if code.co_name == name and code.co_firstlineno == line:
            return code
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    raise InductorBenchError(f"the module has no function {name}")
