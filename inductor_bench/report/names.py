"""Formats names for tables: one line without control characters, and short forms that are unique."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..analysis.call_work import DTYPES
from ..records.code import SourceLine, is_users_line
from ..records.module import InputShape, Kernel, ShapeGroup
from ..records.run import Run
from ..units import ELLIPSIS

MOST_CHARACTERS = 4096
"""Only this number of characters of a kernel's name is read. Names of C++ templates have up to half of it."""
MOST_FOLDERS = 64

_ESCAPE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_SEPARATOR = re.compile(r"[/\\]")
_WORD = re.compile(r"\w+")
_CUTLASS = re.compile(r"cutlass::Kernel2?<([^<>]+)>")
_XMMA_TAIL = re.compile(
    r"(?:_(?:warp(?:group)?size|tensor|stage|g)\d[\dx]*|_execute|_segment_k_o(?:n|ff)|_split_k|_kernel|_beta(?:True|False)|_align[a-z]?\d+)*"
    r"(?:_+\dx_cu(?:dnn|blas))?$"
)
_GENERATED = re.compile(r"((?:triton_[a-z]{3}|cpp|triton)_(?:fused_+)?)(.+)")
_GRAPH = re.compile(r"((?:rank \d+ )?)(.*?)((?: · .*)?)")
_FORWARD_METHOD = re.compile(r"\.forward\b")
_NARROWEST_FUNCTION = 3
_TORCH = re.compile(r"(?:^|/)torch/|(?:^|/)triton/")


def clean(text: str) -> str:
    """Makes one printable line: removes terminal escapes, replaces other control and direction characters."""
    if text.isprintable():
        return " ".join(text.split())
    text = _ESCAPE.sub("", text)
    return " ".join("".join(_make_printable(character) for character in text).split())


def _make_printable(character: str) -> str:
    if character.isspace():
        return " "
    return "?" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else character


