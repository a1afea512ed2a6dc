"""Files of kernels that read by index: the time with the recorded indices stands beside the time with zeros."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from inductor_bench.records.code import Launch
from inductor_bench.source.harness import cpp_main, operator_main, timing_cpu
from inductor_bench.store import codec
from inductor_bench.worker.profile.recorder import watch_launches

TABLE = torch.randn(300, 16)
INDEX = torch.arange(200).flip(0) * 7 % 300
GATHER = "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)]; auto tmp1 = in_ptr1[static_cast<int64_t>(x1 + 16L*tmp0)];"
VECTOR = "auto tmp3 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 16L*tmp0), 16);"
SCATTER = "atomic_add(&out_ptr0[static_cast<int64_t>(x0)], tmp0);"
PLAIN = "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)]; tmp1.store(out_ptr0 + static_cast<int64_t>(x0)); y[x0] = tmp0;"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_cpu, "BUDGET_S", 0.01)


def recorded(run: Any) -> dict[str, Any]:
    (launch,) = watch_launches(torch, run)
    return {"name": "x", "kernel_id": "0", "launch": codec.encode(launch), "device_type": "cpu"}


CALLS = {
    "embedding": lambda: torch.ops.aten.embedding.default(TABLE, INDEX),
    "gather": lambda: torch.gather(TABLE, 0, INDEX.view(-1, 1)),
    "index_add": lambda: torch.index_add(TABLE, 0, INDEX, TABLE[:200]),
    "index_put": lambda: torch.ops.aten.index_put.default(TABLE, [INDEX], TABLE[:1]),
    "sort": lambda: torch.ops.aten.sort.stable(INDEX, stable=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_with_indices_is_timed_with_zeros_too(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Launch] = watch_launches(torch, CALLS[name])
    facts = {"name": "x", "launch": codec.encode(calls[-1]), "device_type": "cpu"}
    operator = operator_main.Operator(facts)
    assert operator_main.run_operator(operator, timing_cpu.measure_cpu, "x", ["--json"]) == 0
    zeros = json.loads(capsys.readouterr().out)["with_zeros"]
    assert {state: timing["median_s"] > 0 for state, timing in zeros.items()} == {"cold": True, "warm": True}
    assert operator_main.run_operator(operator, timing_cpu.measure_cpu, "x", []) == 0
    assert "[indices all zero: cold " in capsys.readouterr().out


def test_an_operator_without_indices_is_not() -> None:
    operator = operator_main.Operator(recorded(lambda: torch.mm(TABLE, TABLE.t())))
    assert operator.measure_with_zeros(timing_cpu.measure_cpu) is None


def test_the_zeros_reach_the_call() -> None:
    seen: list[list[int]] = []

    def measure(launch: dict[str, Any], arguments: Any, bind: Any) -> dict[str, Any]:
        seen.append(arguments.args[1].tolist())
        return {"cold": {}, "warm": {}, "method": ""}

    operator = operator_main.Operator(recorded(CALLS["embedding"]))
    operator.measure_with_zeros(measure)
    assert seen == [[0] * 200] and operator.make_arguments().args[1].tolist() == INDEX.tolist()


def test_an_operator_that_takes_no_zeros_has_no_such_times() -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        raise RuntimeError("integer division by zero")

    assert operator_main.Operator(recorded(CALLS["sort"])).measure_with_zeros(refuse) is None


@pytest.mark.parametrize(("source", "found"), [(GATHER, True), (VECTOR, True), (SCATTER, True), (PLAIN, False)])
def test_only_a_cpp_kernel_that_reads_by_index_is_timed_with_zeros(
    source: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {**recorded(CALLS["embedding"]), "cpp": {"argument_types": []}}
    kernel = cpp_main.CppKernel(facts, source)
    monkeypatch.setattr(kernel, "compile", lambda: torch.embedding)
    assert (kernel.measure_with_zeros() is not None) == found
