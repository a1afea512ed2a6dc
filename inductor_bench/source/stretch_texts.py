"""The texts of one kernel that replaces several calls: a first version, and the forms in which it is compiled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from ..errors import UsageError
from ..records.code import KernelDefinition, Launch, TensorView
from .edit_rules import GRID, STAGES, WARPS, launch_constants
from .generated_text import find_statement, parse
from .standalone_header import write_recorded_facts
from .standalone_writer import is_own_harness, list_argument_types, quote_source
from .stretches import CallGroup, GroupCall

PRODUCTS = ("aten.mm.out", "aten.addmm.out", "aten.bmm.out", "aten.baddbmm.out")
"""The library calls for which a first version of a kernel can be written."""

_SCALAR = ("float32", "float64", "float16", "bfloat16")


def list_parameter_names(stretch: CallGroup) -> list[str]:
    """Returns the parameter names of a kernel that replaces a stretch."""
    names = []
    for place in range(len(stretch.launch.arguments)):
        kind = "in" if place not in stretch.launch.mutated else "out" if place in stretch.output_only else "in_out"
        names.append(f"{'scratch' if place in stretch.scratch else kind}_ptr{place}")
    return names


def _view(stretch: CallGroup, place: int) -> TensorView:
    view = stretch.launch.arguments[place].tensor
    assert view is not None
    return view


# A product of matrices, as its sizes and strides.


class _Product:
    """A product of matrices: ``out = beta * bias + alpha * a @ b``."""

    def __init__(self, launch: Launch) -> None:
        if launch.operator not in PRODUCTS:
            raise UsageError(
                f"{launch.operator} is not a matrix product, and a kernel to begin with can be written only for "
                "matrix products",
                f"choose {', '.join(one.removesuffix('.out') for one in PRODUCTS)}, or generated kernels",
                "wrong-target",
            )
        tensors = [one.tensor for one in (*launch.arguments, launch.keywords["out"]) if one.tensor is not None]
        self.has_bias = len(tensors) == 4
        a, b, out = tensors[-3:]
        if not {one.dtype for one in tensors} <= set(_SCALAR):
            raise UsageError(
                f"{launch.operator} of {a.dtype}: no kernel to begin with can be written for it",
                "choose another",
                "wrong-target",
            )
        batched = len(out.shape) == 3
        self.batch, (self.m, self.n), self.k = (out.shape[0] if batched else 1, out.shape[-2:], a.shape[-1])
        self.a, self.b, self.out = ((one.stride if batched else (0, *one.stride)) for one in (a, b, out))
        bias = tensors[0]
        sizes = (1,) * (3 - len(bias.shape)) + bias.shape
        strides = (0,) * (3 - len(bias.shape)) + bias.stride
        self.bias = tuple(step if size > 1 else 0 for size, step in zip(sizes, strides, strict=True))
        given = {name: one.plain() for name, one in launch.keywords.items() if one.tensor is None}
        self.alpha, self.beta = given.get("alpha", 1), given.get("beta", 1)
        self.dtype = a.dtype

    @property
    def arguments(self) -> str:
        return "bias, a, b, out" if self.has_bias else "a, b, out"


def _write_offset(strides: Sequence[int], *names: str) -> str:
    """An offset in elements."""
    terms = [name if step == 1 else f"{name} * {step}" for name, step in zip(names, strides, strict=True) if step]
    return " + ".join(terms) or "0"


# C++: the parts one after the other, each in a namespace of its own.


_CPP_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "bfloat16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)
_ENTRY = re.compile(r'extern\s+"C"[^;{}()]*?\bvoid\s+kernel\s*\(')


def write_cpp_start(stretch: CallGroup, sources: Sequence[str]) -> str:
    """Writes the C++ text of a kernel that does what the calls of a stretch do.

    Args:
        stretch: the calls.
        sources: the text of each part; empty for a library call.

    Raises:
        UsageError: a part has no form in C++.
    """
    includes = [line for source in sources for line in _INCLUDE.findall(source)]
    includes = list(dict.fromkeys(includes)) or ["#include <torch/csrc/inductor/cpp_prefix.h>\n"]
    bodies, calls = [], []
    for number, (part, source) in enumerate(zip(stretch.parts, sources, strict=True)):
        text = _ENTRY.sub("static inline void run(", _INCLUDE.sub("", source)).strip("\n")
        bodies.append(f"namespace part_{number}\n{{\n{text or _write_cpp_product(part)}\n}}\n")
        calls.append(f"    part_{number}::run({', '.join(_list_passed_arguments(stretch, part))});\n")
    types = list(
        starmap("{}{}".format, zip(_list_cpp_types(stretch, sources), list_parameter_names(stretch), strict=True))
    )
    head = f'extern "C" void kernel({", ".join(types)})\n'
    return "\n".join(["".join(includes), *bodies, f"{head}{{\n{''.join(calls)}}}\n"])


def _list_cpp_types(stretch: CallGroup, sources: Sequence[str]) -> Iterator[str]:
    known: dict[int, str] = {}
    for part, source in zip(stretch.parts, sources, strict=True):
        for place, kind in zip(part.places, list_argument_types(source) if source else (), strict=False):
            if place is not None:
                known.setdefault(place, kind.removeprefix("const ").rstrip("* "))
    for place in range(len(stretch.launch.arguments)):
        dtype = _view(stretch, place).dtype
        kind = known.get(place) or _CPP_TYPES.get(dtype, "")
        if not kind:
            raise UsageError(f"{dtype} has no type in C++ here", "choose another call", "wrong-target")
        yield f"{'' if place in stretch.launch.mutated else 'const '}{kind}* "


def _list_passed_arguments(stretch: CallGroup, part: GroupCall) -> list[str]:
    names = list_parameter_names(stretch)
    every = [*part.launch.arguments, *part.launch.keywords.values()]
    if part.kernel is None:  # numbers stand in the text
        return [names[place] for place in part.places if place is not None]
    return [
        names[place] if place is not None else repr(argument.plain())
        for place, argument in zip(part.places, every, strict=True)
    ]


def _write_cpp_product(part: GroupCall) -> str:
    made = _Product(part.launch)
    types = [_CPP_TYPES[one.tensor.dtype] for one in part.launch.arguments if one.tensor is not None]
    left, right = _write_offset(made.a, "z", "m", "k"), _write_offset(made.b, "z", "k", "n")
    names = made.arguments.split(", ")
    given = [f"const {kind}* {name}" for kind, name in zip(types, names, strict=False)] + [f"{types[-1]}* out"]
    bias = (
        f"{made.beta} * static_cast<double>(bias[{_write_offset(made.bias, 'z', 'm', 'n')}]) + "
        if made.has_bias
        else ""
    )
    scale = f"{made.alpha} * " if made.alpha != 1 else ""
    return f"""static inline void run({", ".join(given)})
{{
    #pragma omp parallel for
    for (int64_t row = 0; row < {made.batch * made.m}; row++) {{
        const int64_t z = row / {made.m}, m = row % {made.m};
        for (int64_t n = 0; n < {made.n}; n++) {{
            double sum = 0;
            for (int64_t k = 0; k < {made.k}; k++)
                sum += static_cast<double>(a[{left}]) * b[{right}];
            out[{_write_offset(made.out, "z", "m", "n")}] = {bias}{scale}sum;
        }}
    }}
}}"""


# Triton: the parts as functions. One program runs all blocks of a part before those of the next one.


_TRITON_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
_KINDS = ("pointwise", "reduction", "persistent_reduction")
_GRIDS = re.compile(r"'grid_type': '(\w+)'")
_PLAIN_GRIDS = ("Grid1D", "Grid2D", "Grid3D")
_AXES = ("x", "y", "z")
_IMPORTS = """import triton
import triton.language as tl
"""
TILE = (64, 64, 32)


def find_triton_name(stretch: CallGroup) -> str:
    """Returns the name of the function that is launched instead of a stretch."""
    return f"triton_edited_{stretch.id[:8]}"


def write_triton_start(stretch: CallGroup, sources: Sequence[str], configs: Sequence[Mapping[str, int]]) -> str:
    """Writes the Triton text of a kernel that does what the calls of a stretch do.

    Args:
        stretch: the calls.
        sources: the text of each part; empty for a library call.
        configs: the configuration that each part ran.

    Raises:
        UsageError: a part has no form here.
    """
    imports, bodies, lines = [_IMPORTS], list[str](), list[str]()
    alone = len(stretch.parts) == 1
    grid = (1, 1, 1)
    for number, (part, source, config) in enumerate(zip(stretch.parts, sources, configs, strict=True)):
        given = ", ".join(_list_passed_arguments(stretch, part))
        if part.kernel is None:
            text, blocks = _write_triton_product(part, number)
            bodies.append(text)
        else:
            text, more, blocks, constants = _write_triton_part(part.kernel, source, number, config, part.launch)
            bodies.append(text)
            imports += more
            given = ", ".join([given, *constants])
        if alone:
            grid = blocks
            lines.append(f"    part_0({given}, tl.program_id(0), tl.program_id(1), tl.program_id(2))")
        else:
            lines += [*(["    tl.debug_barrier()"] if number else []), *_write_loops(f"part_{number}({given}", blocks)]
    parameters = ", ".join(list_parameter_names(stretch))
    warps = max([4, *(config.get("num_warps", 4) for config in configs)])
    head = f"{GRID} = {grid}\n{WARPS} = {warps}\n{STAGES} = 1\n"
    kernel = f"@triton.jit\ndef {find_triton_name(stretch)}({parameters}):\n" + "\n".join(lines) + "\n"
    return "\n".join(["".join(dict.fromkeys(imports)), head, *(f"\n{body}" for body in bodies), "\n" + kernel])


def _write_loops(call: str, blocks: tuple[int, int, int]) -> Iterator[str]:
    indent, names = "    ", list[str]()
    for axis, count in reversed([*zip(_AXES, blocks, strict=True)]):
        names.insert(0, f"{axis}_block" if count > 1 else "0")
        if count > 1:
            yield f"{indent}for {axis}_block in range({count}):"
            indent += "    "
    yield f"{indent}{call}, {', '.join(names)})"


def _write_triton_part(
    kernel: KernelDefinition, source: str, number: int, config: Mapping[str, int], launch: Launch
) -> tuple[str, list[str], tuple[int, int, int], list[str]]:
    """Writes a generated kernel as a function that gets the numbers of its block.

    Also returns its imports, the numbers of its blocks, and the constants with which it is called.
    """
    tree = parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not is_own_harness(node)]
    found = next((node for node in functions if node.name == kernel.event_name), None)
    grid = _GRIDS.search(source)
    if (
        found is None
        or _find_kind(found) not in _KINDS
        or grid is None
        or grid[1] not in _PLAIN_GRIDS
        or len(functions) > 1
    ):
        raise UsageError(
            f"{kernel.name} cannot be a part of a group: only pointwise kernels, reductions and products can",
            "leave it out",
            "wrong-target",
        )
    names = [each.arg for each in found.args.args]
    constants = [each.arg for each in found.args.args if each.annotation is not None]
    missing = [name for name in constants if name not in config]
    if missing or "num_programs" in source:
        raise UsageError(
            f"the config of {kernel.name} is not recorded ({', '.join(missing)})",
            "choose other kernels",
            "wrong-target",
        )
    values = dict(zip(names, [one.plain() for one in launch.arguments], strict=False))
    blocks = tuple(
        -(-int(values.get(f"{axis}numel", 1) or 1) // _find_block_size(source, axis, config)) for axis in _AXES
    )
    lines = source.split("\n")[found.body[0].lineno - 1 : found.end_lineno]
    body = re.sub(r"tl\.program_id\((\d)\)", lambda place: f"{_AXES[int(place[1])]}_block", "\n".join(lines))
    given = [f"{name}: tl.constexpr" if name in constants else name for name in names]
    head = f"@triton.jit\ndef part_{number}({', '.join([*given, *(f'{axis}_block' for axis in _AXES)])}):\n"
    helpers = "from torch._inductor.runtime"
    used = [f"{helpers} import triton_helpers\n"] if "triton_helpers." in body else []
    if re.search(r"\b(?:libdevice|tl_math)\.", body):
        used.append(f"{helpers}.triton_helpers import libdevice, math as tl_math\n")
    return (head + body + "\n", used, (blocks[0], blocks[1], blocks[2]), [str(config[name]) for name in constants])


def _find_kind(function: ast.FunctionDef) -> str:
    called = [ast.unparse(each.func) for each in function.decorator_list if isinstance(each, ast.Call)]
    return next((name.partition(".")[2] for name in called if name.startswith("triton_heuristics.")), "")


def _find_block_size(source: str, axis: str, config: Mapping[str, int]) -> int:
    """Returns the size of a block in a direction."""
    name = f"{axis.upper()}BLOCK"
    fixed = re.search(rf"\b{name}\s*:\s*tl\.constexpr\s*=\s*(\d+)", source)
    return int(fixed[1]) if fixed else config.get(name, 1)


def _write_triton_product(part: GroupCall, number: int) -> tuple[str, tuple[int, int, int]]:
    made = _Product(part.launch)
    if made.dtype == "float64":
        raise UsageError(
            "no kernel to begin with can be written for products in float64", "choose another call", "wrong-target"
        )
    rows, columns, depth = TILE
    blocks = (-(-made.m // rows), -(-made.n // columns), made.batch)
    scaled = f"{made.alpha} * sum" if made.alpha != 1 else "sum"
    bias = f"bias + ({_write_offset(made.bias, 'z_block', 'm', 'n')}) + tl.zeros_like(m * n)"
    added = f"\n    sum = {made.beta} * tl.load({bias}, mask=inside, other=0.0).to(tl.float32) + {scaled}"
    a, b = _write_offset(made.a, "z_block", "m", "row"), _write_offset(made.b, "z_block", "column", "n")
    out = f"out + ({_write_offset(made.out, 'z_block', 'm', 'n')})"
    return (
        f"""@triton.jit