def count_columns(text: str) -> int:
    """Returns the width of ``text`` in terminal columns: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut_end(text: str, width: int) -> str:
    """Cuts ``text`` at its end to at most ``width`` columns."""
    if count_columns(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and count_columns(kept) > width - 1:
        kept = kept[:-1]
    return kept + ELLIPSIS[: max(0, width)]


def cut_middle(text: str, width: int) -> str:
    """Cuts ``text`` in the middle to at most ``width`` columns, because both ends of a kernel's name identify it."""
    if count_columns(text) <= width:
        return text
    if width <= 2:
        return cut_end(text, width)
    tail = (width - 1) // 2
    back = text[len(text) - tail :]
    while count_columns(back) > tail:
        back = back[1:]
    front = cut_end(text, width - count_columns(back))
    return front + back


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pads ``text`` with spaces to ``width`` columns; ``right`` aligns it right."""
    fill = " " * max(0, width - count_columns(text))
    return fill + text if right else text + fill


def strip_kernel_name(name: str) -> str:
    """Removes the compiler's additions from a kernel's name: return type, templates, parameters, namespaces, tiles."""
    if len(name) > MOST_CHARACTERS:
        name = name[: MOST_CHARACTERS // 2] + ELLIPSIS + name[-MOST_CHARACTERS // 2 :]
    text = clean(name) or "(no name)"
    if "_xmma_" in text:
        return _XMMA_TAIL.sub("", text) or text
    if not text.startswith("void ") and not ("::" in text and text.endswith(")")):
        return text
    inner = _CUTLASS.search(text)
    if inner is not None:
        return inner.group(1).strip()
    functor = _name_functor(text) if "elementwise_kernel" in text else ""
    if functor:
        return f"at::native elementwise: {functor}"
    spaces = _find_outside_brackets(text.removeprefix("void ")).strip().removeprefix("at_cuda_detail::").split("::")
    spaces = [space for space in spaces if space]
    return "::".join(spaces if len(spaces) <= 3 else [spaces[0], spaces[-1]]) or text


def shorten(name: str, width: int) -> str:
    """Shortens a kernel's name to at most ``width`` columns.

    The short name of a generated kernel keeps the kind, the last operators and the number, so that a reader finds the
    kernel in the module. Any other name keeps both ends.
    """
    text = strip_kernel_name(name)
    generated = _GENERATED.fullmatch(text)
    if count_columns(text) <= width or generated is None:
        return cut_middle(text, width)
    kind, rest = generated.group(1).split("fused")[0], generated.group(2)
    room = width - len(kind) - 1
    if room < 8:
        return cut_middle(text, width)
    if len(rest) <= room:
        return f"{kind}{ELLIPSIS}{rest}"
    tail = rest[len(rest) - room :]
    at_word = tail.find("_")
    if 0 <= at_word < len(tail) // 2 and tail[at_word:].strip("_"):
        tail = tail[at_word:].lstrip("_")
    return f"{kind}{ELLIPSIS}{tail}"


def shorten_label(text: str, width: int) -> str:
    """Shortens a graph's label to at most ``width`` columns.

    The method ``forward`` goes first, because nearly every module has one. Then the name of the function is cut in the
    middle, because the rank before it and the role after it distinguish the graphs of one function. The end goes last.
    """
    text = clean(text)
    if count_columns(text) <= width:
        return text
    match = _GRAPH.fullmatch(_FORWARD_METHOD.sub("", text, count=1))
    rank, function, role = match.groups() if match else ("", text, "")
    room = max(_NARROWEST_FUNCTION, width - count_columns(rank + role))
    return cut_end(rank + cut_middle(function, room) + role, width)


def _name_functor(text: str) -> str:
    """Returns the first word in the name of an elementwise kernel that names its computation."""
    for word in _WORD.findall(text):
        kernel = word.removesuffix("_kernel_cuda")
        if kernel and (kernel != word or "unctor" in word.replace("F", "f").partition("f")[2]):
            return str(kernel)
    return ""


def _find_outside_brackets(text: str) -> str:
    kept, depth = [], 0
    for character in text:
        if character in "<({":
            depth += 1
        elif character in ">)}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(character)
    return "".join(kept)


def make_names_unique(names: Iterable[str], width: int, shorten: Callable[[str, int], str] = shorten) -> dict[str, str]:
    """Makes unique short forms of the names of kernels, or of other names.

    Args:
        names: full names; repeated names count once.
        width: largest number of characters of a short form, at least 8.
        shorten: makes a short form of a name with at most a given number of columns.

    Returns:
        The short form by full name.
    """
    shorts: dict[str, str] = {}
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in dict.fromkeys(names):
        candidates = (shorten(name, width), cut_middle(strip_kernel_name(name), width))
        chosen = next((text for text in candidates if text and text not in taken), None)
        while chosen is None or chosen in taken:
            chosen = _add_number(name, width, numbers, shorten)
        taken.add(chosen)
        shorts[name] = chosen
    return shorts


def shorten_uniquely(texts: Sequence[str], width: int) -> list[str]:
    """The unique short forms of the names of kernels, in their order; see :func:`make_names_unique`."""
    found = make_names_unique(texts, width)
    return [found[text] for text in texts]


def make_labels_unique(texts: Sequence[str], width: int) -> list[str]:
    """The unique short forms of the labels of graphs, in their order."""
    found = make_names_unique(texts, width, shorten_label)
    return [found[text] for text in texts]


def cut_middles(texts: Sequence[str], width: int) -> list[str]:
    """The texts, each cut in the middle."""
    return [cut_middle(text, width) for text in texts]


def _add_number(name: str, width: int, numbers: dict[str, int], shorten: Callable[[str, int], str]) -> str:
    """Appends the next free number to a short name; ``numbers`` holds the next number by short name."""
    digits = 1
    while True:
        stem = shorten(name, width - digits - len(" ~"))
        number = numbers.get(stem, max(2, 10 ** (digits - 1)))
        if number < 10**digits:
            numbers[stem] = number + 1
            return f"{stem} ~{number}"
        digits += 1


def name_files(run: Run) -> dict[str, str]:
    """Returns the name of each source file by path, with enough folders to make it unique within the run."""
    origins = [kernel.origin for module in run.modules for kernel in module.kernels]
    files = {line.file for one in origins for line in (*one.source_lines, *one.called_at)}
    parts = {
        file: [clean(part) for part in _SEPARATOR.split(file) if part][-MOST_FOLDERS:] or [clean(file)]
        for file in files
    }
    names, depth = {}, 1
    while files:
        tails: dict[str, list[str]] = {}
        for file in files:
            tails.setdefault("/".join(parts[file][-depth:]), []).append(file)
        for tail, alike in tails.items():
            if len(alike) == 1 or all(depth >= len(parts[file]) for file in alike):
                names.update(dict.fromkeys(alike, tail))
        files = files - names.keys()
        depth += 1
    return names


def _compute_distance(line: SourceLine) -> int:
    """Returns 0 for a line of the user's code, 1 for a line of a library, and 2 for one of torch."""
    if is_users_line(line):
        return 0
    return 2 if _TORCH.search(line.file.replace("\\", "/")) else 1


