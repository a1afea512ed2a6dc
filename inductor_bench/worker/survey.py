"""Surveys the machine and library calls: the environment, the FLOPs and bytes of operators, and the device's peaks."""

from __future__ import annotations

import ast
import contextlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import torch

from ..devices.protocol import CPU
from ..messages.job_requests import MachineFacts, SurveyMachine
from ..records.run import Environment, Peaks
from ..records.traced import OperatorCall, OperatorCost
from ..store.caches import load_peaks, make_peaks_key, save_peaks
from .device import machine
from .device.cpu_runtime import compare_with_bfloat16
from .device.gpu_watch import measure_cpu_peaks_undisturbed, measure_gpu_peaks_unshared
from .device.runtime import SharedDevice
from .device.runtimes import describe_environment, open_device
from .fast_start import Phases
from .upstream.inductor import count_vector_lanes

# Rebuilds the arguments of a recorded operator call as fake tensors, and finds the called overload.
#
# It allocates no device memory. The profiler records tensors as sizes, strides and a C++ element type, and numbers and
# lists of numbers as text; it does not record strings and lists of optional tensors.


_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "c10::Float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "c10::Float8_e5m2": torch.float8_e5m2,
    "c10::Float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "c10::Float8_e8m0fnu": torch.float8_e8m0fnu,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
    "signed char": torch.int8,
    "short": torch.int16,
    "short int": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "long int": torch.int64,
    "long long": torch.int64,
    "unsigned short": torch.uint16,
    "unsigned int": torch.uint32,
    "unsigned long": torch.uint64,
    "short unsigned int": torch.uint16,
    "long unsigned int": torch.uint64,
}
"""Element types by the C++ names that the profiler records; the names of integers differ by compiler."""

_SCALAR_KINDS = ("int", "float", "bool", "number", "Scalar", "SymInt", "complex")


class UnboundCallError(Exception):
    """The arguments of a recorded call cannot be rebuilt; the message gives the reason."""


@dataclass(frozen=True)
class FakeCall:
    """An overload and its arguments; tensors are fake."""

    overload: Any  # the overload of torch
    arguments: dict[str, Any]  # by name, in the schema's order
    written: frozenset[str]  # the names of the arguments that the operator writes
    output_only: frozenset[str]  # the names of written arguments that the operator does not read

    def run(self) -> Any:
        """Runs the overload under the fake mode that was active when the arguments were made."""
        keyword_only = {item.name for item in self.overload._schema.arguments if item.kwarg_only}
        positional = [value for name, value in self.arguments.items() if name not in keyword_only]
        keywords = {name: value for name, value in self.arguments.items() if name in keyword_only}
        return self.overload(*positional, **keywords)

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """The tensors of each argument that has any, by the argument's name."""
        found = {}
        for name, value in self.arguments.items():
            items = value if isinstance(value, list) else [value]
            kept = [item for item in items if isinstance(item, torch.Tensor)]
            if kept:
                found[name] = kept
        return found


def bind_call(call: OperatorCall, device: str) -> FakeCall:
    """Rebuilds a call, under a fake tensor mode.

    Args:
        call: the recorded call.
        device: the device type of the fake tensors; the machine may lack it.

    Raises:
        UnboundCallError: this build of torch has no such operator, or none of its overloads fits.
    """
    types = call.arguments.types
    overloads = _list_overloads(call.name)
    # ATen passes undefined tensors even if a schema does not allow None; their recorded type is empty.
    fitting = [overload for undefined in (False, True) for overload in overloads if _fits(overload, types, undefined)]
    if not fitting:
        raise UnboundCallError(f"no overload of {call.name} takes what was recorded ({', '.join(types)})")
    wanted = fitting[0]._schema.arguments
    arguments = {
        item.name: _make_value(item, call, index, device) if index < len(types) else item.default_value
        for index, item in enumerate(wanted)
    }
    written = frozenset(item.name for item in wanted if item.alias_info and item.alias_info.is_write)
    output_only = frozenset(item.name for item in wanted if item.name in written and item.kwarg_only)
    return FakeCall(fitting[0], arguments, written, output_only)


