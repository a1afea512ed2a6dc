"""Reads the arguments of a compiled module from its own harness."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ...records.code.source import ModuleInput

_HARNESSES = ("get_args", "benchmark_compiled_module")
"""The functions that make the inputs: since torch 2.11, and up to 2.10."""


def read_inputs(tree: ast.Module) -> tuple[ModuleInput, ...]:
    """The arguments in order, without the module's constants; empty where the module has no harness."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in _HARNESSES:
        if name in functions and (order := _order(functions[name])):
            return _describe(functions[name], order)
    return ()


def _order(function: ast.FunctionDef) -> list[str]:
    for statement in function.body:
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.List):
            return _names(statement.value)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            lists = [node for node in ast.walk(statement.value) if isinstance(node, ast.List)]
            if lists:
                return _names(lists[0])
    return []


def _names(node: ast.List) -> list[str]:
    return [item.id for item in node.elts if isinstance(item, ast.Name)]


def _describe(function: ast.FunctionDef, order: Sequence[str]) -> tuple[ModuleInput, ...]:
    made: dict[str, ModuleInput] = {}
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            made[name] = _input(name, statement.value, made)
    return tuple(made.get(name, ModuleInput(name, "opaque")) for name in order)


def _input(name: str, value: ast.expr, made: Mapping[str, ModuleInput]) -> ModuleInput:
    if isinstance(value, ast.Call):
        return _tensor(name, value, made)
    constant = _literal(value)
    if constant is None:
        return ModuleInput(name, "none" if isinstance(value, ast.Constant) else "opaque")
    if isinstance(constant, int):
        return ModuleInput(name, "int", value=constant)
    return ModuleInput(name, "opaque")


def _tensor(name: str, call: ast.Call, made: Mapping[str, ModuleInput]) -> ModuleInput:
    function = ast.unparse(call.func)
    if function == "rand_strided" and len(call.args) >= 2:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        dtype = ast.unparse(keywords["dtype"]).removeprefix("torch.") if "dtype" in keywords else None
        device = _literal(keywords["device"]) if "device" in keywords else None
        device_name = device if isinstance(device, str) else None
        return ModuleInput(name, "tensor", dtype, _sizes(call.args[0]), _sizes(call.args[1]), device_name)
    if function == "torch.as_strided" and len(call.args) >= 3:
        storage = made.get(ast.unparse(call.args[0]))
        dtype, device_name = (storage.dtype, storage.device) if storage else (None, None)
        return ModuleInput(name, "tensor", dtype, _sizes(call.args[1]), _sizes(call.args[2]), device_name)
    return ModuleInput(name, "opaque")


def _sizes(node: ast.expr) -> tuple[int, ...]:
    sizes = _literal(node)
    return tuple(size for size in sizes if isinstance(size, int)) if isinstance(sizes, tuple) else ()


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