def describe_source_place(kernel: Kernel, files: Mapping[str, str]) -> str:
    """Returns the source line of a kernel, ``model.py:41 stem (+2 lines)``, or an empty string.

    If there is none, returns the line that calls its graph, ``called at train.py:31 main``. A function called
    ``forward`` is not named, because nearly all lines of a model are in one.
    """
    called, lines = _find_lines(kernel)
    if not lines:
        return ""
    line, more = lines[0], len(lines) - 1
    function = clean(line.function)
    return " ".join(
        part
        for part in (
            called,
            f"{files.get(line.file) or clean(_SEPARATOR.split(line.file)[-1])}:{line.line}",
            function if function != "forward" else "",
            f"(+{more} line{'s' * (more > 1)})" if more else "",
        )
        if part
    )


CALLED_AT = "called at"
"""Stands before the line that calls the graph of a kernel, if no line of the kernel itself is known."""


def _find_lines(kernel: Kernel) -> tuple[str, Sequence[SourceLine]]:
    """Returns the lines of a kernel, the one to show first; if it has none, those that call its graph."""
    if kernel.origin.source_lines:
        return "", sorted(kernel.origin.source_lines, key=_compute_distance)
    return CALLED_AT, kernel.origin.called_at


def describe_source_line(kernel: Kernel, files: Mapping[str, str]) -> str:
    """Returns the source line of a kernel with its code, ``model.py:41 stem: x = self.conv(x)``, or an empty string."""
    _, lines = _find_lines(kernel)
    where, code = describe_source_place(kernel, files), clean(lines[0].code) if lines else ""
    return f"{where}: {code}" if code else where


def describe_operation(kernel: Kernel) -> str:
    """Returns the computation of a kernel: the ATen call with its largest shapes, or the fused operators."""
    if kernel.operator:
        return f"{clean(kernel.operator)} {describe_shapes(kernel.shapes)}".strip()
    return ", ".join(clean(op) for op in kernel.origin.aten_ops)


def describe_shapes(groups: tuple[ShapeGroup, ...]) -> str:
    """Returns the most expensive shapes and the number of the others; nothing if no shapes were recorded."""
    largest = max(groups, key=lambda group: group.time_s, default=None)
    if largest is None or not largest.shapes:
        return ""
    more = len(groups) - 1
    return f"[{clean(largest.shapes)}]" + (f" +{more} shape{'s' * (more > 1)}" if more else "")


TYPES = {torch: short for short, torch in DTYPES.values()}
"""The short names of element types, by torch's names."""


def describe_inputs(found: Sequence[InputShape], most: int | None = None) -> str:
    """The types and shapes of a module's inputs: ``i64[32,128] (3x), f32[30522,768] and 14 more shapes``."""
    said = [
        f"{TYPES.get(one.dtype, clean(one.dtype))}[{','.join(map(str, one.shape))}]"
        + (f" ({one.count}x)" if one.count > 1 else "")
        for one in found[:most]
    ]
    more = len(found) - len(said)
    return ", ".join(said) + (f" and {more} more shape{'s' * (more > 1)}" if more else "")


def fold_names(layers: Iterable[str]) -> tuple[str, ...]:
    """The layers with those folded that differ in one number: ``Net.layers.0-11.mlp``.

    Numbers with gaps are ranges one after the other: ``layers.0,2-3``.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for layer in dict.fromkeys(layers):
        parts = layer.split(".")
        place = next((at for at, part in enumerate(parts) if part.isdecimal()), -1)
        key = tuple("#" if at == place else part for at, part in enumerate(parts))
        groups.setdefault(key, []).append(int(parts[place]) if place >= 0 else -1)
    return tuple(
        ".".join(part if part != "#" else _list_ranges(numbers) for part in key) for key, numbers in groups.items()
    )


def _list_ranges(numbers: Iterable[int]) -> str:
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)
