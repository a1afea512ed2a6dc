"""Reads the launches of a compiled module from its text, for modules that cannot be run here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..devices.protocol import CPU
from ..records.code import Argument, KernelDefinition, Launch, ModuleSource, Storage, TensorView, Values
from .calls import dotted, find_entry, find_operator
from .module_reader import autotuning_blocks, parse_module
from .static_wrapper import ALIGNMENT, KernelCall, StorageView, Value, WrapperReader, describe_launch, is_drawn, lay_out

# The library calls in a module's text: the overload and the arguments.


Evaluate = Callable[[ast.expr], Value | None]

_RESULTS_OF_ARGUMENT_TYPE = {
    **dict.fromkeys(("aten.convolution", "aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.sort"), 1),
    "aten.convolution_backward": 3,
}
"""The number of leading results of an operator that have the element type of its first tensor argument."""

_METHODS = {"copy_": "default", "zero_": "default", "fill_": "Scalar"}
"""Methods of tensors that launch kernels, and their overloads."""

_PARAMETERS = {
    "aten.convolution.default": (
        *("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    )
}
"""Parameters by operator, for operators that a module calls with keywords but that receive positional arguments."""

_UNITS = ("alpha", "beta")
"""Keywords of products and sums; their default is 1, and a recorded call leaves the default out."""

_ATTENTION = "aten._scaled_dot_product_"


class UnknownArgumentError(Exception):
    """The value of an argument is not in the text."""


def call_parts(call: ast.Call) -> tuple[str, Sequence[ast.expr]] | None:
    """The full name of the called overload, for example ``aten.mm.out``, and its positional arguments.

    ``None`` for a call that is no library call.
    """
    path = dotted(call.func)
    if not path:
        return None
    if path[-1] in _METHODS and isinstance(call.func, ast.Attribute) and find_operator(path) is None:
        return f"aten.{path[-1]}.{_METHODS[path[-1]]}", (call.func.value, *call.args)
    overload = _overload(path, [keyword.arg for keyword in call.keywords])
    return None if overload is None else (overload, call.args)


def _overload(path: Sequence[str], keywords: Sequence[str | None]) -> str | None:
    if find_operator(tuple(path)) is None:
        return None
    if path[0] == "extern_kernels" and len(path) == 2:
        own_name = find_operator(tuple(path)) == f"aten.{path[1]}"  # other names stand for several operators
        return f"aten.{path[1]}.{'out' if 'out' in keywords else 'default'}" if own_name else None
    if tuple(path[:2]) == ("torch", "ops") and len(path) in (4, 5):
        return ".".join([*path[2:], *(["default"] if len(path) == 4 else [])])
    return ".".join(path) if path[0] == "aten" and len(path) == 3 else None


def describe_operator(
    overload: str,
    arguments: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    evaluate: Evaluate,
    device: str,
    sizes: Sequence[int],
) -> Launch | None:
    """The launch of a library call; ``None`` if an argument is unknown.

    Args:
        overload: the full name of the overload.
        arguments, keywords: the expressions in the module.
        evaluate: returns the value of an expression (a tensor, a number or a tuple of them), or ``None``.
        device: the device type of the module's tensors.
        sizes: the bytes of each storage.
    """
    named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg is not None}
    if len(named) != len(keywords):
        return None
    named = {name: value for name, value in named.items() if name not in _UNITS or ast.unparse(value) != "1"}
    rest = _PARAMETERS.get(overload, ())[len(arguments) :]
    if named.keys() >= set(rest):
        arguments = [*arguments, *(named.pop(name) for name in rest)]
    count = len(arguments)
    written = [count + index for index, name in enumerate(named) if name == "out"]
    written += [0] if overload.split(".")[1].endswith("_") else []
    views: list[StorageView] = []
    outputs: set[int] = set()
    given = []
    try:
        for place, node in enumerate((*arguments, *named.values())):
            before = len(views)
            given.append(_read(node, evaluate, views))
            if place >= count and place in written:
                outputs.update(range(before, len(views)))
    except UnknownArgumentError:
        return None
    tensors, regions = lay_out(views, sizes)
    storages = []
    for size, members in regions:
        dtype = tensors[members[0]].dtype
        drawn = is_drawn(dtype) and not outputs.issuperset(members)
        storages.append(Storage(size, dtype, device, ALIGNMENT, Values("normal" if drawn else "zeros")))
    places = iter(tensors)
    described = [_argument(value, places) for value in given]
    by_name = dict(zip(named, described[count:], strict=True))
    return Launch("", overload, 1, (), tuple(storages), tuple(described[:count]), by_name, tuple(sorted(written)))


def result_dtypes(launch: Launch) -> tuple[str, ...]:
    """The element types of a call's leading results; those of further results are unknown."""
    operator = (launch.operator or "").rpartition(".")[0]
    count = _RESULTS_OF_ARGUMENT_TYPE.get(operator, 0)
    if operator.startswith(_ATTENTION):
        count = 3 if operator.endswith("_backward") else 1
    first = next(_tensors_in(launch.arguments), None)
    return (first.dtype,) * count if first is not None else ()


