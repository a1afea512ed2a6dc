"""Runs, checks and times one library operator with recorded arguments, and counts its work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch

from .common import (
    COARSE_TOLERANCE,
    NOT_RECORDED,
    TOLERANCES,
    Arguments,
    Draw,
    build_arguments,
    count_differing,
    draw_normal,
    fingerprint,
    mutated_storages,
    profile_call,
    read_options,
    restore,
    same,
    show_check,
    show_result,
    snapshot,
    tensors_in,
    touched_bytes,
    with_zeros,
    written_tensors,
)

OFF_ON = (False, True)
SWITCHES: dict[str, tuple[str, str, str, tuple[Any, Any]]] = {
    "matmul_tf32": ("cuda", "cuda.matmul", "allow_tf32", OFF_ON),
    "cudnn_tf32": ("cuda", "cudnn", "allow_tf32", OFF_ON),
    "cudnn_benchmark": ("cuda", "cudnn", "benchmark", OFF_ON),
    "cudnn_deterministic": ("cuda", "cudnn", "deterministic", OFF_ON),
    "mkldnn_bf16": ("cpu", "mkldnn.matmul", "fp32_precision", ("none", "bf16")),
}
"""The switches that decide which library kernels run, by their recorded names: the type of the device on which they
decide, their path in ``torch.backends``, and their values if they are off and on."""

EXACTLY = {"matmul_tf32": False, "cudnn_tf32": False, "cudnn_benchmark": False, "mkldnn_bf16": False}
"""The switches of the call with which other calls are compared."""


@contextlib.contextmanager
def switched(wanted: Mapping[str, bool]) -> Iterator[None]:
    """Has some of the ``SWITCHES`` as ``wanted`` meanwhile."""
    before = []
    try:
        for name, value in wanted.items():
            _, place, switch, values = SWITCHES[name]
            backend = attrgetter(place)(torch.backends)
            now = getattr(backend, switch)
            if now != values[value]:
                before.append((backend, switch, now))
                setattr(backend, switch, values[value])
        yield
    finally:
        for backend, switch, value in before:
            setattr(backend, switch, value)


GPU_TOLERANCES = {"float32": 5e-3, "float16": 2e-2}
"""Tolerances by element type for library calls, which may multiply in TF32 and sum in 16 bits."""

Measure = Callable[[dict[str, Any], Arguments, Callable[[Arguments], Callable[[], Any]]], dict[str, Any]]
GATHERS = ("aten.embedding.", "aten.index_select.", "aten.gather.")
"""Operators that read as much of their first argument, a table, as they return."""

UNSUPPORTED = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError)
"""What operators raise for an element type that they do not have."""


class CallRefusedError(RuntimeError):
    """This machine or this torch cannot make the call; the message is one line."""


class Operator:
    """An operator and its recorded arguments.

    Args:
        recorded: the file's ``RECORDED``. ``device_type`` is ``cpu`` or ``cuda``, ``threads`` the number of CPU
            threads of the capture. Those of the ``SWITCHES`` that are there are as the program had them: with
            ``cudnn_benchmark`` cuDNN searches for the fastest algorithm.
        folder: where files of recorded values lie.
    """

    def __init__(self, recorded: dict[str, Any], folder: str = ".") -> None:
        self.recorded = recorded
        self.launch: dict[str, Any] = recorded["launch"]
        self.folder = folder
        self.device: str = recorded["device_type"]
        self._results: dict[int, tuple[Arguments, Any]] = {}

    def find(self) -> Any:
        """The overload that was called. Raises: RefusedError."""
        name = self.launch["operator"]
        namespace, packet, overload = name.split(".", 2)
        found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if found is None:
            raise CallRefusedError(f"this build of torch has no operator {name}")
        return found

    def make_arguments(self, seed: int = 0, draw: Draw = draw_normal) -> Arguments:
        """Raises: RefusedError: there is no such device. ValueError: an argument cannot be made again."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise CallRefusedError("the operator ran on a GPU, and this torch finds none")
        return build_arguments(self.launch, self.device, seed, self.folder, draw)

    def call(self, arguments: Arguments) -> Any:
        """Calls the operator once and keeps the result for :meth:`outputs`."""
        result = self.bind(arguments)()
        self._results = {id(arguments): (arguments, result)}
        return result

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        """The call with these arguments and nothing else to do, for timing."""
        overload, args, keywords, switches = self.find(), arguments.args, arguments.keywords, self.switches()
        threads = self.recorded.get("threads")
        if self.device == "cpu" and threads and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

        def run() -> Any:
            with torch.no_grad(), switched(switches):
                return overload(*args, **keywords)

        return run

    def switches(self) -> dict[str, bool]:
        """What is known of the program's ``SWITCHES`` that decide on its device."""
        mine = [name for name, (device, *_) in SWITCHES.items() if device == self.device]
        return {name: self.recorded[name] for name in mine if self.recorded.get(name) is not None}

    def tolerances(self) -> dict[str, float]:
        """The relative differences that rounding explains, by element type."""
        if self.device != "cpu":
            return TOLERANCES | GPU_TOLERANCES
        in_bfloat16 = self.switches().get("mkldnn_bf16", False)
        return TOLERANCES | ({"float32": TOLERANCES["bfloat16"]} if in_bfloat16 else {})

    def is_convolution(self) -> bool:
        return "conv" in self.launch["operator"]

    def is_searched(self) -> bool:
        """Whether cuDNN times its algorithms when it first sees such arguments, and keeps to the fastest."""
        return self.is_convolution() and self.switches().get("cudnn_benchmark", False)

    def measure_with_zeros(self, measure: Measure) -> dict[str, Any] | None:
        """The times with zeros for all indices, ``{cold, warm}``; ``None`` if it has none or takes no zeros."""
        launch = with_zeros(self.launch)
        if launch is None:
            return None
        try:
            timing = measure(launch, build_arguments(launch, self.device, folder=self.folder), self.bind)
        except UNSUPPORTED:
            return None
        return {state: timing[state] for state in ("cold", "warm")}

    def outputs(self, arguments: Arguments) -> list[torch.Tensor]:
        """What the last :meth:`call` wrote and returned, if it was made with these arguments."""
        _, result = self._results.get(id(arguments), (None, None))
        return written_tensors(self.launch, arguments, result)

    def compared(self, arguments: Arguments) -> list[torch.Tensor]:
        """The :meth:`outputs` that are compared: not the state of the generator that an attention without dropout
        returns, which is left as it was allocated."""
        every = self.outputs(arguments)
        return [tensor for tensor in every if tensor.is_floating_point()] if self._is_attention() else every

    def reference(self) -> dict[str, Any] | None:
        """The recorded fingerprint of what is compared."""
        recorded: dict[str, Any] | None = self.recorded.get("reference")
        if recorded is None or not self._is_attention():
            return recorded
        return {**recorded, "tensors": [facts for facts in recorded["tensors"] if "mean" in facts]}

    def _is_attention(self) -> bool:
        return "attention" in self.launch["operator"]

    def is_random(self) -> bool:
        """Whether its results are drawn, so that only their shapes can be compared."""
        overload = self.find()
        packet = overload._overloadpacket
        every = [overload, *(getattr(packet, name) for name in packet.overloads())]
        if not any(torch.Tag.nondeterministic_seeded in each.tags for each in every):
            return False
        schema = {item.name: (index, item) for index, item in enumerate(overload._schema.arguments)}
        if "dropout_p" not in schema:
            return True
        index, item = schema["dropout_p"]
        values = self.launch["arguments"]
        recorded = values[index] if index < len(values) else (self.launch.get("keywords") or {}).get("dropout_p")
        if recorded is None:
            return bool(item.default_value)
        return bool(recorded.get("number") or recorded.get("integer"))


