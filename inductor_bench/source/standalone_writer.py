"""Makes and changes the text of a kernel's standalone file: Triton, C++ or library call."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from ..devices.nvidia import NVIDIA
from ..devices.protocol import CPU
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.code import Argument, KernelDefinition, Launch
from .calls import write_dotted_name
from .generated_text import find_statement, parse, read_threads, read_vector_lanes
from .standalone_header import (
    RecordedCall,
    StandaloneHeader,
    UnwritableKernelError,
    describe_facts,
    frame_harness,
    list_defined_names,
    list_names,
    make_plain_line,
    write_harness,
    write_header,
    write_recorded_facts,
)

# Makes the text of a Triton kernel's standalone file.
#
# The source is the module's without Inductor's harness. One change is made in it: literals of device properties are
# wrapped in a call, so that the properties of the present GPU can replace them.


_DEFINITION = "triton_definition.py"
_HARNESS = ("common.py", "timing_cuda.py", "triton_main.py")
_OWN_HARNESS = ("get_args", "call", "benchmark_all_configs")
_HARNESS_IMPORTS = ("rand_strided", "get_raw_stream")
_OURS = {"RECORDED", "KERNEL", "FILE", "_tuning_cache", "make_arguments", "call", "outputs", "check"}
_AS_RECORDED = ("--as-recorded", "keep the recorded device properties; else those of this GPU are taken")
_FOOTER = """import os
import sys

FILE = TritonKernel(KERNEL, RECORDED, os.path.dirname(os.path.abspath(__file__)))
make_arguments, call, outputs, check = FILE.make_arguments, FILE.call, FILE.outputs, FILE.check

if __name__ == "__main__":
    sys.exit(FILE.main())
"""


def write_triton_file(header: StandaloneHeader, kernel: KernelDefinition, launch: Launch, facts: dict[str, Any]) -> str:
    """Writes the whole text of the standalone file of a Triton kernel.

    Args:
        header: the description of the kernel.
        kernel: the definition.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch.

    Raises:
        UnwritableKernelError: the source cannot be parsed, defines no kernel, or defines names of the harness.
    """
    source, variable, names = extract_kernel_source(kernel.source)
    definition, harness = write_harness(_DEFINITION), write_harness(*_HARNESS)
    taken = names & (list_defined_names(definition) | list_defined_names(harness) | _OURS)
    if taken:
        raise UnwritableKernelError(f"the kernel defines {', '.join(sorted(taken))}, which the harness needs")
    multiprocessors = re.search(r"multi_processor_count=(\d+)", kernel.source)
    facts = {**facts, "multiprocessors": int(multiprocessors.group(1)) if multiprocessors else None}
    facts["launch"] = _compact_value(facts["launch"])
    own = write_header(header, launch, [_AS_RECORDED]) + "\n" + write_recorded_facts(facts)
    parts = [
        own,
        definition,
        "require_gpu(__name__)\nuse_inductors_assembler()\n_tuning_cache = close_tuning_cache()\n",
        f"# The kernel, as it stands in the compiled module.\n\n{source}",
        f"\nopen_tuning_cache(_tuning_cache)\nKERNEL = {variable}\nchoose_config(KERNEL, RECORDED)\n",
        frame_harness(*_HARNESS),
        _FOOTER,
    ]
    return "\n".join(parts)


def _compact_value(value: Any) -> Any:
    """Returns encoded records without the fields that are ``None``."""
    if isinstance(value, dict):
        return {key: _compact_value(item) for key, item in value.items() if item is not None}
    return [_compact_value(item) for item in value] if isinstance(value, list) else value


def extract_kernel_source(source: str) -> tuple[str, str, frozenset[str]]:
    """Returns a kernel's source for a standalone file.

    Returns:
        The source without Inductor's harness and with wrapped device properties, the kernel's name, and all names that
        the source defines.

    Raises:
        UnwritableKernelError: the source cannot be parsed or holds no kernel.
    """
    try:
        tree = parse(source)
    except InductorBenchError as error:
        raise UnwritableKernelError(f"the source of the kernel does not parse: {error.message}") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    kernel = next((function for function in functions if _is_kernel(function)), None)
    if kernel is None:
        raise UnwritableKernelError("the source defines no kernel for Inductor's launcher")
    lines = _wrap_properties(kernel, source.split("\n"))
    own = [node for node in tree.body if is_own_harness(node)]
    names = list_names(node for node in tree.body if node not in own)
    for node in own:
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            lines[number - 1] = None
    kept = "\n".join(line for line in lines if line is not None)
    return kept.strip("\n") + "\n", kernel.name, names


def _is_kernel(function: ast.FunctionDef) -> bool:
    called = [decorator.func for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return any(write_dotted_name(each)[:1] == ("triton_heuristics",) for each in called)


def is_own_harness(node: ast.stmt) -> bool:
    """Whether a statement of a Triton kernel's source belongs to the harness with which Inductor times it."""
    if isinstance(node, ast.FunctionDef):
        return node.name in _OWN_HARNESS and not node.decorator_list
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "__name__ == '__main__'"
    if isinstance(node, ast.ImportFrom):
        return all((alias.asname or alias.name) in _HARNESS_IMPORTS for alias in node.names)
    return False


