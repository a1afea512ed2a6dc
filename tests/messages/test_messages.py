"""Requests and answers: each request has somebody who answers it, and both forms of a message are one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from inductor_bench.devices.nvidia.architectures import ARCHITECTURES
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages import jobs, kernels, machine, times
from inductor_bench.messages.request import Request, by_name, decode_answer, decode_request, encode_request
from inductor_bench.records.code.details import Details, MachineLoad
from inductor_bench.records.device_use import DeviceUse, OtherProcess
from inductor_bench.store.formats import codec
from inductor_bench.worker import __main__ as worker
from inductor_bench.worker.bench.bench import Bench


def requests_of(*modules: ModuleType) -> Iterator[type[Request[Any]]]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Request) and is_dataclass(value):
                yield value


BENCH = set(requests_of(machine, kernels, times))
JOBS = set(requests_of(jobs))


def test_each_request_has_a_row_and_each_row_a_request() -> None:
    assert set(Bench(lambda part: None)._answers) == BENCH
    assert set(worker.JOBS) == JOBS and len({job.verb for job in worker.JOBS}) == len(JOBS)
    assert {machine.Pretend, kernels.Load, times.Sample} < BENCH and jobs.ProfileModule in JOBS


def misfits(kind: type[Request[Any]], hints: dict[str, Any]) -> bool:
    """Whether a method takes another request than its row says, or answers what that does not name."""
    taken, *_ = [hint for name, hint in hints.items() if name != "return"]
    return taken is not kind or hints["return"] != kind.answer_type


def test_methods_take_and_answer_what_their_rows_say() -> None:
    rows = Bench(lambda part: None)._answers
    assert [kind for kind, method in rows.items() if misfits(kind, get_type_hints(method))] == []
    functions = {kind: get_type_hints(worker._import_function(place)) for kind, place in worker.JOBS.items()}
    assert [kind for kind, hints in functions.items() if misfits(kind, hints)] == []
    assert misfits(kernels.Load, get_type_hints(rows[kernels.TellFacts]))


@pytest.mark.parametrize("data", [{"do": "Dance"}, {"number": 1}, [], None])
def test_a_worker_refuses_in_words_what_it_does_not_know(data: Any) -> None:
    with pytest.raises(InductorBenchError, match="the worker knows no request"):
        Bench(lambda part: None).answer(data)


def test_a_request_whose_fields_do_not_fit_is_refused_with_the_place() -> None:
    with pytest.raises(InductorBenchError, match=r"Sample\.order\[1\] should be int"):
        Bench(lambda part: None).answer({"do": "Sample", "order": [1, "two"], "state": "cold"})


@pytest.mark.parametrize(
    "request_",
    [
        machine.Pretend(ARCHITECTURES["sm_90"]),
        kernels.Vary(2, of=1, change=kernels.Change({"XBLOCK": 64, "num_warps": 4})),
        kernels.CompileTriton(3, None, read=False),
        kernels.Drop((1, 2)),
        times.Sample((3, 1), "warm"),
    ],
)
def test_requests_arrive_as_they_were_sent(request_: Request[Any]) -> None:
    sent = json.loads(json.dumps(encode_request(request_)))
    assert sent["do"] == type(request_).__name__
    assert decode_request(sent, by_name(BENCH)) == request_


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (machine.FindDeviceUse(), None),
        (machine.FindDeviceUse(), DeviceUse(0, (OtherProcess(7, "python"),), 0.5)),
        (kernels.Forget(), None),
        (
            kernels.ListTritonConfigs(1),
            kernels.TritonConfigs({"XBLOCK": 8}, (), ({"XBLOCK": 4},), True, {"XBLOCK": (4, 8)}),
        ),
        (times.Measure(1), times.Measured((1e-5,), (2e-6,), "graphs", {"cold": (1e-5,)}, 1980.0, None, ("power cap",))),
        (times.Sample((1,), "cold"), times.Times((1e-5,))),
    ],
)
def test_answers_arrive_as_they_were_given(request_: Request[Any], answer: Any) -> None:
    assert decode_answer(request_, json.loads(json.dumps(codec.encode(answer)))) == answer


def test_an_answer_of_another_kind_is_no_answer() -> None:
    for request, data in ((machine.FindDeviceUse(), 3), (kernels.Forget(), {}), (times.Sample((1,), "cold"), [1.0])):
        with pytest.raises(InductorBenchError, match="should be"):
            decode_answer(request, data)


def test_what_is_at_its_default_is_not_written_and_read_back() -> None:
    details = Details(wall_samples_s=(1e-3,), wall_load=MachineLoad(runs=1, cores=2), recorded=())
    written = codec.encode_sparse(details)
    assert written == {"wall_samples_s": [1e-3], "wall_load": {"runs": 1, "cores": 2}, "recorded": []}
    assert codec.decode(Details, written) == details and codec.encode_sparse(Details()) == {}
