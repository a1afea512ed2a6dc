"""Makes the text of a Triton kernel's standalone file.

The source is the module's without Inductor's own harness. One change is made in it: literals of device properties are
wrapped in a call, so that the properties of the present GPU can replace them.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from ...errors import InductorBenchError
from ...records.code.launch import Launch
from ...records.code.source import KernelDefinition
from ..module.calls import dotted
from ..module.syntax import parse
from .header import StandaloneHeader, UnwritableKernelError, recorded_text, write_header
from .paste import defined_names, framed_harness, harness_text, names_in

_DEFINITION = "triton_definition.py"
_TIMING = ("timing.py", "timing_cuda.py", "launch_gap.py")
_HARNESS = ("arguments.py", "comparison.py", "command.py", *_TIMING, "triton_main.py")
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


def triton_text(header: StandaloneHeader, kernel: KernelDefinition, launch: Launch, facts: dict[str, Any]) -> str:
    """The whole text of the standalone file of a Triton kernel.

    Args:
        header: the description of the kernel.
        kernel: the definition.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch.

    Raises:
        UnwritableKernelError: the source cannot be parsed, defines no kernel, or defines names of the harness.
    """
    source, variable, names = kernel_source(kernel.source)
    definition, harness = harness_text(_DEFINITION), harness_text(*_HARNESS)
    taken = names & (defined_names(definition) | defined_names(harness) | _OURS)
    if taken:
        raise UnwritableKernelError(f"the kernel defines {', '.join(sorted(taken))}, which the harness needs")
    multiprocessors = re.search(r"multi_processor_count=(\d+)", kernel.source)
    facts = {**facts, "multiprocessors": int(multiprocessors.group(1)) if multiprocessors else None}
    facts["launch"] = _compact(facts["launch"])
    own = write_header(header, launch, [_AS_RECORDED]) + "\n" + recorded_text(facts)
    parts = [
        own,
        definition,
        "require_gpu(__name__)\nuse_inductors_assembler()\n_tuning_cache = close_tuning_cache()\n",
        f"# The kernel, as it stands in the compiled module.\n\n{source}",
        f"\nopen_tuning_cache(_tuning_cache)\nKERNEL = {variable}\nchoose_config(KERNEL, RECORDED)\n",
        framed_harness(*_HARNESS),
        _FOOTER,
    ]
    return "\n".join(parts)


def _compact(value: Any) -> Any:
    """Encoded records without the fields that are ``None``."""
    if isinstance(value, dict):
        return {key: _compact(item) for key, item in value.items() if item is not None}
    return [_compact(item) for item in value] if isinstance(value, list) else value


def kernel_source(source: str) -> tuple[str, str, frozenset[str]]:
    """A kernel's source for a standalone file.

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
    own = [node for node in tree.body if _is_own_harness(node)]
    names = names_in(node for node in tree.body if node not in own)
    for node in own:
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            lines[number - 1] = None
    kept = "\n".join(line for line in lines if line is not None)
    return kept.strip("\n") + "\n", kernel.name, names


def _is_kernel(function: ast.FunctionDef) -> bool:
    called = [decorator.func for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return any(dotted(each)[:1] == ("triton_heuristics",) for each in called)


def _is_own_harness(node: ast.stmt) -> bool:
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