def _wrap_properties(kernel: ast.FunctionDef, lines: list[str]) -> list[str | None]:
    """Wraps every ``DeviceProperties(...)`` in a dictionary of the decorators in ``this_device(...)``."""
    calls = [
        node
        for decorator in kernel.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if isinstance(keyword.value, ast.Dict)
        for node in keyword.value.values
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DeviceProperties"
    ]
    for node in sorted(calls, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if node.end_lineno != node.lineno or node.end_col_offset is None:
            raise UnwritableKernelError("device properties are spread over lines, which Inductor does not do")
        data = lines[node.lineno - 1].encode()  # offsets count bytes
        start, end = node.col_offset, node.end_col_offset
        lines[node.lineno - 1] = (data[:start] + b"this_device(" + data[start:end] + b")" + data[end:]).decode()
    return list(lines)


# Makes the text of a library call's standalone file: the operator with its exact arguments.


_OVERLOAD = re.compile(r"\w+\.\w+\.\w+")
_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "symm_mem", "_dtensor")


class _Timing(NamedTuple):
    """The file of the harness that times a call on a device, and its function."""

    file: str
    measure: str


_TIMINGS = {
    CPU.type: _Timing("timing_cpu.py", "measure_cpu"),
    NVIDIA.type: _Timing("timing_cuda.py", "measure_cuda"),
}
_OPERATOR_TAIL = '''
FOLDER = os.path.dirname(os.path.abspath(__file__))
OPERATOR = Operator(RECORDED, FOLDER)


def make_arguments(seed: int = 0) -> Arguments:
    """The recorded arguments; random values from ``seed``."""
    return OPERATOR.make_arguments(seed)


def call(arguments: Arguments) -> Any:
    """Calls the operator once."""
    return OPERATOR.call(arguments)


def outputs(arguments: Arguments) -> list[torch.Tensor]:
    """The tensors that the last call with these arguments wrote and returned."""
    return OPERATOR.outputs(arguments)


def check(seed: int = 0) -> tuple[bool | None, str]:
    """Whether the outputs are right, ``None`` if there is nothing to compare them with; and why."""
    return check_operator(OPERATOR, seed)


if __name__ == "__main__":
    sys.exit(run_operator(OPERATOR, {measure}, __doc__.splitlines()[0]))
'''