def _list_overloads(name: str) -> list[Any]:
    """The overloads of an operator by its dispatcher name, sorted by their number of arguments."""
    namespace, _, rest = name.partition("::")
    base, _, wanted = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None) if rest.isidentifier() or wanted else None
    if packet is None:
        raise UnboundCallError(f"this build of torch has no operator {name}")
    overloads = [getattr(packet, each) for each in packet.overloads() if not wanted or each == wanted]
    return sorted(overloads, key=lambda overload: len(overload._schema.arguments))


def _fits(overload: Any, types: Sequence[str], undefined: bool) -> bool:
    wanted = overload._schema.arguments
    if len(types) > len(wanted) or not all(item.has_default_value() for item in wanted[len(types) :]):
        return False
    return all(_accepts(str(item.type), kind, undefined) for item, kind in zip(wanted, types, strict=False))


def _accepts(wanted: str, recorded: str, undefined: bool) -> bool:
    """Whether an argument of the schema type ``wanted`` may have the recorded type ``recorded``."""
    optional = wanted.startswith("Optional[")
    inner = wanted.removeprefix("Optional[")[:-1] if optional else wanted
    if inner == "List[Optional[Tensor]]":
        return False
    if inner.startswith("List[Tensor"):
        return recorded == "TensorList"
    if inner == "Tensor":
        return recorded in _DTYPES or ((optional or undefined) and recorded == "")
    if recorded in _DTYPES:
        return False
    if inner.startswith("List["):
        return recorded in ("ScalarList", "Scalar") or (recorded == "" and (optional or "Optional" in inner))
    if inner in _SCALAR_KINDS:
        return recorded == "Scalar" or (recorded == "" and optional)
    return recorded in ("", "Scalar")


def _make_value(item: Any, call: OperatorCall, index: int, device: str) -> Any:
    recorded = call.arguments
    kind, dims, strides = recorded.types[index], recorded.dims[index], recorded.strides[index]
    if kind in _DTYPES:
        return make_tensor(dims, strides, _DTYPES[kind], device)
    if kind == "TensorList":
        dtype = _list_dtype(recorded.types)
        return [make_tensor(*pair, dtype, device) for pair in zip(dims, strides, strict=True)]
    text = recorded.concrete[index] if index < len(recorded.concrete) else ""
    if text == "":
        return _find_unrecorded(item)
    return _number(text)


