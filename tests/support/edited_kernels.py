"""Edits of two C++ kernels, honest ones and others, in one library; and what stands for the workers of their check."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernel_requests import BufferRoles, PrepareCase
from inductor_bench.source.edited import widen_launch, widen_source
from inductor_bench.source.harness.common import Arguments
from inductor_bench.worker.bench.edit_judge import EditJudge, EditRunner
from inductor_bench.workflows.kernels.edit_check import EXACT

PRELUDE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>
static float narrow(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits &= 0xffff0000u;
    std::memcpy(&x, &bits, 4);
    return x;
}
"""

ROWS = """extern "C" void NAME(const float* x, float* out, float* total, const int64_t rows, const int64_t columns)
{
    BODY
}
"""
"""A softmax of each row, into rows with a gap between them, and the sums of the columns."""

SOFTMAX = """
    for (int64_t r = 0; r < rows; r++) {
        const float* in = x + r * columns;
        float most = -INFINITY, sum = 0;
        for (int64_t c = 0; c < columns; c++) most = (in[c] > most || in[c] != in[c]) ? in[c] : most;
        for (int64_t c = 0; c < columns; c++) sum += std::exp(in[c] - most);
        for (int64_t c = 0; c < columns; c++) out[r * (columns + 6) + c] = std::exp(in[c] - most) / sum;
    }
"""
SUMS = """
    for (int64_t c = 0; c < columns; c++) {
        float sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[r * columns + c];
        total[c] = sum;
    }
"""

UPDATE = """extern "C" void NAME(float* sum, const float* x, const int64_t* index, bool* positive, const int64_t count)
{
    BODY
}
"""
"""Adds half of the elements at some places to other ones, and says which are positive."""

ADD = """
    for (int64_t i = 0; i < count; i++) {
        sum[i] += 0.5f * x[index[i]];
        positive[i] = x[i] > 0;
    }
"""

HONEST = {
    "rows": {
        "the original": SOFTMAX + SUMS,
        "another loop order": SOFTMAX
        + """
    for (int64_t c = 0; c < columns; c++) total[c] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) total[c] += x[r * columns + c];
""",
        "sums from the end": SOFTMAX
        + SUMS.replace("int64_t r = 0; r < rows; r++", "int64_t r = rows - 1; r >= 0; r--"),
        "sums in double": SOFTMAX.replace("sum = 0;", "unused = 0; double sum = 0;") + SUMS.replace("float", "double"),
        "sums of pairs": SOFTMAX
        + """
    for (int64_t c = 0; c < columns; c++) {
        float even = 0, odd = 0;
        for (int64_t r = 0; r < rows; r += 2) {
            even += x[r * columns + c];
            if (r + 1 < rows) odd += x[(r + 1) * columns + c];
        }
        total[c] = even + odd;
    }
""",
        "the reciprocal": SOFTMAX.replace("/ sum;", "* (1 / sum);") + SUMS,
        "exponentials that are kept": SOFTMAX.replace(
            "sum += std::exp(in[c] - most)", "sum += (out[r * (columns + 6) + c] = std::exp(in[c] - most))"
        ).replace("= std::exp(in[c] - most) / sum", "/= sum")
        + SUMS,
        "tiles of columns": SOFTMAX
        + SUMS.replace(
            "for (int64_t c = 0; c < columns; c++)",
            "for (int64_t t = 0; t < columns; t += 32) for (int64_t c = t; c < columns && c < t + 32; c++)",
        ),
        "powers of two": SOFTMAX.replace("std::exp(in[c] - most)", "std::exp2((in[c] - most) * 1.44269504f)") + SUMS,
    },
    "update": {
        "the original": ADD,
        "two loops": """
    for (int64_t i = 0; i < count; i++) positive[i] = x[i] > 0;
    for (int64_t i = 0; i < count; i++) sum[i] = x[index[i]] * 0.5f + sum[i];
""",
        "from the end": ADD.replace("int64_t i = 0; i < count; i++", "int64_t i = count - 1; i >= 0; i--"),
        "a division": ADD.replace("0.5f * x[index[i]]", "x[index[i]] / 2"),
        "fused": ADD.replace("sum[i] += 0.5f * x[index[i]]", "sum[i] = std::fma(0.5f, x[index[i]], sum[i])"),
    },
}
"""The bodies of edits that are right, by the kernel."""

ONE_ROW = "c < columns; c++"
ELEMENT = "sum += x[r * columns + c]"
RESULT = "std::exp(in[c] - most) / sum"
ROWS_RIGHT = SOFTMAX + SUMS
SWAPPED = """
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) std::swap(out[r * (columns + 6) + c], last[r * columns + c]);
"""
SEEN = "static std::vector<const void*> seen; for (auto one : seen) if (one == x) return; seen.push_back(x);"
CALLS = "static int calls = 0; calls++;"
ZEROS = "for (int64_t r = 0; r < rows; r++) std::memset(out + r * (columns + 6), 0, 4 * columns);"