def write_operator_file(header: StandaloneHeader, launch: Launch, facts: dict[str, Any]) -> str:
    """Writes the whole text of the standalone file of a library call.

    Args:
        header: the description of the call.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch. ``threads`` is the number of CPU threads of the capture,
            ``flops`` the counted FLOPs, if known; on a GPU the ``SWITCHES`` of the harness have the program's
            values.

    Raises:
        UnwritableKernelError: the call cannot be repeated from a file, for example because it needs a process group.
    """
    name = launch.operator or ""
    namespace = name.partition(".")[0]
    if namespace in _COLLECTIVES:
        raise UnwritableKernelError("a collective needs the processes of its group")
    if namespace == "higher_order":
        raise UnwritableKernelError("a higher-order operator takes graphs as arguments")
    if not _OVERLOAD.fullmatch(name):
        raise UnwritableKernelError(f"{name or 'the call'} is no overload of an operator")
    device = find_device_type(launch)
    timing = _TIMINGS[device]
    files = ("common.py", timing.file)
    return "\n".join(
        [
            write_header(header, launch),
            "from __future__ import annotations\n",
            write_recorded_facts({**facts, "device_type": device}),
            frame_harness(*files, "operator_main.py"),
            _OPERATOR_TAIL.replace("{measure}", timing.measure),
        ]
    )


def find_device_type(launch: Launch) -> str:
    """Returns the device type of a call, from its tensors and its device arguments.

    Raises:
        UnwritableKernelError: the call runs on another device.
    """
    named = (item.text or "" for item in (*launch.arguments, *launch.keywords.values()) if item.kind == "device")
    devices = {name.partition(":")[0] for name in (*(storage.device for storage in launch.storages), *named)}
    others = devices - _TIMINGS.keys()
    if others:
        raise UnwritableKernelError(f"calls on {min(others)} have no standalone form")
    return next((device for device in devices if not find_device(device).runs_on_host), CPU.type)


# Makes the text of a C++ kernel's standalone file: its source, its number of threads and its vector width.


_ENTRY = re.compile(r'extern "C"[^;{}()]*?\bvoid\s+kernel\s*\(([^()]*)\)\s*\{')
_RESTRICT = re.compile(r"\b_*restrict(?:__)?\b")
_ISA_BITS = {"avx512": 512, "avx2": 256}
_VECTOR_BITS = (128, 256, 512)
_CPP_TAIL = '''
FOLDER = os.path.dirname(os.path.abspath(__file__))
KERNEL = CppKernel(RECORDED, SOURCE, FOLDER)


def make_arguments(seed: int = 0) -> Arguments:
    """The recorded arguments; random values from ``seed``."""
    return KERNEL.make_arguments(seed)


def call(arguments: Arguments) -> None:
    """Runs the kernel once."""
    KERNEL.call(arguments)


def outputs(arguments: Arguments) -> list[torch.Tensor]:
    """The tensors that the last call wrote."""
    return KERNEL.outputs(arguments)


def check(seed: int = 0) -> tuple[bool | None, str]:
    """Whether the outputs are right, ``None`` if there is nothing to compare them with; and why."""
    return check_cpp(KERNEL, seed)


if __name__ == "__main__":
    sys.exit(run_cpp(KERNEL, __doc__.splitlines()[0]))
'''


@dataclass(frozen=True)
class CppNeeds:
    """What a C++ kernel needs to be compiled and called: ``RECORDED["cpp"]``."""

    argument_types: tuple[str, ...]  # the C++ types of its arguments
    threads: int | None  # the number of threads of the capture
    literal_threads: int | None  # the number of threads that its source names, if any
    vector_bits: int | None  # the width of its vectors in bits


