"""Where the bytes of a step come from: hand-made steps with a cache that holds 100 bytes, and recorded modules."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from h200 import activities_of, source_of, text_of

from inductor_bench.analysis.call_work import fit_uses
from inductor_bench.analysis.kernel_aggregation import compute_dram_bytes
from inductor_bench.analysis.residence import (
    DEVICE_CACHE,
    HOST_CACHE,
    EagerBytes,
    StepCall,
    Traffic,
    compute_dram_shares,
    simulate_step_traffic,
)
from inductor_bench.records.code import BufferUse, ModuleBuffers
from inductor_bench.source.static_calls import read_buffers

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