def make_tensor(dims: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor with these sizes and strides. An opaque layout (oneDNN's) has no recorded strides."""
    if len(strides) != len(dims):
        return torch.empty(tuple(dims), dtype=dtype, device=device)
    return torch.empty_strided(tuple(dims), tuple(strides), dtype=dtype, device=device)


def _list_dtype(types: Sequence[str]) -> torch.dtype:
    """Returns the element type of a tensor list.

    It is not recorded, but taken from the call's other tensors if these agree.
    """
    found = {_DTYPES[kind] for kind in types if kind in _DTYPES}
    if len(found) != 1:
        raise UnboundCallError("the profiler does not record the element type of a list of tensors")
    return found.pop()


def _find_unrecorded(item: Any) -> Any:
    """The value of an argument that was ``None``, or that the profiler does not record (strings, devices)."""
    if item.has_default_value():
        return item.default_value
    if str(item.type) == "str":
        return "none"
    return [] if str(item.type).startswith("List[") else None


def _number(text: str) -> Any:
    special = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "-nan": math.nan}
    if text in special:
        return special[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise UnboundCallError(f"cannot read the recorded argument {text[:40]!r}") from error


# Times library calls on a CPU, in turn in float32 and with products of float32 in bfloat16.


TIMING_S = 1.5
"""The seconds for all calls. What is not begun until then is not timed."""


def time_in_bfloat16(calls: Sequence[OperatorCall], threads: int) -> dict[OperatorCall, float]:
    """Returns the time of each call in bfloat16, divided by its time in float32; nothing for a call that is not timed.

    Torch's number of threads stays set.
    """
    torch.set_num_threads(threads)
    ratios, begin_s = dict[OperatorCall, float](), time.perf_counter()
    with torch.inference_mode():
        for place, call in enumerate(calls):
            left_s = TIMING_S - (time.perf_counter() - begin_s)
            with contextlib.suppress(UnboundCallError, *_REFUSALS):
                ratio = compare_with_bfloat16(partial(_bind_filled, call), left_s / (len(calls) - place))
                ratios |= {call: ratio} if ratio is not None else {}
    return ratios


def _bind_filled(call: OperatorCall) -> tuple[Callable[[], object], int]:
    """Makes a call with tensors of its own, and returns it with their bytes."""
    one = call.arguments
    opaque = (len(dims) != len(strides) for dims, strides in zip(one.dims, one.strides, strict=True))
    if any(kind in _DTYPES and missing for kind, missing in zip(one.types, opaque, strict=True)):
        raise UnboundCallError("a tensor's layout is not recorded")
    bound, size = bind_call(call, CPU.type), 0
    for tensor in (one for group in bound.tensors().values() for one in group):
        storage = tensor.untyped_storage()
        tensor.new_empty(0).set_(storage).fill_(0.5)
        size += storage.nbytes()
    return bound.run, size


# Counts the work of library operators: FLOPs by torch's counter, bytes by their arguments and results.
#
# Recorded calls are rebuilt with fake tensors and dispatched without computation, so that no device is needed. Torch's
# counter decides, except in these cases (torch 2.13):
#
# - The counter multiplies the weight gradient of a grouped convolution by the number of groups. Here each of the two
#   large gradients that were computed counts as much as the forward convolution, which is correct without groups too.
# - The counter does not know vendors' operators. Convolutions and linear layers of oneDNN, MKL and cuDNN count as
#   ``aten.convolution`` and ``aten.mm`` of the same shapes, CPU attention by torch's attention formula.
# - The counter treats causal attention as full attention. If query and key have equal lengths, the masked half is
#   subtracted.
# - The counter fails for the gradients of attention with undefined optional tensors. Its formula is used directly.


_REFUSALS = (RuntimeError, TypeError, ValueError, AssertionError, LookupError, AttributeError, ArithmeticError)
"""Exceptions that torch's Python kernels for fake tensors raise for unsupported calls."""

_MATRIX_WORD = re.compile(r"q?conv(\dd|olution)?|(add|badd|b)?b?mm|gemm|q?linear|attention|rnn|lstm|gru")
_GATHERS = {"aten::embedding": "weight", "aten::index_select": "self", "aten::gather": "self"}
_SCATTERS = ("scatter", "index_put", "index_add", "embedding_dense_backward", "masked_scatter")
_PASSES = frozenset(
    {"sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "searchsorted", "bucketize"}
)
"""Operators whose number of passes over their data depends on their algorithm."""
_MOVES_NOTHING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_")
_OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_")


def count_operator_costs(calls: Sequence[OperatorCall]) -> list[OperatorCost]:
    """Returns the cost of each call, in order. Equal calls are counted once.

    If a call cannot be rebuilt, its cost holds no figures, but the reason.
    """
    known: dict[OperatorCall, OperatorCost] = {}
    with _quiet_fake_tensors():
        for call in calls:
            if call not in known:
                known[call] = _count(call)
    return [known[call] for call in calls]


def _count(call: OperatorCall) -> OperatorCost:
    """Counts with fake tensors on the call's own device, otherwise on a CPU: torch may lack them for the device."""
    reasons = []
    for device in dict.fromkeys((call.device, CPU.type)):
        try:
            return _count_on(call, device)
        except (UnboundCallError, *_REFUSALS) as error:
            reasons.append((str(error).strip().splitlines() or [type(error).__name__])[0])
    return OperatorCost(reason=reasons[0])


def _count_on(call: OperatorCall, device: str) -> OperatorCost:
    with _make_fake_tensors():
        bound = bind_call(call, device)
        counted_as = _EQUIVALENTS.get(call.name)
        if counted_as is not None:
            flops, result = counted_as(bound.arguments)
        else:
            flops, result = _count_flops(bound.run)
        flops = round(flops * _compute_causal_share(call.name, bound.arguments))
        moved, reason = _count_bytes(call.name, bound, result)
        if not flops and moved != 0 and _is_matrix_work(call.name):
            reason = f"no FLOP formula is known for {call.name}"
        return OperatorCost(flops or None, moved, _compute_dtype(bound), reason)


def _is_matrix_work(name: str) -> bool:
    words = name.rpartition("::")[2].split("_")
    return "upsample" not in words and any(_MATRIX_WORD.fullmatch(word) for word in words)


def _count_flops(run: Callable[[], Any]) -> tuple[int, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = run()
    return int(counter.get_total_flops()), result


# Equivalents of operators that torch's counter does not know or counts wrongly. Each function takes the arguments by
# their names in the schema, and returns the FLOPs and a result of the right shapes.


def _read_convolution(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """A vendor's convolution. Fused additions and activations are no matrix products and count as 0."""
    data, weight = _read_first(arguments, "self", "input", "X"), _read_first(arguments, "weight", "W")
    output_padding = arguments.get("output_padding")
    return _count_flops(
        lambda: torch.ops.aten.convolution.default(
            data,
            weight,
            None,
            arguments["stride"],
            arguments["padding"],
            arguments.get("dilation", [1]),
            output_padding is not None,
            output_padding or [0],
            arguments.get("groups", 1),
        )
    )


def _read_depthwise_convolution(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    return _read_convolution({**arguments, "groups": arguments["self"].shape[1]})


def _read_linear(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    data, weight = _read_first(arguments, "self", "X"), _read_first(arguments, "weight", "ORI_W", "W")
    flops, product = _count_flops(lambda: torch.mm(data.reshape(-1, data.shape[-1]), weight.t()))
    return flops, product.reshape(*data.shape[:-1], weight.shape[0])


def _read_product(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """An integer product, counted as the product of two float matrices of the same shapes."""
    flops, product = _count_flops(lambda: torch.mm(arguments["self"].float(), arguments["mat2"].float()))
    return flops, product.to(torch.int32)


def _read_biased_product(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    return _count_flops(lambda: torch.addmm(arguments["self"], arguments["mat1"], arguments["mat2"]))


def _read_convolution_gradients(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """Each of the two large gradients counts as much as the forward convolution; the bias gradient is a sum."""
    order = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    rest = [arguments[name] for name in order]
    data, weight = arguments["input"], arguments["weight"]
    forward, _ = _count_flops(lambda: torch.ops.aten.convolution.default(data, weight, None, *rest))
    mask = arguments["output_mask"]
    bias = arguments["grad_output"].new_empty(weight.shape[1 if arguments["transposed"] else 0])
    gradients = [each for each, wanted in zip((data, weight, bias), mask, strict=True) if wanted]
    return forward * sum(bool(wanted) for wanted in mask[:2]), [torch.empty_like(each) for each in gradients]


def _read_cpu_attention(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    from torch.utils.flop_counter import sdpa_flop_count

    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    statistics = query.new_empty(query.shape[:-1], dtype=torch.float32)
    result = [query.new_empty((*query.shape[:-1], value.shape[-1])), statistics]
    return int(sdpa_flop_count(query.shape, key.shape, value.shape)), result


def _read_attention_gradients(arguments: Mapping[str, Any]) -> tuple[int, Any]:
    from torch.utils.flop_counter import sdpa_backward_flop_count

    tensors = [arguments[name] for name in ("query", "key", "value")]
    gradient = _read_first(arguments, "grad_out", "grad_out_")
    flops = sdpa_backward_flop_count(gradient.shape, *(each.shape for each in tensors))
    if arguments.get("attn_bias") is not None and arguments.get("grad_input_mask", [False])[-1]:
        tensors.append(arguments["attn_bias"])
    return int(flops), [torch.empty_like(each) for each in tensors]


_EQUIVALENTS: Mapping[str, Callable[[Mapping[str, Any]], tuple[int, Any]]] = {
    "aten::convolution_backward": _read_convolution_gradients,
    "aten::mkldnn_convolution": _read_convolution,
    "aten::cudnn_convolution": _read_convolution,
    "aten::cudnn_convolution_relu": _read_convolution,
    "aten::cudnn_convolution_add_relu": _read_convolution,
    "aten::cudnn_convolution_transpose": _read_convolution,
    "aten::miopen_convolution": _read_convolution,
    "aten::_conv_depthwise2d": _read_depthwise_convolution,
    "aten::conv_depthwise3d": _read_depthwise_convolution,
    "mkldnn::_convolution_pointwise": _read_convolution,
    "mkldnn::_convolution_pointwise_": _read_convolution,
    "mkldnn::_convolution_transpose_pointwise": _read_convolution,
    "mkldnn::_linear_pointwise": _read_linear,
    "mkl::_mkl_linear": _read_linear,
    "aten::mkldnn_linear": _read_linear,
    "aten::_int_mm": _read_product,
    "aten::_addmm_activation": _read_biased_product,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _read_cpu_attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _read_attention_gradients,
    "aten::_scaled_dot_product_cudnn_attention_backward": _read_attention_gradients,
    "aten::_scaled_dot_product_flash_attention_backward": _read_attention_gradients,
    "aten::_scaled_dot_product_efficient_attention_backward": _read_attention_gradients,
}


def _read_first(arguments: Mapping[str, Any], *names: str) -> Any:
    return next(arguments[name] for name in names if name in arguments)


def _compute_causal_share(name: str, arguments: Mapping[str, Any]) -> float:
    """The share of an attention's matrix products that a causal mask leaves; 1 without a mask."""
    if not arguments.get("is_causal"):
        return 1.0
    # The lower-level attention operators have the heads after the positions.
    place = -2 if "scaled_dot_product" in name else -3
    length, others = arguments["query"].shape[place], arguments["key"].shape[place]
    return float((length + 1) / (2 * length)) if length == others else 1.0


def _count_bytes(name: str, bound: FakeCall, result: Any) -> tuple[int | None, str]:
    """The bytes of every input read once and every output written once; ``None`` and the reason if unknown."""
    bare = name.rpartition("::")[2]
    if bare in _MOVES_NOTHING or torch.Tag.inplace_view in bound.overload.tags:
        return 0, ""
    if any(word in bare for word in _SCATTERS):
        return None, f"how much {name} touches depends on its indices"
    if bare in _PASSES or bare.startswith("_unique"):
        return None, f"how often {name} goes over its data depends on its algorithm"
    inputs = bound.tensors()
    storages = {_find_storage(tensor) for name_ in inputs for tensor in inputs[name_] if name_ not in bound.written}
    outputs = [tensor for tensor in _flatten_result(result) if _find_storage(tensor) not in storages]
    if not outputs and not bound.written:
        return 0, ""
    written = sum(count_touched_bytes(tensor) for tensor in outputs)
    unread = bound.output_only | _list_unread_inputs(name, bound)
    read = sum(
        count_touched_bytes(tensor) for name_, group in inputs.items() if name_ not in unread for tensor in group
    )
    if name in _GATHERS:
        # One element is read for each written element, independent of the size of the table.
        read += written - sum(count_touched_bytes(tensor) for tensor in inputs[_GATHERS[name]])
    return read + written, ""


def _list_unread_inputs(name: str, bound: FakeCall) -> frozenset[str]:
    """Recorded arguments that are not read: overwritten tensors, packed copies, inputs of masked gradients."""
    if name.rpartition("::")[2] in _OVERWRITES:
        return frozenset({"self"})
    if name == "mkl::_mkl_linear":
        return frozenset({"MKL_W"})
    if name == "aten::convolution_backward":
        for_input, for_weight, _ = bound.arguments["output_mask"]
        return frozenset({"weight"} if not for_input else ()) | frozenset({"input"} if not for_weight else ())
    return frozenset()


def count_touched_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's distinct elements. An expanded dimension (stride 0) counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 or size == 0 else 1
    return count * tensor.element_size()


def _compute_dtype(bound: FakeCall) -> str | None:
    """The element type of the arithmetic: of the first floating-point tensor, or else of the first tensor."""
    tensors = [tensor for group in bound.tensors().values() for tensor in group]
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    chosen = (floating or tensors)[:1]
    return str(chosen[0].dtype).removeprefix("torch.") if chosen else None


def _flatten_result(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for item in result for tensor in _flatten_result(item)] if isinstance(result, list | tuple) else []


def _find_storage(tensor: torch.Tensor) -> int:
    """An identifier of the memory of a fake tensor, equal for its views. (torch 2.13)"""
    return int(tensor.untyped_storage()._cdata)


def _make_fake_tensors() -> Any:
    """A mode in which tensors have sizes but no memory, and operators without a shape rule fail. (torch 2.13)"""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_fallback_kernels=False)


@contextlib.contextmanager
def _quiet_fake_tensors() -> Iterator[None]:
    """Stops torch from logging a traceback for every failing call: the call's cost holds the reason. (torch 2.13)"""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


# Surveys the machine and library calls: the environment, the FLOPs and bytes of operators, and the measured peaks.


def survey_machine(job: SurveyMachine, save: Callable[[MachineFacts], None]) -> MachineFacts:
    """Surveys the machine.

    Args:
        job: the calls, the device and the wanted peaks.
        save: saves the part that is known before the peaks are measured, which may crash the process.
    """
    shared, phases = SharedDevice(), Phases()
    costs = tuple(count_operator_costs(job.calls))
    phases.end("counting FLOPs")
    if job.bfloat16_threads is not None:
        shared.take_turn()
        ratios = time_in_bfloat16(job.calls, job.bfloat16_threads)
        costs = tuple(
            replace(cost, bfloat16_ratio=ratios.get(call)) for call, cost in zip(job.calls, costs, strict=True)
        )
        phases.end("timing products in bfloat16")
    if not job.describes:
        return MachineFacts(Environment(), costs, phases_s=phases.times_s)
    shared.take_turn()  # until this process ends, because its end occupies the GPU, too
    phases.end("waiting for the device")
    environment = describe_environment()
    phases.end("describing the machine")
    found = MachineFacts(environment, costs, phases_s=phases.times_s)
    save(found)
    if job.peaks == "none":
        return found
    key = make_peaks_key(environment, job.device)
    peaks = None if job.peaks == "measured" else load_peaks(key)
    if peaks is not None or job.peaks == "known":
        return replace(found, peaks=peaks)
    measure = partial(measure_peaks, job.device)
    if open_device(job.device)[0].device.runs_on_host:
        peaks, doubt = measure_cpu_peaks_undisturbed(measure, machine.read_clock_hz(), count_vector_lanes())
    else:
        peaks, doubt = measure_gpu_peaks_unshared(measure, machine.find_driver_of_current_gpu())
    phases.end("measuring peaks")
    if peaks is not None:
        save_peaks(key, peaks)
    return replace(found, peaks=peaks, no_peaks=doubt)


def measure_peaks(device: str) -> Peaks:
    """Measures the memory, cache and matrix roofs of a device, which takes some seconds.

    Torch's global switches and random state are restored at the end.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``. A CPU is measured with the threads that torch is set to.

    Raises:
        InductorBenchError: the device is missing, or its peaks cannot be measured.
    """
    runtime, place = open_device(device)
    with torch.inference_mode():
        measured = runtime.measure_roofs(place)
    return Peaks(
        device=runtime.name(place),
        memory_bandwidth=measured.memory_bandwidth,
        matmul_flops=measured.matmul_flops,
        cache_bytes=measured.cache_bytes,
        cache_bandwidth=measured.cache_bandwidth,
        cache_roofs=measured.cache_roofs,
        launch_floor_s=measured.launch_floor_s,
        threads=torch.get_num_threads() if runtime.device.runs_on_host else None,
        torch=str(torch.__version__),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