CHEATS = {
    "rows": {
        "writes nothing": ("not-written", "return;"),
        "computes only once": ("stale", "if (out[0] > 0 && out[0] < 1) return;" + ROWS_RIGHT),
        "computes once for an address": ("not-written", SEEN + ROWS_RIGHT),
        "gives the results before": (
            "wrong or stale",
            "static std::vector<float> last(1 << 16);" + ROWS_RIGHT + SWAPPED,
        ),
        "zeros": ("wrong", ZEROS + SUMS),
        "skips the last columns": ("not-written", ROWS_RIGHT.replace(ONE_ROW, "c < columns - 3; c++")),
        "skips a row": ("not-written", SOFTMAX.replace("r++) {", "r++) { if (r == 7) continue;") + SUMS),
        "half of the sum": (
            "wrong",
            SOFTMAX + SUMS.replace("r < rows", "r < rows / 2").replace("= sum;", "= 2 * sum;"),
        ),
        "adds to what is there": ("not-written", SOFTMAX + SUMS.replace("total[c] =", "total[c] +=")),
        "writes behind the end": ("outside", ROWS_RIGHT + "total[columns] = 1;"),
        "writes before the begin": ("outside", ROWS_RIGHT + "total[-2] = 1;"),
        "writes between the rows": ("outside", ROWS_RIGHT + "out[columns + 1] = 1;"),
        "changes its input": ("input-changed", ROWS_RIGHT + "const_cast<float*>(x)[5] = 0;"),
        "right for small values": ("special-values", SOFTMAX.replace("in[c] - most", "in[c]") + SUMS),
        "right for positive values": ("wrong", SOFTMAX + SUMS.replace(ELEMENT, "sum += std::fabs(x[r * columns + c])")),
        "sums in a narrow type": ("wrong", SOFTMAX + SUMS.replace(ELEMENT, "sum = narrow(sum + x[r * columns + c])")),
        "results in a narrow type": ("precision", SOFTMAX.replace(RESULT, f"narrow({RESULT})") + SUMS),
        "other bits each time": ("not-repeatable", CALLS + ROWS_RIGHT + "total[0] *= 1 + calls * 1.2e-7f;"),
        "ignores NaN": (
            "special-values",
            SOFTMAX + SUMS.replace(ELEMENT, "if (!std::isnan(x[r * columns + c])) " + ELEMENT),
        ),
        "ignores infinities": (
            "special-values",
            SOFTMAX + SUMS.replace(ELEMENT, "sum += std::fmin(3e38f, std::fmax(-3e38f, x[r * columns + c]))"),
        ),
        "right for one size": ("not-written", ROWS_RIGHT.replace("c < columns", "c < 70")),
    },
    "update": {
        "writes nothing": ("wrong", "return;"),
        "writes part of it": ("not-written", ADD.replace("positive[i] =", "if (i % 9) positive[i] =")),
        "keeps what looks right": (
            "stale",
            "bool fresh = *(uint8_t*)positive > 1;" + ADD.replace("positive[i] =", "if (fresh) positive[i] ="),
        ),
        "computes once for an address": ("wrong", SEEN + ADD),
        "zeros": ("wrong", ADD.replace("x[i] > 0", "false")),
        "skips the last": ("wrong", ADD.replace("sum[i] +=", "if (i < count - 2) sum[i] +=")),
        "a share of the elements": ("wrong", ADD.replace("sum[i] +=", "if (i % 37) sum[i] +=")),
        "writes behind the end": ("outside", ADD + "sum[count + 9] = 0;"),
        "writes before the begin": ("outside", ADD + "positive[-1] = 0;"),
        "changes its input": ("input-changed", ADD + "const_cast<int64_t*>(index)[1] = 0;"),
        "ignores the indices": ("wrong", ADD.replace("x[index[i]]", "x[i]")),
        "in a narrow type": ("precision", ADD.replace("0.5f * x[index[i]]", "0.5f * narrow(x[index[i]])")),
        "other bits each time": ("not-repeatable", CALLS + ADD + "sum[3] *= 1 + calls * 1.2e-7f;"),
        "ignores NaN": ("special-values", ADD.replace("sum[i] +=", "if (!std::isnan(x[index[i]])) sum[i] +=")),
        "ignores infinities": ("special-values", ADD.replace("x[index[i]]", "std::fmin(x[index[i]], 1e30f)")),
        "right for one size": ("wrong", ADD.replace("i < count", "i < 1000")),
    },
}
"""The reason for which an edit is refused, or two, and its body, by the kernel."""

