"""Reads the text of C++ kernels: fixed numbers of threads, vector widths, profiler marks and functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_THREADS = (
    re.compile(r"\bnum_threads\((\d+)\)"),
    re.compile(r"\bnum_threads?\s*=\s*(\d+)\s*;"),
    re.compile(r"\btid\s*<\s*(\d+)\b"),
)
_ARRAY = re.compile(r"\b(\w+_arr)\[(\d+)\]")
_BY_THREAD = re.compile(r"\b(\w+_arr)\[tid\]")
_MARK = re.compile(r"RAIIAtenRecordFunctionHandle\s+record_|\bRECORD_FUNCTION\(")
# The load of a whole vector has a plain literal; the load at the end of a row has an index expression (``8L``).
_LOAD = re.compile(
    r"Vectorized<(?:at::|c10::)?(float|BFloat16|bfloat16|Half|half)>::loadu\([^;]*?"
    r",\s*(?:static_cast<int64_t>\()?(\d+)\)?(?:,[^;]*?)?\);"
)
_STEP = re.compile(r"\+=\s*(?:static_cast<int64_t>\()?\(?(\d+)L?\)")
_EXTERN_C = re.compile(r'extern "C"\s+[\w\s]*?\bvoid\s+(\w+)\(')


def read_threads(sources: Iterable[str]) -> int | None:
    """The fixed number of OpenMP threads of the kernels; ``None`` where any number works.

    It is also the size of arrays with an element per thread. Arrays with an element per vector lane have similar names.
    """
    found = []
    for text in sources:
        found += [int(number) for pattern in _THREADS for number in pattern.findall(text)]
        by_thread = set(_BY_THREAD.findall(text))
        found += [int(number) for name, number in _ARRAY.findall(text) if name in by_thread]
    return max(found, default=None)


def read_vector_lanes(sources: Iterable[str]) -> int | None:
    """The number of float32 values in one vector step; ``None`` where no kernel is vectorised."""
    vectorised = [text for text in sources if "at::vec::Vectorized<" in text]
    wide = {"full": set[int](), "half": set[int]()}
    for text in vectorised:
        # A vector of 16-bit values becomes one vector of float32, or two where the loop steps by 16-bit lanes.
        halves = 1 if "convert<float>(" in text and "convert<float,2," not in text else 2
        for kind, number in _LOAD.findall(text):
            wide["full" if kind == "float" else "half"].add(int(number) // (1 if kind == "float" else halves))
    steps = {int(number) for text in vectorised for number in _STEP.findall(text)} - {1}
    if wide["full"]:
        return max(wide["full"])
    if wide["half"]:
        return max(wide["half"])
    return max(steps, default=None)


def has_profile_mark(text: str) -> bool:
    """Whether the text of a C++ kernel holds a mark by which the profiler records its calls."""
    return _MARK.search(text) is not None


def find_cpp_functions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, source and offset of each function with C linkage that ``text`` defines, without prototypes."""
    for match in _EXTERN_C.finditer(text):
        brace, semicolon = text.find("{", match.end()), text.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        end = _closing_brace(text, brace)
        yield match.group(1), text[match.start() : end], match.start()


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)
