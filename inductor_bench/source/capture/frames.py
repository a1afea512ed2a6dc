"""Names the functions that Dynamo compiled, such as ``Block.forward``.

The structured trace tells the file, the line and the bare name of a compiled function. The class of its object stands
in the guards of the compilation. Where no guard has it, such as for an object without state, the file tells the class.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import InductorBenchError
from ..module.syntax import parse

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})")
_NAME = re.compile(r"[\w<>]{1,100}")
_OBJECT = r"source=L\['{}'\], .{{0,400}}?type=<class '(?:[^'\n]{{0,400}}\.)?(\w{{1,100}})'>"
_OBJECT_OF_METHOD = re.compile(_OBJECT.format("self"))
_OBJECT_OF_WRAPPER = re.compile(_OBJECT.format("fn"))
_WRAPPERS = "torch/_dynamo/external_utils.py"
"""Dynamo compiles a function of this file in place of an object whose own ``forward`` it does not enter."""
_PLAIN_CALLABLES = {"function", "method", "builtin_function_or_method", "partial"}
_ROLES = {"forward", "backward"}
_LARGEST_FILE_BYTES = 10 * 2**20


@dataclass
class CompiledFrame:
    """A function that Dynamo compiles.

    Attributes:
        file: the path of its file, or a text such as ``<string>``.
        line: the number of its first line, which is that of its first decorator.
        name: its bare name. The rest of a function after a graph break is ``torch_dynamo_resume_in_NAME_at_LINE``.
        class_name: the class of its object; empty where no guard tells it.
    """

    file: str
    line: object
    name: str
    class_name: str = ""

    @property
    def is_wrapper(self) -> bool:
        """Whether it is Dynamo's own wrapper around a callable object."""
        return self.file.replace("\\", "/").endswith(_WRAPPERS)

    def take_guards(self, guards: str) -> None:
        """Finds the class of the object in the printed guards of the compilation."""
        match = (_OBJECT_OF_WRAPPER if self.is_wrapper else _OBJECT_OF_METHOD).search(guards)
        if match and match.group(1) not in _PLAIN_CALLABLES:
            self.class_name = match.group(1)


@dataclass(frozen=True)
class SourceFunction:
    """A function in a source file. ``class_name`` is empty for a function outside classes."""

    class_name: str
    name: str
    first_line: int
    last_line: int


def compiled_name(frame: CompiledFrame, functions_of: Callable[[str], tuple[SourceFunction, ...]]) -> str:
    """``Block.forward``, ``step``, or ``step from line 12`` for the rest of a function after a graph break.

    The name is empty where it would not identify the function: for Dynamo's wrapper around a plain function, and for a
    ``forward`` of an unknown class, which would be mistaken for the forward graph of a training step.

    Args:
        frame: the compiled function.
        functions_of: the functions of a file, given its path.
    """
    if frame.is_wrapper:
        return frame.class_name
    resumed = _RESUMED.fullmatch(frame.name)
    name = resumed["function"] if resumed else frame.name
    line = int(resumed["line"]) if resumed else frame.line
    if not _NAME.fullmatch(name):
        return ""
    class_name = frame.class_name or _class_in_source(functions_of(frame.file), name, line, inside=bool(resumed))
    if not class_name and name in _ROLES:
        return ""
    words = f"{class_name}.{name}" if class_name else name
    return f"{words} from line {line}" if resumed else words


def read_functions(file: str) -> tuple[SourceFunction, ...]:
    """The functions of a Python file; none where it cannot be read or is not Python."""
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE_BYTES:
            return ()
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the program's own source
            return tuple(_functions(parse(text), ""))
    except (OSError, InductorBenchError):
        return ()


def _class_in_source(functions: tuple[SourceFunction, ...], name: str, line: object, *, inside: bool) -> str:
    if not isinstance(line, int):
        return ""
    found = [
        function
        for function in functions
        if function.name == name
        and (function.first_line <= line <= function.last_line if inside else function.first_line == line)
    ]
    return max(found, key=lambda function: function.first_line).class_name if found else ""


def _functions(node: ast.AST, class_name: str) -> Iterator[SourceFunction]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield SourceFunction(class_name, child.name, first, child.end_lineno or child.lineno)
            yield from _functions(child, "")
        else:
            yield from _functions(child, child.name if isinstance(child, ast.ClassDef) else class_name)