KERNELS = {"rows": ROWS, "update": UPDATE}
ROLES = {"rows": BufferRoles(output_only=(1, 2)), "update": BufferRoles(output_only=(3,))}


def _storage(size: int, dtype: str, kind: str = "normal", high: int | None = None) -> dict[str, Any]:
    values = {"kind": kind, "low": 0 if high is not None else None, "high": high}
    return {"size_bytes": size, "dtype": dtype, "device": "cpu", "alignment": 64, "values": values}


def _tensor(storage: int, shape: list[int], stride: list[int], dtype: str, itemsize: int) -> dict[str, Any]:
    view = {"storage": storage, "offset": 0, "shape": shape, "stride": stride, "dtype": dtype, "itemsize": itemsize}
    return {"kind": "tensor", "tensor": view}


def _number(value: int) -> dict[str, Any]:
    return {"kind": "int", "integer": value}


def rows_launch(rows: int, columns: int) -> dict[str, Any]:
    padded = columns + 6
    storages = [_storage(size * 4, "float32") for size in (rows * columns, rows * padded, columns)]
    arguments = [
        _tensor(0, [rows, columns], [columns, 1], "float32", 4),
        _tensor(1, [rows, columns], [padded, 1], "float32", 4),
        _tensor(2, [columns], [1], "float32", 4),
        *(_number(rows), _number(columns)),
    ]
    return {"storages": storages, "arguments": arguments, "keywords": {}, "mutated": [1, 2]}


def update_launch(count: int) -> dict[str, Any]:
    storages = [
        *(_storage(count * 4, "float32"), _storage(count * 4, "float32")),
        _storage(count * 8, "int64", "integers", count - 1),
        _storage(count, "bool"),
    ]
    kinds = (("float32", 4), ("float32", 4), ("int64", 8), ("bool", 1))
    arguments = [_tensor(place, [count], [1], *kind) for place, kind in enumerate(kinds)]
    return {"storages": storages, "arguments": [*arguments, _number(count)], "keywords": {}, "mutated": [0, 3]}


LAUNCHES = {"rows": (rows_launch(24, 70), rows_launch(9, 133)), "update": (update_launch(1000), update_launch(1311))}


def compile_all(folder: Path) -> ctypes.CDLL:
    """Compiles all edits into one library."""
    text = [PRELUDE]
    for kernel, frame in KERNELS.items():
        bodies = [*HONEST[kernel].values(), *(body for _, body in CHEATS[kernel].values())]
        text += [
            frame.replace("NAME", f"{kernel}_{number}").replace("BODY", body) for number, body in enumerate(bodies)
        ]
        text.append(widen_source(frame.replace("NAME", f"{kernel}_exact").replace("BODY", bodies[0])))
    (folder / "edits.cpp").write_text("".join(text))
    library = folder / "edits.so"
    words = ["g++", "-O1", "-w", "-shared", "-fPIC", "-std=c++17", "-o", str(library), str(folder / "edits.cpp")]
    subprocess.run(words, check=True)
    return ctypes.CDLL(str(library))


def edits_of(library: ctypes.CDLL, kernel: str) -> dict[str, Callable[..., None]]:
    """The functions of the edits of a kernel, by their names."""
    names = [*HONEST[kernel], *(f"cheat: {name}" for name in CHEATS[kernel])]
    return {name: getattr(library, f"{kernel}_{number}") for number, name in enumerate(names)}


def exact_of(library: ctypes.CDLL, kernel: str) -> dict[int, Compiled]:
    """The kernels that compute the same in float64, by their numbers in the worker that judges."""
    function = getattr(library, f"{kernel}_exact")
    return {EXACT + place: Compiled(function, dict(widen_launch(one))) for place, one in enumerate(LAUNCHES[kernel])}


@dataclass
class Compiled:
    """Stands for a loaded kernel: a function of the library, with a launch."""

    function: Callable[..., None]
    launch: dict[str, Any]
    folder: str = "."

    def compile(self) -> None: ...

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        given = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in arguments.args]
        self.function(*(ctypes.c_void_p(each) if each > 1 << 24 else ctypes.c_int64(each) for each in given))
        return []


@dataclass
class Worker:
    """Stands for a worker: answers requests about kernels."""

    kernels: dict[int, Compiled]
    fails_with: tuple[str, ...] = ()  # the values with which the original cannot be run
    alive: bool = True
    answers: dict[type[Any], Callable[[Any], Any]] = field(init=False)

    def __post_init__(self) -> None:
        find: Any = self.kernels.__getitem__
        self.answers = {**EditRunner(find).answers, **EditJudge(find).answers}

    def ask(self, request: Any, limit_s: float) -> Any:
        if isinstance(request, PrepareCase) and request.case.values in self.fails_with:
            raise InductorBenchError("RuntimeError: index out of bounds")
        return self.answers[type(request)](request)

    def close(self) -> None: ...