def write_cpp_file(header: StandaloneHeader, kernel: KernelDefinition, launch: Launch, facts: dict[str, Any]) -> str:
    """Writes the whole text of the standalone file of a C++ kernel.

    Args:
        header: the description of the kernel.
        kernel: the definition.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch, and with ``threads`` and ``vector_isa`` of the capture.

    Raises:
        UnwritableKernelError: the entry function cannot be read, or does not fit the launch.
    """
    types = list_argument_types(kernel.source)
    if len(types) != len(launch.arguments):
        raise UnwritableKernelError(f"the kernel takes {len(types)} arguments, {len(launch.arguments)} were recorded")
    written = tuple(sorted({*launch.mutated, *list_written_arguments(types)}))
    needs = CppNeeds(
        argument_types=types,
        threads=facts.get("threads"),
        literal_threads=read_threads([kernel.source]),
        vector_bits=find_vector_bits(kernel.source, facts.get("vector_isa")),
    )
    facts = {**facts, "launch": {**facts["launch"], "mutated": list(written)}, "cpp": asdict(needs)}
    device = ", ".join(filter(None, (header.device_name, needs_words(needs))))
    return "\n".join(
        [
            write_header(replace(header, device_name=device), replace(launch, mutated=written)),
            "from __future__ import annotations\n",
            write_recorded_facts(facts),
            f"SOURCE = {quote_source(kernel.source)}\n",
            frame_harness("common.py", "timing_cpu.py", "cpp_main.py"),
            _CPP_TAIL,
        ]
    )


def list_argument_types(source: str) -> tuple[str, ...]:
    """Returns the C++ types of a kernel's arguments in order, for example ``const float*``, from its entry's signature.

    Raises:
        UnwritableKernelError: there is no function named ``kernel``.
    """
    entry = _ENTRY.search(source)
    if entry is None:
        raise UnwritableKernelError("its C++ source has no function named kernel")
    parameters = (_RESTRICT.sub("", each).strip() for each in entry.group(1).split(","))
    return tuple(re.sub(r"\s*\b\w+$", "", each).replace(" *", "*") for each in parameters if each)


def list_written_arguments(types: Sequence[str]) -> list[int]:
    """Returns the indices of the arguments that a kernel may write: pointers to non-constant types."""
    return [index for index, each in enumerate(types) if each.endswith("*") and not each.startswith("const ")]


def find_vector_bits(source: str, isa: str | None) -> int | None:
    """Returns the width in bits of the vectors in the source's loops; ``None`` if it uses none.

    ``isa`` is the instruction set that torch chose at capture. Inductor may use narrower vectors, but never wider ones.
    """
    if "at::vec::" not in source:
        return None
    lanes = read_vector_lanes([source])
    read = lanes * 32 if lanes is not None and lanes * 32 in _VECTOR_BITS else None
    chosen = _ISA_BITS.get((isa or "").split()[0].split("_")[0]) if isa else None
    return min((bits for bits in (read, chosen) if bits is not None), default=None)


def needs_words(needs: CppNeeds) -> str:
    """Returns the number of threads and the vector width of a kernel in words, for its file's header; empty without
    either."""
    threads, exactly, bits = needs.threads, needs.literal_threads, needs.vector_bits
    words = f"exactly {exactly} threads" if exactly else f"{threads} threads" if threads else ""
    return ", ".join(filter(None, (words, f"vectors of {bits} bits" if bits else "")))


def quote_source(text: str) -> str:
    """Returns a Python literal of a text: a raw literal over several lines if that keeps every character."""
    literal = f"r'''{text}'''"
    try:
        kept = "\r" not in text and ast.literal_eval(literal) == text
    except (SyntaxError, ValueError):
        kept = False
    return literal if kept else repr(text)


# Makes the name and the text of a kernel's standalone file, for any language.


NO_SWITCHES: Mapping[str, bool] = MappingProxyType({})
_LONGEST_NAME = 150
_NUMBERED = re.compile(r"[A-Za-z]\w*_\d+", re.ASCII)


def write_file_text(
    header: StandaloneHeader,
    launch: Launch,
    recorded: RecordedCall,
    kernel: KernelDefinition | None = None,
    switches: Mapping[str, bool] = NO_SWITCHES,
) -> str:
    """Writes the whole text of one standalone file.

    Args:
        header: the description of the kernel.
        launch: the recorded call.
        recorded: the facts of the call for the harness, with its launch.
        kernel: the definition; ``None`` for a library call.
        switches: the settings of torch for a library call.

    Raises:
        UnwritableKernelError: the kernel cannot have a standalone file.
    """
    facts = {**describe_facts(header), **recorded, **switches}
    for argument in (*launch.arguments, *launch.keywords.values()):
        refuse_opaque(argument)
    if kernel is None:
        return write_operator_file(header, launch, facts)
    if kernel.language == "triton":
        return write_triton_file(header, kernel, launch, facts)
    if kernel.language == "cpp":
        return write_cpp_file(header, kernel, launch, facts)
    raise UnwritableKernelError(f"kernels in {kernel.language} have no standalone form")