def check_operator(operator: Operator, seed: int) -> tuple[bool | None, str]:
    """Compares a call with the same call in float64 (or float32), else with the recorded reference; says how."""
    arguments = operator.make_arguments(seed)
    saved = snapshot(arguments, mutated_storages(operator.launch))
    operator.call(arguments)
    ours = operator.compared(arguments)
    found = fingerprint(ours)
    reference = operator.reference() if seed == 0 else None
    if operator.is_random():
        return _check_shapes(found, reference)
    precise = _run_precisely(operator, seed)
    if precise is None:
        if reference is None:
            restore(arguments, saved)
            operator.call(arguments)
            agrees, why = same(fingerprint(operator.compared(arguments)), found)
            return (None, f"{NOT_RECORDED}; a second run agrees") if agrees else (False, f"a second run differs: {why}")
        return same(found, reference)
    theirs, dtype = precise
    why = _compare(ours, theirs, operator.tolerances())
    if why == "" or (why == "integers" and reference is not None and same(found, reference)[0]):
        count = len({id(tensor) for tensor in ours})
        return True, f"{count} output{'s' if count != 1 else ''} agree with the same call in {dtype}"
    if why == "integers":
        return False, f"whole numbers differ from the same call in {dtype}"
    return False, f"{why} than the same call in {dtype}"


def _check_shapes(found: dict[str, Any], reference: dict[str, Any] | None) -> tuple[bool, str]:
    layouts = [
        None if facts is None else [(tensor["shape"], tensor["dtype"]) for tensor in facts["tensors"]]
        for facts in (found, reference)
    ]
    if layouts[1] is not None and layouts[0] != layouts[1]:
        return False, f"shapes and types {layouts[0]}, the reference has {layouts[1]}"
    return True, "random: only shapes and types are compared"


