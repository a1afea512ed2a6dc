"""Where the bytes of a step come from: hand-made steps with a cache that holds 100 bytes, and recorded modules."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from h200 import activities_of, iterations_of, source_of, text_of, trace_of

from inductor_bench.analysis.analyse import ModuleFacts, ModuleInStep, describe_module
from inductor_bench.analysis.call_work import EagerOperator, EagerOperators, fit_uses
from inductor_bench.analysis.evidence_files import AttributedModule, EvidenceFiles
from inductor_bench.analysis.kernel_aggregation import compute_dram_bytes, find_steady_iterations
from inductor_bench.analysis.residence import (
    DEVICE_CACHE,
    HOST_CACHE,
    EagerBytes,
    StepCall,
    Traffic,
    compute_dram_shares,
    compute_shares_in_step,
    describe_buffers,
    lay_out_step,
    simulate_step_traffic,
)
from inductor_bench.records.code import BufferUse, Details, ModuleBuffers
from inductor_bench.records.evidence import (
    DONE,
    Evidence,
    GraphCallTouches,
    ModuleEvidence,
    ObservedGraph,
    ObservedSteps,
    ObservedTouches,
    StepEvidence,
)
from inductor_bench.records.module import Kernel, Method
from inductor_bench.records.run import Peaks
from inductor_bench.source.static_calls import read_buffers
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.modules.observed_files import read_touches

CACHE = round(100 / DEVICE_CACHE.usable)


def read(buffer: str, size: int) -> BufferUse:
    return BufferUse(buffer, size, size, read=size)


def write(buffer: str, size: int) -> BufferUse:
    return BufferUse(buffer, size, size, written=size)


def graph(*calls: tuple[BufferUse, ...], inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> ModuleBuffers:
    return ModuleBuffers(calls, inputs, outputs)


def near(**fields: float) -> Traffic:
    fields.setdefault("dram_written", fields.get("written", 0.0))
    names = ("dram_read", "cache_read", "written", "dram_written")
    return Traffic(**{name: pytest.approx(fields.get(name, 0.0), abs=1e-9) for name in names})


def traffic_of(buffers: ModuleBuffers) -> list[Traffic]:
    (calls,) = simulate_step_traffic([StepCall(0, buffers)], CACHE)
    return [call or Traffic() for call in calls]


def test_weights_that_fit_but_have_more_than_a_cache_full_between_two_steps_come_from_dram() -> None:
    weights = [f"weight{number}" for number in range(4)]
    found = traffic_of(graph(*((read(name, 40),) for name in weights), inputs=tuple(weights)))
    assert found == [Traffic(dram_read=40)] * 4
    two = traffic_of(graph((read("weight0", 40),), (read("weight1", 40),), inputs=("weight0", "weight1")))
    assert two == [Traffic(cache_read=40)] * 2


def test_a_consumer_reads_from_the_cache_what_its_producer_wrote() -> None:
    buffers = graph((read("x", 200), write("y", 50)), (read("y", 50), write("z", 10)), inputs=("x",), outputs=("z",))
    producer, consumer = traffic_of(buffers)
    # The step before left 40 of the 200 bytes of x.
    assert producer.dram_read == pytest.approx(200 - 200 * 0.2)
    # 100 of the producer's 250 bytes are left, so 20 of the 50.
    assert consumer == near(dram_read=30, cache_read=20, written=10)
    small = traffic_of(graph((read("x", 20), write("y", 50)), (read("y", 50), write("z", 10)), inputs=("x",)))
    assert small[1] == near(cache_read=50, written=10)


def test_of_a_partly_evicted_buffer_what_is_left_is_found() -> None:
    # 60 of other bytes leave 40 of the 80.
    reads = graph((read("x", 80),), (read("y", 60),), (read("x", 80),), (read("z", 500),), inputs=("x", "y", "z"))
    assert traffic_of(reads)[2] == near(dram_read=40, cache_read=40)


def test_the_oldest_call_is_evicted_first_and_its_buffers_in_proportion() -> None:
    calls = ((read("a", 40), read("b", 20)), (read("c", 40),), (read("d", 30),), (read("c", 40),), (read("b", 20),))
    found = traffic_of(graph(*calls, (read("e", 500),), inputs=tuple("abcde")))
    assert found[3] == near(cache_read=40)
    # Of a and b 30 of 60 bytes were left.
    assert found[4] == near(dram_read=10, cache_read=10)


def test_written_bytes_go_to_dram_in_the_call_that_writes_them() -> None:
    found = traffic_of(
        graph(*[(write("x", 60),)] * 2, (read("x", 60), write("y", 250)), (read("w", 500),), inputs=("w",))
    )
    assert [call.dram_bytes for call in found] == pytest.approx([60, 60, 250, 500])
    assert found[2].cache_read == 60 and found[2].touched_bytes == 310


def test_a_cpu_keeps_what_is_written_while_it_fits() -> None:
    def calls_of(size: int) -> list[Traffic]:
        buffers = graph((write("x", size),), (read("x", size), write("y", size)), (read("y", size), write("x", size)))
        (found,) = simulate_step_traffic([StepCall(0, buffers)], 100, HOST_CACHE)
        return [call or Traffic() for call in found]

    assert [call.dram_bytes for call in calls_of(40)] == [0, 0, 0]
    assert all(call.dram_bytes > call.written for call in calls_of(500)[1:])


def test_addresses_link_the_results_of_one_graph_to_the_arguments_of_another() -> None:
    forward = graph((read("w", 500), write("saved", 50)), inputs=("w",), outputs=("saved",))
    backward = graph((read("primal", 50),), inputs=("primal",))
    pair = [StepCall("f", forward, (1,), (2,)), StepCall("b", backward, (2,), ())]
    linked = simulate_step_traffic(pair, CACHE)[1][0]
    assert linked is not None and linked.cache_read > 1
    unlinked = [replace(call, inputs=(), outputs=()) for call in pair]
    assert simulate_step_traffic(unlinked, CACHE)[1][0] == near(dram_read=50)


def test_blocks_that_share_a_graph_have_weights_of_their_own() -> None:
    block = graph((read("w", 60),), inputs=("w",))
    for addresses in ((1, 2, 3), ()):
        step = [StepCall("block", block, addresses[place : place + 1]) for place in range(3)]
        assert simulate_step_traffic(step, CACHE) == ((Traffic(dram_read=60),),) * 3
    shared = [StepCall("block", block, (1,))] * 3
    assert simulate_step_traffic(shared, CACHE) == ((Traffic(cache_read=60),),) * 3


def test_the_memory_within_one_graph_serves_the_next() -> None:
    block = graph((write("t", 60),), (read("t", 60),))
    found = simulate_step_traffic([StepCall("a", block), StepCall("b", block)], CACHE)
    assert sum(one.dram_read for calls in found for one in calls if one) == 0


def test_eager_bytes_between_graphs_evict() -> None:
    block = graph((read("w", 60),), inputs=("w",))
    assert simulate_step_traffic([StepCall(0, block), EagerBytes(10)], CACHE)[0][0] == Traffic(cache_read=60)
    assert simulate_step_traffic([StepCall(0, block), EagerBytes(500)], CACHE)[0][0] == Traffic(dram_read=60)


def test_calls_with_unknown_buffers_have_no_traffic_and_no_share() -> None:
    step = [StepCall("g", ModuleBuffers((None, (read("w", 500),)), ("w",)))] * 2
    traffic = simulate_step_traffic(step, CACHE)
    assert traffic[0][0] is None
    assert compute_dram_shares(step, traffic) == {"g": {1: pytest.approx(1.0)}}


def test_a_kernels_part_is_the_mean_of_its_call_sites_by_time() -> None:
    activities = [one for one in activities_of("mixnet_l_p10/forward") if one.call is not None][:2]
    sites = [one.call.index for one in activities if one.call is not None]
    times = [one.duration_s for one in activities]
    shares = {sites[0]: 1.0, sites[1]: 0.0}
    assert compute_dram_bytes(8.0, activities, shares) == pytest.approx(8 * times[0] / sum(times))
    assert compute_dram_bytes(8.0, activities, {sites[0]: 1.0}) is None
    assert compute_dram_bytes(8.0, activities, {}) is None
    assert compute_dram_bytes(None, activities, shares) is None


def test_a_kernel_touches_of_a_large_buffer_what_inductor_counts() -> None:
    rows = [read("table", 1000), read("places", 8), write("out", 64)]
    assert fit_uses(rows, 136) == (BufferUse("table", 1000, 64, read=64), *rows[1:])
    in_place = [BufferUse("x", 64, 64, read=64, written=64)]
    assert fit_uses(in_place, 64) == tuple(in_place)
    assert fit_uses(rows, None) == tuple(rows)


def recorded(name: str, graph_number: int) -> StepCall:
    source = source_of(name)
    counts = {kernel.name: kernel.moved_bytes for kernel in source.kernels}
    found = read_buffers(text_of(f"{name}.py"), source)
    calls = zip(source.calls, found.calls, strict=True)
    fitted = tuple(fit_uses(uses, counts.get(call.kernel or "")) if uses else None for call, uses in calls)
    return StepCall(graph_number, replace(found, calls=fitted))


def test_a_training_step_of_a_convnet_is_plausible_and_quick() -> None:
    step = [recorded("mixnet_l_p10/forward", 0), recorded("mixnet_l_p10/backward", 1)]
    traffic = [one for calls in simulate_step_traffic(step, 50 << 20) for one in calls if one is not None]
    moved = sum(one.touched_bytes for one in traffic)
    dram = sum(one.dram_bytes for one in traffic)
    # Activations of batch 128 are larger than the cache, yet some consumers follow their producers.
    assert 50e9 < moved < 80e9
    assert 0.7 * moved < dram < 0.95 * moved
    assert all(one.dram_bytes <= one.touched_bytes for one in traffic)
    assert sum(one.dram_read for calls in simulate_step_traffic(step, 1 << 40) for one in calls if one) < 0.05 * moved

    many = step * 18
    touches = sum(len(uses) for call in many for uses in call.buffers.calls if uses)
    assert touches > 100_000
    before = time.process_time()
    simulate_step_traffic(many, 50 << 20)
    assert time.process_time() - before < 2.0  # 0.6 s on a machine with two cores


# The shares of DRAM in the modules of a captured program, and what becomes of them in the record.


NAME = "gpu_kinds/0_forward"
PEAKS = Peaks(
    "a GPU", 1e12, {"float16": 1e14, "float32": 1e13}, cache_bytes=1 << 30, cache_bandwidth=4e12, launch_floor_s=1e-9
)
PLACES = tuple((1000 * number, 8) for number in range(1, 20))
CALL = GraphCallTouches(0, PLACES[:10], PLACES)


class Files(EvidenceFiles):
    """The files of one module without a folder."""

    def text(self, slug: str) -> str:
        return text_of(f"{NAME}.py")


FILES = Files(RunFolder(Path("nowhere")))
MODULE = ModuleEvidence("forward", "forward", "forward.py", measurement=Method("-p"))


@pytest.fixture
def attributed() -> AttributedModule:
    iterations, activities = iterations_of(NAME), activities_of(NAME)
    steady = find_steady_iterations(activities, len(iterations))
    details = Details(threads=3)
    return AttributedModule(MODULE, source_of(NAME), details, {}, trace_of(NAME), iterations, steady, activities)


def observed(*calls: GraphCallTouches) -> Evidence:
    steps = ObservedSteps(7, "cuda", DONE, graphs=(ObservedGraph(""), ObservedGraph("")))
    process = StepEvidence(steps, ("forward", ""), touches=ObservedTouches(calls) if calls else None)
    return Evidence((MODULE,), (process,))


def shares_of(*calls: GraphCallTouches, eager: Mapping[int, EagerOperators] | None = None) -> Mapping[int, float]:
    return compute_shares_in_step(observed(*calls), FILES, PEAKS, eager or {})["forward"]


def kernels_of(attributed: AttributedModule, shares: Mapping[int, float]) -> tuple[Kernel, ...]:
    step = ModuleInStep("forward", 1e-3, dram_shares=shares)
    return describe_module(attributed, ModuleFacts(peaks=PEAKS, step=step)).kernels


def test_the_shares_of_a_program_reach_the_record(attributed: AttributedModule) -> None:
    shares = shares_of(CALL)
    assert shares.keys() == {site.index for site in attributed.source.calls}
    assert 0.1 < fmean(shares.values()) < 0.6, "a cache of 1 GiB holds it in every step; what is written goes on"
    known = [kernel for kernel in kernels_of(attributed, shares) if kernel.work.moved_bytes is not None]
    assert known and all(0 < kernel.dram_bytes <= kernel.work.moved_bytes for kernel in known)  # type: ignore[operator]
    assert all(kernel.dram_bytes is None for kernel in kernels_of(attributed, {}))


def test_a_run_of_an_earlier_format_keeps_its_shares_with_the_details(attributed: AttributedModule) -> None:
    shares = {str(site): share for site, share in shares_of(CALL).items()}
    earlier = replace(attributed, details=replace(attributed.details, dram_shares=shares))
    assert kernels_of(earlier, {}) == kernels_of(attributed, shares_of(CALL))


def test_a_graph_call_between_evicts_the_weights_and_dram_limits_the_kernels(attributed: AttributedModule) -> None:
    other = GraphCallTouches(1, ((1, 1 << 31),), ())  # a graph without a file
    shares = shares_of(CALL, other)
    assert max(shares.values()) > 0.6
    assert "memory" in {kernel.roof.bound for kernel in kernels_of(attributed, shares)}
    assert "memory" not in {kernel.roof.bound for kernel in kernels_of(attributed, {})}


def test_without_an_observed_step_or_a_known_cache_there_are_no_shares() -> None:
    seen = observed(CALL)
    for evidence, peaks in ((observed(), PEAKS), (seen, None), (seen, replace(PEAKS, cache_bytes=None))):
        assert compute_shares_in_step(evidence, FILES, peaks, {}) == {}


def test_eager_bytes_stand_before_the_graph_call_of_their_number() -> None:
    buffers = {"forward": describe_buffers(FILES.text("forward"), source_of(NAME))}
    step = lay_out_step(["forward"], ObservedTouches((CALL, CALL)), buffers, {1: 5, 2: 6})
    assert [getattr(item, "size", "graph") for item in step] == ["graph", 5, "graph", 6]


def test_eager_operators_evict_what_the_graphs_left_in_the_cache() -> None:
    operators = EagerOperators((0,), (EagerOperator(1, 1.0, (1 << 31,)),))
    assert fmean(shares_of(CALL, eager={7: operators}).values()) > 0.6
    for eager in ({8: operators}, {7: replace(operators, graphs=(0, 0))}, {7: replace(operators, graphs=(1,))}):
        assert fmean(shares_of(CALL, eager=eager).values()) < 0.6, "of another process or another order"


def test_a_damaged_file_of_touches_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "7.touches.json").write_text(json.dumps(codec.encode(ObservedTouches((CALL,)))))
    (tmp_path / "8.touches.json").write_text('{"calls": [')
    assert read_touches(tmp_path) == {7: ObservedTouches((CALL,))}