def _tensors_in(arguments: Sequence[Argument]) -> Iterator[TensorView]:
    for argument in arguments:
        if argument.tensor is not None:
            yield argument.tensor
        yield from _tensors_in(argument.items)


_Given = StorageView | Argument | list["_Given"]


def _read(node: ast.expr, evaluate: Evaluate, views: list[StorageView]) -> _Given:
    if isinstance(node, ast.Tuple | ast.List):
        return [_read(item, evaluate, views) for item in node.elts]
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    path = dotted(node)
    if path[:1] == ("torch",) and len(path) == 2:
        return Argument(_TORCH_KINDS.get(path[1], "dtype"), text=path[1])
    if isinstance(node, ast.Call) and dotted(node.func)[-1:] == ("device",):
        kind = next(iter((*node.args, *(each.value for each in node.keywords))), None)
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            return Argument("device", text=kind.value.partition(":")[0])
    value = evaluate(node)
    if (
        isinstance(value, StorageView)
        and value.shape is not None
        and value.stride is not None
        and value.dtype is not None
    ):
        views.append(value)
        return value
    if isinstance(value, int | float):
        return _constant(value)
    raise UnknownArgumentError


_TORCH_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("strided", "sparse_coo", "jagged"), "layout"),
    **dict.fromkeys(("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"), "memory_format"),
}


def _constant(value: object) -> Argument:
    if value is None:
        return Argument("none")
    if isinstance(value, bool):
        return Argument("bool", integer=int(value))
    if isinstance(value, int):
        return Argument("int", integer=value)
    if isinstance(value, float):
        return Argument("float", number=value)
    if isinstance(value, str):
        return Argument("text", text=value)
    raise UnknownArgumentError


def _argument(value: _Given, places: Iterator[TensorView]) -> Argument:
    if isinstance(value, list):
        return Argument("list", items=tuple(_argument(item, places) for item in value))
    return Argument("tensor", tensor=next(places)) if isinstance(value, StorageView) else value


# Reads the launches of a compiled module from its text, for modules that cannot be run here.
#
# Launches that a run recorded are more complete; see ``worker.profile.recorder``.


def read_static_launches(text: str, source: ModuleSource) -> tuple[Launch, ...]:
    """The distinct launches of the module's kernels and library calls, in call order.

    Launches with unknown arguments are left out. Storages of whole numbers hold zeros, as in Inductor's harness,
    because the text holds no bounds. All kernels of a multi-kernel count as launched.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    tree = parse_module(text)
    reader = _LaunchReader(tree, source)
    entry = find_entry(tree)
    if entry is not None:
        reader.follow(entry.body)
        return tuple(reader.launches.values())
    for block in autotuning_blocks(tree):
        reader.follow(block.body)
    # A compile-time tuning block launches each kernel once; the wrapper's calls tell the number of launches.
    names = [call.kernel for call in source.calls if call.kernel is not None]
    places = {name: tuple(place for place, other in enumerate(names) if other == name) for name in names}
    return tuple(
        replace(launch, calls=len(places[launch.kernel]), positions=places[launch.kernel])
        for launch in reader.launches.values()
        if launch.kernel in places
    )


class _LaunchReader(WrapperReader):
    """Collects the distinct launches."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        super().__init__(tree, source)
        self.launches: dict[tuple[object, ...], Launch] = {}
        self._position = 0

    def launched(self, alternatives: Sequence[KernelCall]) -> None:
        for kernel, values in alternatives:
            launch = self._describe(kernel, values)
            if launch is not None:
                self._count(launch)
        self._position += 1

    def library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        parts = call_parts(call)
        if parts is None:
            return None
        overload, arguments = parts
        launch = describe_operator(
            overload, arguments, call.keywords, self._evaluate, device=self._device, sizes=self._sizes
        )
        if launch is not None:
            self._count(launch)
        self._position += 1
        return result_dtypes(launch) if launch is not None else ()

    def _count(self, launch: Launch) -> None:
        key = (launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), launch.storages)
        known = self.launches.get(key, replace(launch, calls=0))
        positions = (*known.positions, self._position)
        self.launches[key] = replace(known, calls=len(positions), positions=positions)

    def _describe(self, kernel: KernelDefinition, values: Sequence[Value | None]) -> Launch | None:
        pointers = self._read_pointers(kernel)
        views = [value for value in values if isinstance(value, StorageView)]
        if pointers is None or len(pointers) != len(views) or any(view.stride is None for view in views):
            return None
        known: list[StorageView | int | float] = []
        for value in self._with_dtypes(values, pointers):
            if value is None or isinstance(value, tuple):
                return None
            known.append(value)
        device = CPU.type if kernel.language == "cpp" else self._device
        return describe_launch(kernel, known, pointers, device, self._sizes)