def _run_precisely(operator: Operator, seed: int) -> tuple[list[torch.Tensor], str] | None:
    """The outputs of the same call on arguments of more bits, or ``None`` if there can be no such call."""
    original = operator.make_arguments(seed)
    if "cudnn" in operator.launch["operator"]:
        return None  # it takes 16-bit numbers only, and does not refuse others
    floats = [item for item in tensors_in([original.args, original.keywords]) if item.is_floating_point()]
    if not floats or all(item.element_size() == 8 for item in floats):
        return None
    exact = Operator({**operator.recorded, **EXACTLY}, operator.folder)
    for wide in (torch.float64, torch.float32):
        if wide == torch.float32 and any(item.element_size() >= 4 for item in floats):
            continue
        widened = Arguments(widen(original.args, wide), widen(original.keywords, wide), [])
        try:
            exact.call(widened)
            return exact.compared(widened), str(wide).removeprefix("torch.")
        except UNSUPPORTED:
            continue
    return None


def widen(value: Any, wide: torch.dtype) -> Any:
    """Floating tensors and element types in nested arguments, in ``wide``. What was one tensor is still one."""
    seen: dict[int, Any] = {}

    def convert(item: Any) -> Any:
        if isinstance(item, list):
            return [convert(each) for each in item]
        if isinstance(item, dict):
            return {name: convert(each) for name, each in item.items()}
        if isinstance(item, torch.dtype):
            return wide if item.is_floating_point else item
        if not isinstance(item, torch.Tensor):
            return item
        if id(item) not in seen:
            seen[id(item)] = item.to(wide) if item.is_floating_point() else item.clone()
        return seen[id(item)]

    return convert(value)


def _compare(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], limits: Mapping[str, float]) -> str:
    """Empty if all agree; ``integers`` if only whole numbers differ (the order of equals is not specified)."""
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return "other shapes"
    verdict = ""
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if not one.is_floating_point() and not one.is_complex():
            verdict = verdict if torch.equal(one, other) else "integers"
            continue
        limit = limits.get(str(one.dtype).removeprefix("torch."), COARSE_TOLERANCE)
        count = count_differing(one.to(other.dtype), other, limit)
        if count:
            return f"output {index}: {count} of {one.numel()} elements are other"
    return verdict


def count_flops(operator: Operator, arguments: Arguments) -> int | None:
    """Floating-point operations of one call: as recorded, or by torch's counter if it knows the operator."""
    if operator.recorded.get("flops"):
        return int(operator.recorded["flops"])
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        operator.call(arguments)
    return int(counter.get_total_flops()) or None


def count_bytes(operator: Operator, arguments: Arguments) -> int:
    """The bytes of all inputs and outputs, each counted once. Call it after the operator was called.

    Of a table that rows are gathered from, these rows.
    """
    _, result = operator._results.get(id(arguments), (None, None))
    known = {storage.untyped_storage().data_ptr() for storage in arguments.storages}
    fresh = [item for item in tensors_in(result) if item.untyped_storage().data_ptr() not in known]
    moved = touched_bytes(operator.launch) + sum(item.numel() * item.element_size() for item in fresh)
    if operator.launch["operator"].startswith(GATHERS):
        table = touched_bytes({**operator.launch, "arguments": operator.launch["arguments"][:1], "keywords": {}})
        moved -= max(table - sum(item.numel() * item.element_size() for item in tensors_in(result)), 0)
    return moved


def profile_operator(operator: Operator, seed: int) -> None:
    """Makes one call for a profiler, after one for which libraries choose what they run."""
    operator.bind(operator.make_arguments(seed))()
    profile_call(operator.bind(operator.make_arguments(seed)))


def run_operator(operator: Operator, measure: Measure, description: str, argv: list[str] | None = None) -> int:
    """The command line of an operator's file; returns the exit status."""
    on_gpu = operator.device == "cuda"
    options = read_options(description.replace("%", "%%"), argv, on_gpu=on_gpu)
    name = operator.recorded["name"]
    try:
        if on_gpu and options.profile:
            profile_operator(operator, options.seed)
            return 0
        if options.check and not options.json:
            return show_check(name, *check_operator(operator, options.seed))
        passed, why = check_operator(operator, options.seed) if options.check else (None, "")
        arguments = operator.make_arguments(options.seed)
        flops = count_flops(operator, arguments)
        moved = count_bytes(operator, arguments)
        arguments = operator.make_arguments(options.seed)
        timing = measure(operator.launch, arguments, operator.bind)
        timing["with_zeros"] = operator.measure_with_zeros(measure)
    except (CallRefusedError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    device = torch.cuda.get_device_name() if operator.device == "cuda" else "cpu"
    facts = {"name": name, "kernel_id": operator.recorded.get("kernel_id"), "device": device}
    work = {"moved_bytes": moved, "flops": flops, "check": passed, "check_message": why}
    show_result({**facts, **timing, **work}, options.json)
    return int(options.check and not passed)
