"""Requests and answers: each request has somebody who answers it, and both forms of a message are one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages import job_requests, kernel_requests
from inductor_bench.messages.job_requests import (
    WorkerJob,
    WorkerRequest,
    decode_answer,
    decode_request,
    encode_request,
    index_by_name,
)
from inductor_bench.records.base import DeviceUse, OtherProcess
from inductor_bench.records.code import Details, MachineLoad
from inductor_bench.store import codec
from inductor_bench.worker import __main__ as worker
from inductor_bench.worker.bench.bench import Bench


def requests_of(*modules: ModuleType) -> Iterator[type[WorkerRequest[Any]]]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, WorkerRequest) and is_dataclass(value):
                yield value


JOBS = {kind for kind in requests_of(job_requests) if issubclass(kind, WorkerJob)}
BENCH = set(requests_of(job_requests, kernel_requests)) - JOBS


def test_each_request_has_a_row_and_each_row_a_request() -> None:
    assert set(Bench(lambda part: None)._answers) == BENCH
    assert set(worker.JOBS) == JOBS and len({job.verb for job in worker.JOBS}) == len(JOBS)
    assert {job_requests.Pretend, kernel_requests.Load, kernel_requests.Sample} < BENCH
    assert job_requests.ProfileModule in JOBS


def misfits(kind: type[WorkerRequest[Any]], hints: dict[str, Any]) -> bool:
    """Whether a method takes another request than its row says, or answers what that does not name."""
    taken, *_ = [hint for name, hint in hints.items() if name != "return"]
    return taken is not kind or hints["return"] != kind.answer_type


def test_methods_take_and_answer_what_their_rows_say() -> None:
    rows = Bench(lambda part: None)._answers
    assert [kind for kind, method in rows.items() if misfits(kind, get_type_hints(method))] == []
    functions = {kind: get_type_hints(worker._import_function(place)) for kind, place in worker.JOBS.items()}
    assert [kind for kind, hints in functions.items() if misfits(kind, hints)] == []
    assert misfits(kernel_requests.Load, get_type_hints(rows[kernel_requests.TellFacts]))


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
        job_requests.Pretend(ARCHITECTURES["sm_90"]),
        kernel_requests.Vary(2, of=1, change=kernel_requests.VariantChange({"XBLOCK": 64, "num_warps": 4})),
        kernel_requests.CompileTriton(3, None, read=False),
        kernel_requests.Drop((1, 2)),
        kernel_requests.Sample((3, 1), "warm"),
    ],
)
def test_requests_arrive_as_they_were_sent(request_: WorkerRequest[Any]) -> None:
    sent = json.loads(json.dumps(encode_request(request_)))
    assert sent["do"] == type(request_).__name__
    assert decode_request(sent, index_by_name(BENCH)) == request_


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (job_requests.FindDeviceUse(), None),
        (job_requests.FindDeviceUse(), DeviceUse(0, (OtherProcess(7, "python"),), 0.5)),
        (kernel_requests.Forget(), None),
        (
            kernel_requests.ListTritonConfigs(1),
            kernel_requests.TritonConfigs({"XBLOCK": 8}, (), ({"XBLOCK": 4},), True, {"XBLOCK": (4, 8)}),
        ),
        (
            kernel_requests.Measure(1),
            kernel_requests.KernelTimes((1e-5,), (2e-6,), "graphs", {"cold": (1e-5,)}, 1980.0, None, ("power cap",)),
        ),
        (kernel_requests.Sample((1,), "cold"), kernel_requests.Times((1e-5,))),
    ],
)
def test_answers_arrive_as_they_were_given(request_: WorkerRequest[Any], answer: Any) -> None:
    assert decode_answer(request_, json.loads(json.dumps(codec.encode(answer)))) == answer


def test_an_answer_of_another_kind_is_no_answer() -> None:
    for request, data in (
        (job_requests.FindDeviceUse(), 3),
        (kernel_requests.Forget(), {}),
        (kernel_requests.Sample((1,), "cold"), [1.0]),
    ):
        with pytest.raises(InductorBenchError, match="should be"):
            decode_answer(request, data)


def test_what_is_at_its_default_is_not_written_and_read_back() -> None:
    details = Details(wall_samples_s=(1e-3,), wall_load=MachineLoad(runs=1, cores=2), recorded=())
    written = codec.encode_sparse(details)
    assert written == {"wall_samples_s": [1e-3], "wall_load": {"runs": 1, "cores": 2}, "recorded": []}
    assert codec.decode(Details, written) == details and codec.encode_sparse(Details()) == {}
