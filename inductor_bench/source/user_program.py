"""The text of the user's program: which of its lines called an operator, and how settings are put into it.

The profiler names the function and the line on which it begins. The line of the call is found in the function's text:
it is the only line that calls a function of that name, that calls a variable or an attribute to which the file assigns
a module of that class, or that holds the operation. If there are several such lines, the order of the calls decides, or
the function's first line is used. A call within a library's function has the line that calls that function. After a
graph break Dynamo runs the rest of a function as one of its own, whose name says where it begins.
"""

from __future__ import annotations

import ast
import difflib
import functools
import linecache
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..literals import mask_literals
from ..records.code import RESUMED, SourceLine
from ..records.evidence import GENERATED, GraphCallers, HostSamples, SampledFrame
from ..records.traced import UserCall

_FILE = "<module>"
"""The name of the function that runs a file."""

_OPERATIONS: dict[type[ast.AST], frozenset[str]] = {
    ast.Add: frozenset({"add", "add_"}),
    ast.Sub: frozenset({"sub", "sub_", "rsub"}),
    ast.Mult: frozenset({"mul", "mul_"}),
    ast.Div: frozenset({"div", "div_", "reciprocal", "__rdiv__"}),
    ast.MatMult: frozenset({"matmul", "mm", "bmm", "linear"}),
    ast.Pow: frozenset({"pow"}),
}
"""The operators that an operation of Python calls."""

_TRUTH = frozenset({"is_nonzero", "bool"})
"""The operators that a condition calls, and ``bool``."""

_SUBSCRIPT = frozenset({"select", "slice", "index", "index_put_", "unsqueeze"})


class UserFiles:
    """The files of the user's program.

    Args:
        roots: the folders to which the files of a trace are relative, in the order in which they are tried.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._found: dict[UserCall, _CallLines] = {}

    def find(self, call: UserCall) -> SourceLine | None:
        """Returns the line of a single call; ``None`` if it is unknown."""
        lines = self._lines(call)
        return self._source(call, lines.sure)

    def find_all(self, calls: Iterable[UserCall]) -> Iterator[SourceLine | None]:
        """Returns the lines of the calls of one step, in their order.

        If a call may come from several places, it is the next one after those of the calls before it, or after the line
        on which its function was when the profile began. All operators of one call have its line.
        """
        before: dict[tuple[str, str], int] = {}
        used: dict[UserCall, int] = {}
        chosen: dict[tuple[float, tuple[int, ...]], int] = {}
        for one in calls:
            call, begun_s = one._replace(begun_s=None), one.begun_s
            lines, key = self._lines(call), (call.file, call.function)
            line = lines.sure
            if begun_s is not None and (begun_s, lines.several) in chosen:
                line = chosen[begun_s, lines.several]
            elif lines.several:
                left = range(used.get(call, -1) + 1, len(lines.several))
                place = next((at for at in left if lines.several[at] >= before.get(key, call.line)), 0)
                line, used[call] = lines.several[place], place
                if begun_s is not None:
                    chosen[begun_s, lines.several] = line
            if line is not None and (lines.several or lines.is_call):
                before[key] = line
            yield self._source(call, line)

    def _lines(self, call: UserCall) -> _CallLines:
        if call not in self._found:
            path = self._path(call)
            self._found[call] = (
                _find_lines_of_call(path, call) if path is not None else _CallLines(_find_first_line(call))
            )
        return self._found[call]

    def _path(self, call: UserCall) -> Path | None:
        if not call.file:
            return None
        paths = (root / call.file for root in self._roots)
        return next((path for path in paths if path.is_file() or _is_cell(path)), None)

    def _source(self, call: UserCall, line: int | None) -> SourceLine | None:
        if line is None or not call.file:
            return None
        path = self._path(call)
        text = mask_literals(linecache.getline(str(path), line).strip()) if path is not None else ""
        return SourceLine(str(path) if path is not None else call.file, line, call.function, text)


class _CallLines(NamedTuple):
    """The lines that may be a call's."""

    sure: int | None  # the only one, or the function's first line; ``None`` if it is unknown
    several: tuple[int, ...] = ()  # of several ones all, in order; a line with two such calls is there twice
    is_call: bool = False  # whether ``sure`` is the line of the call


def _find_first_line(call: UserCall) -> int | None:
    return None if call.function == _FILE else call.line