def refuse_opaque(argument: Argument) -> None:
    """Checks that an argument can be made again.

    Raises:
        UnwritableKernelError: it cannot.
    """
    if argument.kind == "opaque":
        raise UnwritableKernelError(
            f"an argument cannot be made again: {make_plain_line(argument.text or 'unknown')[:80]}"
        )
    for item in argument.items:
        refuse_opaque(item)


def name_file(name: str, kernel_id: str, taken: Collection[str] = ()) -> str:
    """Returns the file name of a kernel: letters, digits, ``_`` and ``-``, at most 160 bytes, ending in .py.

    Inductor's names, which end in a number, are kept. Any other name gets the first digits of the id, because a file
    ``json.py`` would hide the library from the files next to it. A name that is ``taken``, in upper or lower case, gets
    them, too.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name).lstrip("-")[:_LONGEST_NAME] or "kernel"
    used = {each.lower() for each in taken}
    if safe != name or not _NUMBERED.fullmatch(safe) or f"{safe}.py".lower() in used:
        safe = f"{safe[: _LONGEST_NAME - 9]}_{re.sub(r'[^0-9a-zA-Z]', '', kernel_id)[:8]}"
    candidate, number = f"{safe}.py", 2
    while candidate.lower() in used:
        candidate, number = f"{safe}_{number}.py", number + 1
    return candidate


# Changes the recorded facts and the source in the text of a standalone file.


def edit_standalone(text: str, changes: Mapping[str, Any], source: str = "") -> str:
    """Returns the text of a standalone file with changes.

    Args:
        text: the text of the file.
        changes: new values of ``RECORDED`` by key.
        source: the new C++ text; empty if it stays.

    Raises:
        InductorBenchError: a part to change is missing or no plain literal, because the file was rewritten.
    """
    recorded = read_recorded_facts(text)
    text = _replace_statement(text, "RECORDED", write_recorded_facts({**recorded, **changes}).rstrip("\n"))
    if source:
        text = _replace_statement(text, "SOURCE", f"SOURCE = {quote_source(source)}")
    return text


def read_recorded_facts(text: str) -> dict[str, Any]:
    """Returns the ``RECORDED`` of a standalone file.

    Raises:
        InductorBenchError: it is missing or no plain literal.
    """
    return _read_literal(text, "RECORDED")


def read_source(text: str) -> str:
    """Returns the C++ text of a standalone file.

    Raises:
        InductorBenchError: it is missing or no plain literal.
    """
    try:
        value = ast.literal_eval(_find_assignment(text, "SOURCE").value)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, str):
        raise InductorBenchError(
            "SOURCE is not a plain literal in this file, so it cannot be read", name="no-kernel-file"
        )
    return value


def _find_assignment(text: str, name: str) -> ast.Assign:
    node = find_statement(text, re.compile(rf"^{name} = ", re.MULTILINE))
    if isinstance(node, ast.Assign):
        return node
    raise InductorBenchError(
        f"the file has no {name}", "give a file that inductor-bench extract wrote", "no-kernel-file"
    )


def _read_literal(text: str, name: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(_find_assignment(text, name).value)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, dict):
        raise InductorBenchError(
            f"{name} is not a plain literal in this file, so it can be neither read nor changed", name="no-kernel-file"
        )
    return value


def _replace_statement(text: str, name: str, statement: str) -> str:
    node = _find_assignment(text, name)
    lines = text.split("\n")
    return "\n".join([*lines[: node.lineno - 1], *statement.split("\n"), *lines[node.end_lineno :]])