def part_{number}({made.arguments}, x_block, y_block, z_block):
    m = (x_block * {rows} + tl.arange(0, {rows}))[:, None].to(tl.int64)
    n = (y_block * {columns} + tl.arange(0, {columns}))[None, :].to(tl.int64)
    inside = (m < {made.m}) & (n < {made.n})
    sum = tl.zeros([{rows}, {columns}], dtype=tl.float32)
    for start in range(0, {made.k}, {depth}):
        k = start + tl.arange(0, {depth})
        row, column = k[None, :], k[:, None]
        left = tl.load(a + ({a}), mask=(m < {made.m}) & (row < {made.k}), other=0.0)
        right = tl.load(b + ({b}), mask=(column < {made.k}) & (n < {made.n}), other=0.0)
        sum = tl.dot(left, right, sum, input_precision="ieee"){added if made.has_bias else ""}
    tl.store({out}, {"sum" if made.has_bias else scaled}, mask=inside)
""",
        blocks,
    )


def write_launched_source(
    source: str, facts: Mapping[str, Any], device: int | str = "torch.cuda.current_device()"
) -> str:
    """Writes a Triton kernel of a file in the form in which Inductor's launcher takes it.

    Args:
        source: the text of the file between its marks, which was checked.
        facts: what the file says of the parameters: ``name``, ``types`` and ``divisible``.
        device: the number of the GPU.
    """
    tree = parse(source)
    constants = launch_constants(tree)
    kernel = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == facts["name"])
    names = [each.arg for each in kernel.args.args]
    signature = dict(zip(names, facts["types"], strict=False))
    divisible = {(place,): [["tt.divisibility", 16]] for place in facts["divisible"] if place < len(names)}
    properties = f"DeviceProperties.create(torch.device('cuda', {device}))"
    grid = [str(one) for one in constants.grid]
    decorator = f"""@triton_heuristics.template(
    num_stages={constants.stages},
    num_warps={constants.warps},
    triton_meta={{'signature': {signature!r}, 'device': {properties}, 'constants': {{}}, 'configs': [{divisible!r}]}},
    inductor_meta={{'kernel_name': {kernel.name!r}, 'grid_type': 'FixedGrid', 'fixed_grid': {grid!r}}},
    filename=__file__,
)"""
    lines = source.split("\n")
    place = kernel.decorator_list[0].lineno - 1
    head = (
        "import torch\nfrom torch._inductor.runtime import triton_heuristics\n"
        "from torch._inductor.runtime.hints import DeviceProperties\n"
    )
    return head + "\n".join([*lines[:place], decorator, *lines[place:]])


def launch_facts(stretch: CallGroup) -> Mapping[str, Any]:
    """Returns what the launcher of a Triton kernel has to know of its parameters."""
    views = [_view(stretch, place) for place in range(len(stretch.launch.arguments))]
    unknown = next((view.dtype for view in views if view.dtype not in _TRITON_TYPES), None)
    if unknown is not None:
        raise UsageError(f"{unknown} has no type in Triton here", "choose another call", "wrong-target")
    aligned = [stretch.launch.storages[view.storage].alignment % 16 == 0 for view in views]
    return {
        "name": find_triton_name(stretch),
        "types": [f"*{_TRITON_TYPES[view.dtype]}" for view in views],
        "divisible": [
            place for place, view in enumerate(views) if aligned[place] and view.offset * view.itemsize % 16 == 0
        ],
    }


# The standalone file of the calls themselves, with which a kernel that replaces them is compared.


_JOINED_TAIL = """
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEM = os.path.basename(__file__).removesuffix(".py")
"""


def join_parts(recorded: Mapping[str, Any], parts: Sequence[str]) -> str:
    """Returns the text of a file that makes several calls one after the other.

    Args:
        recorded: its ``RECORDED``, with the launch of the whole and the ``device_type``.
        parts: the text of the standalone file of each call, whose launch has the storages of the whole.
    """
    texts = "\n".join(f"    {quote_source(text)}," for text in parts)
    head = "from __future__ import annotations\n"
    return "\n".join([head, write_recorded_facts(dict(recorded)), f"PARTS = [\n{texts}\n]", _JOINED_TAIL])


def split_joined_parts(text: str) -> list[str]:
    """Returns the parts of a text of :func:`join_parts`."""
    found = find_statement(text, re.compile(r"^PARTS = ", re.MULTILINE))
    assert isinstance(found, ast.Assign)
    return [str(one) for one in ast.literal_eval(found.value)]