def _find_lines_of_call(path: Path, call: UserCall) -> _CallLines:
    tree = _parse(path)
    if tree is None:
        return _CallLines(_find_first_line(call))
    resumed = RESUMED.fullmatch(call.function)
    if resumed is not None:
        call = call._replace(function=resumed["function"], line=int(resumed["line"]))
    function = tree if call.function == _FILE else _find_function(tree, call)
    calls = list(_group_calls_by_line(function)) if function is not None else []
    made = _find_made_objects(tree)
    several: tuple[int, ...] = ()
    for called in call.called:
        names, constructed = made.get(called, (set(), set()))
        wanted = {called, *names}
        lines = sorted(line for line, found in calls if not wanted.isdisjoint(found) and line not in constructed)
        if resumed is not None:
            lines = [line for line in lines if line >= call.line]
        if len(set(lines)) > 1 and function is not None and call.line > getattr(function, "lineno", 0):
            lines = [line for line in lines if _is_repeated(function, line)] or lines  # it runs since before the step
        if len(set(lines)) == 1 and (not several or lines[0] in several):
            return _CallLines(lines[0], (), is_call=True)
        several = several or tuple(lines)
    if resumed is not None:
        return _CallLines(None)
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return _CallLines(function.lineno, several)
    return _CallLines(_find_first_line(call), several)


def _is_repeated(function: ast.AST, line: int) -> bool:
    """Whether a line is in a loop of a function."""
    loops = (node for node in ast.walk(function) if isinstance(node, ast.For | ast.AsyncFor | ast.While))
    return any(node.lineno < line <= (node.end_lineno or 0) for node in loops)


@functools.lru_cache(maxsize=64)
def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(str(path))) if _is_cell(path) else path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _is_cell(path: Path) -> bool:
    """Whether a path is the name of a notebook's cell. Only the notebook's process has the text of a cell."""
    return str(path) in linecache.cache and not path.is_file()


