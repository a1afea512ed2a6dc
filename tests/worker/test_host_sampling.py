"""The sampler of the host: which moments it looks at, what it sees, and that it leaves nothing behind."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inductor_bench.records.evidence import GENERATED, OWN, PYTHON_LIBRARY, TORCH, HostSamples
from inductor_bench.source.user_program import add_sampled_lines
from inductor_bench.worker.capture import host_sampling
from inductor_bench.worker.capture.host_sampling import (
    CALL,
    MOST_FRAMES,
    MOST_VOID,
    HostSampler,
    HostSampling,
    Instants,
    list_calls,
    list_calls_above,
)
from inductor_bench.worker.capture.step_observer import StepObserver
from inductor_bench.worker.capture.step_recording import Moment
from inductor_bench.worker.stack_tree import BOUNDARY_FUNCTION, CodeOwners, StackSample, StackTree, describe

LIMIT_S = 300.0


@pytest.fixture
def sampler() -> Iterator[HostSampler]:
    made = HostSampler(None)
    yield made
    made.stop()


def run_until_seen(sampler: HostSampler, work: Callable[[], object], count: int = 3) -> StackTree:
    """The stacks of at least so many samples, taken while this thread works."""
    end_s = time.monotonic() + LIMIT_S
    samples = []
    sampler.resume()
    while len(samples) < count and time.monotonic() < end_s:
        work()
        samples += sampler.begin_step(0.01)
    sampler.pause()
    tree = StackTree(sampler.codes, ())
    tree.add(samples)
    return tree


def stacks(tree: StackTree) -> list[list[str]]:
    """The functions of each stack, the outermost first."""
    found = []
    for stack in tree.stacks.values():
        node, names = stack.node, []
        while node >= 0:
            names.append(tree.frames[tree.frame_of[node]].function.rpartition(".")[2])
            node = tree.parents[node]
        found.append(names[::-1])
    return found


@pytest.mark.parametrize(("step_s", "stretch_s"), [(0.0097, 0.003), (0.021, 0.005), (0.0313, 0.02), (0.0012, 0.0004)])
def test_moments_divide_steps_that_repeat_better_than_random_ones(step_s: float, stretch_s: float) -> None:
    instants, now_s, count, inside = Instants(), 1.0, 0, 0
    while now_s < 3.0:
        now_s = instants.after(now_s, step_s)
        count += 1
        inside += 0.3 * step_s <= (now_s - 1.0) % step_s < 0.3 * step_s + stretch_s
    assert inside / count == pytest.approx(stretch_s / step_s, rel=0.03)
    assert count <= 2.0 / instants.period_s + 1


def test_moments_that_were_missed_are_passed_over() -> None:
    instants = Instants()
    first_s = instants.after(1.0, 0.02)
    late_s = instants.after(first_s + 0.5, 0.02)
    spacing_s = instants.spacing_s(0.02)
    assert 0 < late_s - (first_s + 0.5) <= spacing_s
    assert (late_s - first_s) / spacing_s == pytest.approx(round((late_s - first_s) / spacing_s))


def count_to(number: int) -> int:
    return sum(range(number))


def test_functions_and_lines_of_this_thread_are_seen(sampler: HostSampler) -> None:
    tree = run_until_seen(sampler, lambda: [count_to(20_000) for _ in range(50)])
    assert any("count_to" in names for names in stacks(tree))
    frame = next(frame for frame in tree.frames if frame.function == "count_to")
    assert (frame.file, frame.owner) == (__file__, OWN)
    assert frame.line == count_to.__code__.co_firstlineno + 1
    assert any(frame.owner == PYTHON_LIBRARY for frame in tree.frames) or len(tree.frames) > 1


def test_a_deep_recursion_costs_the_outer_frames_only(sampler: HostSampler) -> None:
    def recurse(depth: int) -> int:
        return count_to(200_000) if depth == 0 else recurse(depth - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4000)
    try:
        tree = run_until_seen(sampler, lambda: recurse(2000))
    finally:
        sys.setrecursionlimit(limit)
    deep = [names for names in stacks(tree) if "recurse" in names]
    assert deep and max(map(len, deep)) <= MOST_FRAMES
    # A callback of the garbage collection may stand above them: hypothesis has one.
    assert all({"count_to", "recurse"}.intersection(names[-3:]) for names in deep)


def test_generated_code_has_a_name_and_no_file(sampler: HostSampler) -> None:
    space: dict[str, Callable[[], int]] = {}
    exec(compile("def made():\n    return sum(i for i in range(50_000))\n", "<made here>", "exec"), space)
    tree = run_until_seen(sampler, space["made"])
    frame = next(frame for frame in tree.frames if frame.function == "made")
    assert (frame.file, frame.owner, frame.line) == ("<made here>", GENERATED, 2)


def test_the_work_of_the_observation_is_left_out(sampler: HostSampler) -> None:
    assert hasattr(StepObserver, BOUNDARY_FUNCTION.rpartition(".")[2])
    observer = StepObserver.__new__(StepObserver)
    observer._lock, observer._entered, observer.is_done = threading.RLock(), False, False
    seen: list[int] = []
    sampler.resume()
    end_s = time.monotonic() + LIMIT_S
    while len(seen) < 3 and time.monotonic() < end_s:
        observer._guarded(count_to, 200_000)
        samples = sampler.begin_step(0.01)
        seen += [1 for sample in samples if count_to.__code__ in map(sampler.codes.get, sample.stack[::2])]
        tree = StackTree(sampler.codes, ())
        tree.add(samples)
        assert not any(frame.function == "count_to" for frame in map(tree.frames.__getitem__, tree.frame_of))
    sampler.pause()
    assert len(seen) >= 3


def test_the_frames_of_the_observation_between_those_of_the_program_are_left_out() -> None:
    codes = {id(one.__code__): one.__code__ for one in (count_to, StackTree.add, run_until_seen)}
    inner, own, outer = codes
    tree = StackTree(codes, ())
    tree.add([StackSample(0.01, True, False, (inner, 2, own, 2, outer, 2))])
    tree.add([StackSample(0.01, True, False, (own, 2, outer, 2))])
    assert stacks(tree) == [["run_until_seen", "count_to"]]


def test_a_garbage_collection_is_measured_with_the_stack_that_began_it(sampler: HostSampler) -> None:
    kept = [[] for _ in range(200_000)]
    tree = run_until_seen(sampler, gc.collect)
    collections = [stack for stack in tree.stacks.values() if stack.is_collection]
    assert collections and sampler.collected_s > 0 and len(kept) == 200_000
    assert sum(one.waiting_s for one in collections) == pytest.approx(sampler.collected_s)


def test_collections_of_young_objects_ask_the_device_nothing() -> None:
    asked: list[int] = []
    sampler = HostSampler(lambda: bool(asked.append(threading.get_ident())))
    sampler.resume()
    for _ in range(100):
        gc.collect(0)
        gc.collect(1)
    sampler.pause()
    sampler.stop()
    assert threading.get_ident() not in asked and sampler.collected_s == 0


def test_nothing_is_left_behind() -> None:
    before = (list(gc.callbacks), sys.getswitchinterval(), threading.active_count())
    sampler = HostSampler(None)
    run_until_seen(sampler, lambda: count_to(10_000))
    sampler.stop()
    assert (list(gc.callbacks), sys.getswitchinterval(), threading.active_count()) == before


def test_nothing_is_sampled_between_the_blocks(sampler: HostSampler) -> None:
    run_until_seen(sampler, lambda: count_to(10_000))
    sampler.begin_step(0.01)
    for _ in range(50):
        count_to(100_000)
    assert sampler.begin_step(0.01) == [] and gc.callbacks.count(sampler._on_collection) == 0


def test_a_forked_child_has_the_usual_interval_and_no_callback(sampler: HostSampler) -> None:
    before = sys.getswitchinterval(), list(gc.callbacks)
    sampler.resume()
    child = os.fork()
    if child == 0:
        sampler.forget()
        os._exit(0 if (sys.getswitchinterval(), gc.callbacks) == before else 1)
    _, status = os.waitpid(child, 0)
    sampler.pause()
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_device_is_asked_no_more_once_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[Callable[[], None]] = []

    def before_captures(note: Callable[[], None]) -> Callable[[], None]:
        begins.append(note)
        return begins.clear

    monkeypatch.setattr(host_sampling, "call_before_captures", before_captures)
    told: list[str] = []
    asked = itertools.count()
    sampler = HostSampler(lambda: next(asked) >= 0, lambda: told.append("capture"))
    run_until_seen(sampler, lambda: count_to(10_000))
    begins[0]()
    after = next(asked)
    run_until_seen(sampler, lambda: count_to(10_000))
    sampler.stop()
    assert next(asked) == after + 1 and told == ["capture"] and begins == []


class Clock:
    """Boundaries of steps on a CPU that take ``step_s`` each."""

    is_noisy = False

    def __init__(self, step_s: float) -> None:
        self.step_s, self.number = step_s, 0

    def moment(self) -> Moment:
        self.number += 1
        now_s = self.number * self.step_s
        return Moment(self.number, now_s, now_s)


def sample(step_s: float, steps: int, unusual: int = 0, void: bool = False) -> tuple[HostSamples | None, int]:
    """What is sampled of so many steps, and the number of steps after which it was enough."""
    clock = Clock(step_s)
    sampling = HostSampling(clock.moment(), "cpu", step_s, clock)
    needed = 0
    for needed in range(1, steps + 1):
        moment = clock.moment()
        moment.is_disturbed = void
        if sampling.cross(moment, is_usual=not void and needed != unusual):
            break
    return sampling.end(()), needed


def test_blocks_with_the_sampler_lie_between_blocks_without_it() -> None:
    found, needed = sample(1 / 64, 1000)
    assert found is not None and 320 <= needed <= 320 + 23
    assert len(found.blocks) % 2 == 1 and len(found.blocks) >= 7
    assert {len(block) for block in found.blocks[1::2]} == {16} and {len(block) for block in found.blocks[::2]} == {7}
    assert (found.steps, found.steps_s) == (16 * (len(found.blocks) // 2), found.steps / 64)


def test_long_steps_are_sampled_one_by_one_and_not_for_long() -> None:
    found, needed = sample(0.8, 1000)
    assert found is not None and {len(block) for block in found.blocks} == {1} and needed == 7
    found, needed = sample(6.0, 1000)
    assert found is not None and (found.steps, needed) == (1, 3)


def test_a_step_that_did_something_else_is_left_out() -> None:
    found, _ = sample(1 / 64, 1000, unusual=15)
    assert found is not None and [len(block) for block in found.blocks[:4]] == [7, 15, 7, 16]


def test_a_program_that_ends_keeps_the_steps_that_it_had() -> None:
    found, needed = sample(1 / 64, 17)
    assert found is not None and (found.steps, needed) == (10, 17)
    assert sample(1 / 64, 5)[0] is None


def test_a_program_that_goes_on_to_compile_is_not_sampled() -> None:
    assert sample(0.01, 1000, void=True) == (None, MOST_VOID + 1)


def test_an_error_of_the_sampling_costs_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> None:
        raise RuntimeError("no stream")

    monkeypatch.setattr(host_sampling, "_query_of", fail)
    clock = Clock(0.01)
    sampling = HostSampling(clock.moment(), "cuda", 0.01, clock)
    assert sampling.cross(clock.moment(), is_usual=True) and sampling.end(()) is None
    assert sampling.problem == "RuntimeError: no stream"


def test_waiting_in_a_with_statement_enters_its_lock(sampler: HostSampler) -> None:
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        while not held.is_set():
            with lock:
                time.sleep(0.02)

    def write() -> None:
        with lock:
            pass

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        tree = run_until_seen(sampler, write)
    finally:
        held.set()
        holding.join()
    samples = HostSamples(tuple(tree.frames), (), (), (), 0, 1.0, (), sees_device=False)
    frames = add_sampled_lines(samples, {}).frames  # each Python gives the instruction another place
    waiting = [frame for frame in frames if frame.line == write.__code__.co_firstlineno + 1]
    assert any(frame.is_call and frame.called == "lock.__enter__" for frame in waiting)


def test_a_frame_says_whether_its_instruction_calls_something() -> None:
    def calling() -> None:
        time.sleep(0.0)

    owners, code = CodeOwners([__file__]), calling.__code__
    frames = [describe(code, place, owners) for place in range(0, len(code.co_code), 2)]
    assert {frame.owner for frame in frames} == {GENERATED}, "the path of a compiled module"
    called = [frame for frame in frames if frame.is_call]
    assert called and called[0].line == code.co_firstlineno + 1
    if sys.version_info >= (3, 11):
        text = Path(__file__).read_bytes().splitlines()[called[0].line - 1]
        assert text[called[0].span[2] : called[0].span[3]] == b"time.sleep(0.0)"
    assert CodeOwners(()).owner(host_sampling.__file__) == TORCH
    assert CodeOwners(()).owner(threading.__file__) == PYTHON_LIBRARY
    assert CodeOwners(()).owner("/no/such/file.py") == GENERATED


def test_a_stack_is_read_at_once_and_that_of_a_thread_that_has_ended_is_empty() -> None:
    """Between two lines of Python the thread would run on: its frames would be gone, or others."""
    held, innermost = threading.Event(), MOST_FRAMES + 10

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        held.wait()

    thread = threading.Thread(target=descend, args=(innermost,))
    thread.start()
    try:
        while not (stack := list_calls(thread.ident or 0)) or stack[0][0].co_name != "wait":
            time.sleep(0.001)
        assert len(stack) == MOST_FRAMES and {code.co_name for code, _ in stack[2:]} == {"descend"}
    finally:
        held.set()
        thread.join()
    assert list_calls(thread.ident or 0) == []
    names = [code.co_name for code, _ in list_calls_above(iter((sys._getframe(),)))]
    assert names[0] == "test_a_stack_is_read_at_once_and_that_of_a_thread_that_has_ended_is_empty" and len(names) > 5


@pytest.mark.parametrize("is_on", [True, False])
def test_no_garbage_is_collected_while_a_stack_is_read(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection runs lines of Python, between which the thread would run on (Python 3.11)."""
    seen: list[bool] = []

    def getting(frame: object) -> tuple[object, int]:
        seen.append(gc.isenabled())
        return CALL(frame)

    monkeypatch.setattr(host_sampling, "COLLECTS_WITHIN", True)
    monkeypatch.setattr(host_sampling, "CALL", getting)
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        assert len(list_calls(threading.get_ident())) > 5
        assert set(seen) == {False} and gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
