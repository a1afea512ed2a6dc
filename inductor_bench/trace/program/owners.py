"""Says for each device event of a program who launched it: a compiled graph, an operator, an optimizer or a copy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...records.program import COLLECTIVE, COPY, EAGER, GRAPH, GRAPH_INPUTS, OPTIMIZER
from ...records.traced.program import GraphCall, ProgramTrace, Range
from ...records.traced.trace import DeviceEvent, HostOp
from ..hierarchy import is_compiled_kernel, is_operator
from .lookup import RangesByThread

NODE = "autograd::engine::evaluate_function: "
"""The name of a node of the backward, before the name of its function."""

OWN_CUDA_GRAPH = "replay of a CUDA graph"
"""The label of a CUDA graph that the program itself recorded and replays outside of compiled graphs."""

_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#(.+)\.\w+")
_NCCL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_?(?:Generic_)?([A-Za-z]+)")
_DIRECTIONS = (("HtoD", "host to device"), ("DtoH", "device to host"), ("DtoD", "device to device"))
_COPIES = re.compile(r"aten::(_foreach_)?copy_")
_REPLAY = re.compile(r"GraphLaunch")


class Owner(NamedTuple):
    """Who launched a device event; the fields are those of ``Work``. ``launch`` is the index of the host's call."""

    kind: str
    label: str
    call: int = -1
    replayed: bool = False
    op: int = -1
    launch: int = -1


class Owners:
    """The owners of a program's device events, and the outermost eager operators."""

    def __init__(self, program: ProgramTrace, calls: Sequence[GraphCall]) -> None:
        self._program = program
        self._calls = calls
        self.in_call, self.tops = _units(program, calls)
        ops = program.trace.host_ops
        self._threads = {op.thread for op in ops}
        self._by_call = RangesByThread((call.thread, call.start_s, call.end_s, at) for at, call in enumerate(calls))
        self._by_top = RangesByThread(
            (ops[top].thread, ops[top].start_s, ops[top].start_s + ops[top].duration_s, top)
            for top in dict.fromkeys(top for top in self.tops if top >= 0)
        )
        self.optimizers = [
            (found.group(1), one) for one in program.annotations if (found := _OPTIMIZER.fullmatch(one.name))
        ]
        self._by_optimizer = RangesByThread(
            (one.thread, one.start_s, one.end_s, at) for at, (_, one) in enumerate(self.optimizers)
        )

    @property
    def eager_tops(self) -> list[int]:
        """``tops`` without the operators in graph calls."""
        return [top if call < 0 else -1 for top, call in zip(self.tops, self.in_call, strict=True)]

    def optimizer_at(self, thread: str, moment: float) -> str:
        """The optimizer whose step runs on a thread at a moment; empty for none."""
        place = self._by_optimizer.find(thread, moment)
        return self.optimizers[place][0] if place >= 0 else ""

    def all(self) -> list[Owner]:
        """The owner of each device event."""
        launches = _launches(self._program)
        owners = [
            self._owner(event, launches.get(event.correlation, -1)) for event in self._program.trace.device_events
        ]
        replaying = {owner.call for owner in owners if owner.replayed}
        return [self._or_input(owner) if owner.call in replaying else owner for owner in owners]

    def _or_input(self, owner: Owner) -> Owner:
        """The copy of a CUDA graph's inputs, if it is one."""
        if owner.kind != GRAPH or owner.replayed or owner.op < 0:
            return owner
        if not _COPIES.fullmatch(self._program.trace.host_ops[owner.op].name):
            return owner
        return Owner(COPY, GRAPH_INPUTS, owner.call, False, owner.op, owner.launch)

    def _owner(self, event: DeviceEvent, launch: int) -> Owner:
        ops = self._program.trace.host_ops
        by = self._program.runtime[launch] if launch >= 0 else None
        top = self.tops[event.host_op] if event.host_op >= 0 else -1
        call = self.in_call[event.host_op] if event.host_op >= 0 else -1
        if by is not None and call < 0:
            known = by.thread in self._threads
            call = self._by_call.find(by.thread, by.start_s) if known else self._by_call.find_on_any(by.start_s)
        if by is not None and top < 0:
            top = self._by_top.find(by.thread, by.start_s)
        replayed = by is not None and _REPLAY.search(by.name) is not None
        collective = _NCCL.match(event.name)
        if collective:
            return Owner(COLLECTIVE, collective.group(1), call, replayed, top, launch)
        if call >= 0:
            return Owner(GRAPH, "", call, replayed, top, launch)
        if event.kind == "memcpy":
            label = next((words for short, words in _DIRECTIONS if short in event.name), event.name)
            return Owner(COPY, label, -1, replayed, top, launch)
        optimizer = self._optimizer(by, top)
        if optimizer:
            return Owner(OPTIMIZER, optimizer, -1, replayed, top, launch)
        label = unit_name(ops[top].name) if top >= 0 else OWN_CUDA_GRAPH if replayed else event.name
        return Owner(EAGER, label, -1, replayed, top, launch)

    def _optimizer(self, by: Range | None, top: int) -> str:
        if by is not None:
            return self.optimizer_at(by.thread, by.start_s)
        op = self._program.trace.host_ops[top] if top >= 0 else None
        return self.optimizer_at(op.thread, op.start_s) if op else ""


def unit_name(name: str) -> str:
    """The name of an outermost operator; of a node of the backward its function's."""
    return name.removeprefix(NODE).rpartition("::")[2] if name.startswith(NODE) else name


def _units(program: ProgramTrace, calls: Sequence[GraphCall]) -> tuple[list[int], list[int]]:
    """For each host operator the graph call around it, and the outermost operator around it.

    The outermost operator lies in the graph call where there is one, and never encloses one. Both are -1 where there
    is none.
    """
    ops = program.trace.host_ops
    call_of = {call.op: number for number, call in enumerate(calls)}
    holding: set[int] = set()
    for call in calls:
        above = call.op
        while above >= 0 and above not in holding:
            holding.add(above)
            above = ops[above].parent
    in_call: list[int] = []
    tops: list[int] = []
    for index, op in enumerate(ops):
        inside = call_of.get(index, in_call[op.parent] if op.parent >= 0 else -1)
        above = tops[op.parent] if op.parent >= 0 else -1
        if above < 0 and index not in holding and _is_unit(op):
            above = index
        in_call.append(inside)
        tops.append(above)
    return in_call, tops


def _is_unit(op: HostOp) -> bool:
    """Whether an operation is an operator, a kernel or a node of the backward, and not a mere range around them."""
    return is_operator(op.name) or op.name.startswith(NODE) or is_compiled_kernel(op)


def _launches(program: ProgramTrace) -> dict[int, int]:
    """The index of the host's call by correlation; of a runtime call and the driver call within it, the runtime's."""
    wanted = {event.correlation for event in program.trace.device_events}
    wanted.discard(-1)
    found: dict[int, int] = {}
    for index, call in enumerate(program.runtime):
        if call.correlation in wanted:
            found.setdefault(call.correlation, index)
    return found