@functools.lru_cache(maxsize=64)
def _find_made_objects(tree: ast.Module) -> dict[str, tuple[set[str], set[int]]]:
    """Returns by class the variables and attributes to which a file assigns an object, and the lines that do this."""
    found: dict[str, tuple[set[str], set[int]]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for place, made in pairs:
            name = place.attr if isinstance(place, ast.Attribute) else getattr(place, "id", None)
            if name is not None and isinstance(made, ast.Call):
                names, lines = found.setdefault(_find_called_name(made), (set(), set()))
                names.add(name)
                if _find_called_name(made)[:1].isupper():  # a class
                    lines.add(made.func.end_lineno or made.lineno)
    return found


def _find_called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _find_function(tree: ast.Module, call: UserCall) -> ast.AST | None:
    """Returns the innermost function of the call's name that holds its line. A decorator belongs to its function."""
    found: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == call.function:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= call.line <= (node.end_lineno or first):
                found = node
    return found


def _group_calls_by_line(body: ast.AST) -> Iterator[tuple[int, frozenset[str]]]:
    """Returns by line the calls and operations in a function or a file, without those in inner functions."""
    waiting = list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            called = _find_called_name(node)
            yield node.func.end_lineno or node.lineno, _TRUTH if called == "bool" else frozenset({called})
        elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test.lineno, _TRUTH
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            yield node.lineno, _OPERATIONS.get(type(node.op), frozenset())
        elif isinstance(node, ast.Subscript):
            yield node.lineno, _SUBSCRIPT


# Reads the lines of a sampled stack.


MOST_BYTES = 5_000_000
"""Size of the largest file whose lines are read."""


def add_sampled_lines(samples: HostSamples, graphs: Mapping[str, str]) -> HostSamples:
    """Returns the samples with the text of each frame's line, and what the line calls.

    Args:
        samples: what a process sampled.
        graphs: by the real path of each compiled module, the name that its frames get in place of the path.
    """
    return replace(samples, frames=tuple(_add_line(frame, graphs) for frame in samples.frames))


def add_calling_lines(callers: GraphCallers) -> GraphCallers:
    """Returns the lines that call a graph, with their texts."""
    return replace(callers, lines=tuple(map(_add_text, callers.lines)))


def _add_text(line: SourceLine) -> SourceLine:
    if _is_cell(Path(line.file)):
        return replace(line, code=mask_literals(linecache.getline(line.file, line.line).strip()))
    lines = _read_lines(line.file)
    return replace(line, code=_read_text(lines, line.line) if 0 < line.line <= len(lines) else "")


def _read_text(lines: Sequence[bytes], line: int) -> str:
    return mask_literals(lines[line - 1].decode("utf-8", "replace").strip())


def _add_line(frame: SampledFrame, graphs: Mapping[str, str]) -> SampledFrame:
    if frame.owner == GENERATED:
        return replace(frame, file=graphs.get(os.path.realpath(frame.file), frame.file))
    lines = _read_lines(frame.file)
    if not 0 < frame.line <= len(lines):
        return frame
    text = _read_text(lines, frame.line)
    return replace(frame, code=text, called=_find_called_text(lines, frame) if frame.is_call else "")


@functools.lru_cache(maxsize=256)
def _read_lines(file: str) -> tuple[bytes, ...]:
    """Returns the lines of a file; none for a pipe, such as that of ``python <(cat FILE)``, a device or an endless
    file."""
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return ()
        with open(file, "rb") as stream:
            return tuple(stream.read(found.st_size).splitlines())
    except (OSError, ValueError):
        return ()


def _find_called_text(lines: Sequence[bytes], frame: SampledFrame) -> str:
    """Returns the name that the expression of a frame calls; empty if it calls something else."""
    if len(frame.span) != 4:  # Python 3.10
        return _find_entered(lines[frame.line - 1].strip() + b" pass")
    first, last, begin, end = frame.span
    if not 0 < first <= last <= len(lines):
        return ""
    picked = [*lines[first - 1 : last]]
    picked[-1] = picked[-1][:end]
    picked[0] = picked[0][begin:]
    text = b"\n".join(picked)
    try:
        tree = ast.parse(b"(" + text + b")", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _find_entered(text)
    if isinstance(tree, ast.Call):
        return _write_dotted_name(tree.func)
    name = _write_dotted_name(tree)  # a name alone calls something only as the context of a ``with``
    return f"{name}.__enter__" if name and lines[frame.line - 1].lstrip().startswith(_WITH) else ""


_WITH = (b"with ", b"async with ")


def _find_entered(text: bytes) -> str:
    """Returns what a ``with`` statement enters.

    Python before 3.13 gives the whole statement as the place of a frame.
    """
    if not text.startswith(_WITH):
        return ""
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    items = statement.items if isinstance(statement, ast.With | ast.AsyncWith) else []
    name = next(filter(None, (_write_dotted_name(item.context_expr) for item in items)), "")
    return f"{name}.__enter__" if name else ""


def _write_dotted_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return ""
    return f"{_write_dotted_name(node.value)}.{node.attr}"


OPTIMIZERS = frozenset(
    {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)


def add_keywords(text: str, names: Iterable[str], keywords: Mapping[str, str]) -> str | None:
    """Returns the text with keywords in the only call of a function of one of these names.

    Args:
        text: the program.
        names: names as they stand before the parenthesis, without what is before the last dot; ``torch.compile`` with
            its dot is only that.
        keywords: the values as Python writes them. A keyword that the call already has is replaced.

    Returns:
        ``None`` if there is no such call, or more than one, or if it cannot be changed.
    """
    wanted = frozenset(names)
    calls = [node for node in _list_calls(text) if _name(node) in wanted or _find_last_argument(node) in wanted]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    return _apply_edits(text, [_edit(text, calls[0], name, value) for name, value in keywords.items()])


FUSED = frozenset({"Adam", "AdamW", "SGD"})
"""The optimizers of torch that take ``fused=True`` on every device."""

FUSED_ON_CPU = FUSED | {"Adagrad"}
"""The optimizers of torch that take ``fused=True`` on a CPU."""

CAPTURABLE = OPTIMIZERS - {"Adagrad", "SGD"}
"""The optimizers that can count their steps on the device."""


def add_compiled_step(text: str, names: frozenset[str], *, on_host: bool) -> str | None:
    """Returns the text with a compiled step of the only optimizer: its learning rate becomes a tensor, and a line is
    added.

    Args:
        text: the program.
        names: the classes that the optimizer may have.
        on_host: whether it runs on a CPU.

    Returns:
        ``None`` if there is no optimizer or more than one, or if it is not assigned to a name.
    """
    calls = [node for node in _list_calls(text) if _find_last_argument(node) in names]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    call, given = calls[0], {keyword.arg: keyword.value for keyword in calls[0].keywords if keyword.arg}
    made = next((node for node in ast.walk(ast.parse(text)) if _assigns(node, call)), None)
    if not isinstance(made, ast.Assign):
        return None
    name = ast.unparse(made.targets[0])
    keywords = (
        {}
        if on_host
        else {"foreach": "True", **({"capturable": "True"} if _find_last_argument(call) in CAPTURABLE else {})}
    )
    keywords |= {other: "False" for other in ("fused", *(["foreach"] if on_host else [])) if other in given}
    edits = [_edit(text, call, key, value) for key, value in keywords.items()]
    rate = given.get("lr") or (call.args[1] if len(call.args) > 1 else None)
    if rate is not None:
        begin, end = _find_offset(text, rate.lineno, rate.col_offset), _end(text, rate)
        edits.append((begin, end, f"torch.tensor({text[begin:end]})"))
    place, indent = _end(text, made), " " * made.col_offset
    compiled = f"torch.compile(type({name}).step, options={{'triton.cudagraphs': False}})"
    edits.append((place, place, f"\n{indent}{name}.step = {compiled}.__get__({name})"))
    return _apply_edits(text, edits)


def _assigns(node: ast.AST, call: ast.Call) -> bool:
    """Whether a node assigns the result of a call at the same place to one name."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return False
    same = (node.value.lineno, node.value.col_offset) == (call.lineno, call.col_offset)
    return same and isinstance(node.targets[0], ast.Name | ast.Attribute)


def add_decorator(text: str, name: str, line: int) -> str | None:
    """Returns the text with ``@torch.compile`` above the innermost function of a name around a line; ``None`` without
    one."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name and node.lineno <= line <= (node.end_lineno or 0)
    ]
    imports = (one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names)
    if not found or all(one.split(".")[0] != "torch" for one in imports):
        return None
    node = max(found, key=lambda one: one.lineno)
    place = _find_offset(text, node.lineno, 0)
    return _apply_edits(text, [(place, place, f"{' ' * node.col_offset}@torch.compile\n")])


def replace_calls(text: str, path: str, name: str) -> str | None:
    """Returns the text in which calls of a function of torch call another one; ``None`` if there is no such call.

    Args:
        text: the program.
        path: the path of the function, which may be imported by its module, as in ``F.cross_entropy``, or by its name.
        name: what is called instead.
    """
    last = path.rpartition(".")[2]
    calls = [node for node in _list_calls(text) if _name(node) in (path, f"F.{last}", f"functional.{last}", last)]
    functions = [call.func for call in calls]
    edits = [(_find_offset(text, one.lineno, one.col_offset), _end(text, one), name) for one in functions]
    return _apply_edits(text, edits) if edits else None


def _apply_edits(text: str, edits: Sequence[tuple[int, int, str]]) -> str | None:
    """Returns the text with all edits, if it still is Python."""
    for begin, end, words in sorted(edits, reverse=True):
        text = text[:begin] + words + text[end:]
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text


def _list_calls(text: str) -> Iterator[ast.Call]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _find_last_argument(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _edit(text: str, call: ast.Call, name: str, value: str) -> tuple[int, int, str]:
    """Returns the begin and the end of the replaced text, and the new text."""
    for keyword in call.keywords:
        if keyword.arg == name:
            node = keyword.value
            return _find_offset(text, node.lineno, node.col_offset), _end(text, node), value
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    last = max(values, key=lambda node: _end(text, node), default=None)
    if last is None:
        place = _end(text, call) - 1
        return place, place, f"{name}={value}"
    place = _end(text, last)
    closed = text[place : _end(text, call) - 1]
    place += len(closed) - len(closed.lstrip(")")) if closed.startswith(")") else 0
    return place, place, f", {name}={value}"


def _end(text: str, node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _find_offset(text, node.end_lineno, node.end_col_offset)


def _find_offset(text: str, line: int, column: int) -> int:
    """Returns the place of a character; columns of syntax trees count bytes."""
    lines = text.splitlines(keepends=True)
    before = sum(map(len, lines[: line - 1]))
    return before + len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def add_lines(text: str, added: Sequence[str]) -> str | None:
    """Returns the text with lines after its last import at the outermost level; ``None`` if it cannot be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not imports:
        return None
    last = imports[-1].end_lineno or imports[-1].lineno
    lines = text.splitlines(keepends=True)
    if not lines[last - 1].endswith("\n"):
        lines[last - 1] += "\n"
    return "".join([*lines[:last], "\n", *(f"{line}\n" for line in added), *lines[last:]])


def write_diff(before: str, after: str, name: str) -> str:
    """Returns the change of a file in the form of ``diff -u``."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
