"""What is known of a compiled module: its text, buffers, compilation, launches, and the raw results of its own run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .base import AnyFloat, Category, FileName

FIRST_LINE = re.compile(r"(?:async )?def |@")
"""Matches the first line of a function, which is not a line in it."""

RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})$")
"""Matches Dynamo's name for the rest of a function after a graph break."""

# The contents of a compiled module's text: its kernels, and its calls in execution order.


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program from which a kernel originates."""

    file: str  # the path of the program's file
    line: int  # the line's number, from 1
    function: str  # the name of the function around it
    code: str  # the text of the line

    @property
    def is_installed(self) -> bool:
        """Whether the file is one of an installed package."""
        file = self.file.replace("\\", "/")
        return "site-packages/" in file or "dist-packages/" in file


_TORCH = re.compile(r"(?:^|/)(?:site|dist)-packages/torch/|(?:^|/)torch/(?:_dynamo|_inductor|_functorch|nn|autograd)/")


def is_of_torch(place: str) -> bool:
    """Whether a file, or a line of it, belongs to torch."""
    return _TORCH.search(place) is not None


def is_users_line(line: SourceLine | None) -> bool:
    """Whether a line is known and is the user's own, and not one of torch or another package."""
    return line is not None and not line.is_installed and not is_of_torch(line.file)


@dataclass(frozen=True)
class KernelDefinition:
    """One kernel that a compiled module defines."""

    name: str  # the variable in the module
    # the profiler's name of its launches, without the prefix ``graph_<n>_`` of C++ kernels. It differs from ``name``
    # for user-defined Triton kernels.
    event_name: str
    kernel_id: str  # a hash of the content, independent of numbering, paths and the device
    category: Category  # the category of the kernel
    language: str  # ``triton``, ``cpp``, or another backend's name as Inductor spells it
    source: str  # the kernel's text
    line: int  # the line of its definition in the module
    kernel_hash: str | None = None  # Inductor's hash of the kernel
    moved_bytes: int | None = None  # Inductor's estimate (each buffer once), if the module holds one
    template_flops: int | None = None  # the FLOPs of one call of a template kernel, as Inductor counts them
    family_id: str = ""  # a hash of the content that is independent of sizes, too
    # of a kernel that only copies a matrix into a larger one for a product, as Inductor's ``pad_mm`` does: each side
    # that grows, before and after
    padded_sides: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CallSite:
    """One call in a compiled module."""

    index: int  # position in execution order
    line: int  # line in the module
    # the called name as written: ``triton_poi_fused_add_0``, ``extern_kernels.mm``, ``torch.ops.aten.sort.stable``
    target: str
    kernel: str | None  # the name of the called kernel of the module; ``None`` for a library call and a multi-kernel
    operator: str | None  # the ATen operator without overload (``aten.mm``) of a library or fallback call
    source_nodes: tuple[str, ...] = ()  # from the comment at this call
    aten_ops: tuple[str, ...] = ()  # from the comment at this call
    handle: str | None = None  # the provenance debug handle, ``name:index``; of a workspace's sum by its buffer's name
    conditional: bool = False  # whether the call stands in a branch or a loop, so that it may not run
    alternatives: tuple[str, ...] = ()  # the kernels of a multi-kernel; one of them runs


@dataclass(frozen=True)
class ModuleInput:
    """One argument of a compiled module, as its ``get_args`` makes it."""

    name: str
    kind: str  # "tensor", "int", "none" or "opaque"
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str | None = None
    value: int | None = None


@dataclass(frozen=True)
class ModuleSource:
    """The facts that the text of a compiled module holds."""

    role: str  # ``forward``, ``backward``, ``inference`` or ``unknown`` (cpp_wrapper modules carry no mark)
    graph_number: int | None  # the number of the AOT id
    device: str  # ``cuda``, ``xpu`` or ``cpu``
    dynamic: bool  # whether sizes are symbols
    unbacked: bool  # whether sizes depend on data
    frozen: bool  # whether weights were folded into the module (freezing)
    cpp_wrapper: bool  # whether the calls are made from C++
    has_harness: bool  # whether the file can run without the program
    threads: int | None  # the fixed number of OpenMP threads of its C++ kernels; ``None`` if it is not fixed
    vector_lanes: int | None  # float32 lanes of the vector steps of its C++ kernels; ``None`` if they have none
    kernels: tuple[KernelDefinition, ...] = ()  # its definitions
    calls: tuple[CallSite, ...] = ()  # its calls in execution order
    inputs: tuple[ModuleInput, ...] = ()  # its arguments
    # kernels that an edited module calls but does not define, with their numbers of calls
    undefined: tuple[tuple[str, int], ...] = ()
    cut_short: bool = False  # whether the end of its calls is missing


# The modules of the model that the kernels of a compiled module come from.


FORWARD, BACKWARD, RECOMPUTED = "forward", "backward", "recomputed"
DIRECTIONS = (FORWARD, BACKWARD, RECOMPUTED)
"""``recomputed``: the backward computes again what the forward computed but did not keep."""


@dataclass(frozen=True, slots=True)
class LayerShare:
    """The part of a kernel's call that belongs to one module, direction and line."""

    # the path of the module from the root object: ``Llama.layers.3.mlp.up_proj``; empty outside of modules
    layer: str
    direction: str  # ``forward``, ``backward`` or ``recomputed``
    line: int  # the place of the line in :attr:`LayerMap.lines`; -1 if it is unknown
    share: float  # of the call's time, 0 to 1
    flops: float = 0.0  # of matrix products, convolutions and attention


@dataclass(frozen=True)
class LayerMap:
    """The modules and lines that the kernels of one compiled module come from: ``modules/SLUG.layers.json``."""

    classes: dict[str, str] = field(default_factory=dict)  # the class of each layer, also of layers that contain others
    lines: tuple[SourceLine, ...] = ()
    # the shares of one call of a kernel, by its provenance handle; they add up to 1
    kernels: dict[str, tuple[LayerShare, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CapturedCode:
    """One compiled module as the structured trace describes it.

    ``role`` is as in :class:`ModuleSource`, but comes from the compilations of the frame, so that modules without a
    mark of their own have one too. ``stack_traces`` are the program's lines by provenance handle. ``compiled_name`` is
    the function that the program compiled, such as ``Block.forward``; empty if it is unknown.
    """

    path: str
    text: str
    frame_id: int | None
    frame_compile_id: int | None
    attempt: int | None
    rank: int | None
    stack_traces: dict[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    role: str = "unknown"
    compiled_name: str = ""
    layers: LayerMap = field(default_factory=LayerMap)
    # the program's name of the module that was compiled: a variable, or a path in a model; empty if it is unknown
    object_name: str = ""
    alike: int = 1  # the number of modules in that model that look the same, and may run the same graph
    sizes: str = ""  # the size that tells it from other compilations of this function, in words; empty if none does


@dataclass(frozen=True)
class CompiledFunction:
    """A function that Dynamo compiled."""

    place: str  # ``file:line name`` of its first line
    recompilations: int = 0  # the number of its compilations after the first one, for all objects together
    guards: int = 0  # the number of guards of the compilation that has most
    reached_limit: bool = False  # whether Dynamo no longer compiles it, so that it runs uncompiled
    dynamic: bool | None = None  # what the program passed as ``dynamic`` to ``torch.compile``; ``None`` for nothing
    wrapped: int = 0  # the number of times that the program passed it to ``torch.compile``


# The buffers that the calls of a compiled module touch. Sizes are bytes.


@dataclass(frozen=True, slots=True)
class BufferUse:
    """The use of one buffer by one call."""

    # the name of the buffer's memory: its first variable in the module. A buffer in the memory of a deleted one has
    # that one's name.
    buffer: str
    size: int  # the bytes that all calls of the module touch: the whole buffer, or less if they take slices of it
    touched: int  # the part that the call reads or writes
    read: int = 0  # the part that the call reads
    written: int = 0  # the part that the call writes


@dataclass(frozen=True)
class ModuleBuffers:
    """The buffers of one run of a compiled module."""

    # the uses of each call site, in the order of ``ModuleSource.calls``; ``None`` for a call whose buffers are unknown
    calls: tuple[tuple[BufferUse, ...] | None, ...]
    inputs: tuple[str, ...] = ()  # the buffer of each argument, in order; empty for a number
    outputs: tuple[str, ...] = ()  # the buffer of each result, in order; empty for what is no buffer of the device


# The record of what compilation took, by phase.


DYNAMO, AOT_AUTOGRAD, LOWERING, CODE_GENERATION, KERNELS, AUTOTUNING, CUDA_GRAPHS = (
    *("Dynamo", "AOTAutograd", "Inductor's lowering", "Inductor's code generation", "compilers of kernels"),
    *("autotuning", "recording of CUDA graphs"),
)
"""The phases of compilation. ``compilers of kernels``: Inductor waits for Triton or for the C++ compiler, and loads
what they made."""


@dataclass(frozen=True)
class CompilePhase:
    """One phase of compilation. The phases of one process are disjoint."""

    # ``Dynamo``, ``AOTAutograd``, ``Inductor's lowering``, ``Inductor's code generation``, ``compilers of kernels``,
    # ``autotuning`` or ``recording of CUDA graphs``
    name: str
    time_s: float  # seconds, summed over the compilations of one process


def total_s(phases: Iterable[CompilePhase]) -> float:
    """The seconds of all phases."""
    return sum(phase.time_s for phase in phases)


# The arguments of a kernel or a library operator, complete enough to repeat the call elsewhere.
#
# Sizes are bytes; offsets and strides are elements. Dtypes and devices are torch's names as text.


@dataclass(frozen=True)
class Values:
    """What fills a storage in a standalone file: a distribution, or recorded bytes."""

    # ``normal`` (floats from a normal distribution), ``positive`` (their absolute values, for kernels that compute more
    # NaNs from negative numbers, as from a variance), ``integers`` (uniform), ``zeros``, or ``recorded`` (the bytes of
    # the original storage, in ``data`` or ``file``; with ``positive`` ones beside them, floats in ``data`` may be
    # absolute values, too)
    kind: str
    low: int | None = None  # the range of ``integers``, both ends included; 0 and 1 for ``bool``
    high: int | None = None  # the range of ``integers``, both ends included; 0 and 1 for ``bool``
    share: float | None = None  # the share of true elements of a ``bool`` storage
    data: str | None = None  # recorded bytes, zlib-compressed and in base64
    file: FileName | None = None  # a safetensors file beside the standalone file; its key is ``storage_<index>``


@dataclass(frozen=True)
class Storage:
    """One allocation; tensor arguments are views of it, and arguments that alias share it.

    ``alignment`` is the largest power of two, up to 256, that divided its address. ``dtype`` is its first view's.
    """

    size_bytes: int
    dtype: str
    device: str  # "cuda" or "cpu"
    alignment: int
    values: Values


@dataclass(frozen=True)
class TensorView:
    """A tensor argument: a view of ``Launch.storages[storage]``. ``offset`` is in elements of ``dtype``."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    itemsize: int

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise ValueError(f"has {len(self.shape)} sizes and {len(self.stride)} strides")


@dataclass(frozen=True)
class Argument:
    """One argument of a recorded launch. ``kind`` tells which field holds its value.

    ``kind`` is ``tensor``, ``int``, ``float``, ``bool``, ``text``, ``none``, ``list`` (in ``items``), ``dtype``,
    ``device``, ``layout`` or ``memory_format`` (``text`` holds torch's name without the prefix), or ``opaque``
    (``text`` describes the value; the call cannot be repeated).
    """

    kind: str
    tensor: TensorView | None = None
    integer: int | None = None
    number: AnyFloat | None = None
    text: str | None = None
    items: tuple[Argument, ...] = ()

    def plain(self) -> Any:
        """The value of an argument that is no tensor, as JSON has it."""
        if self.kind == "list":
            return [one.plain() for one in self.items]
        if self.kind == "bool":
            return bool(self.integer)
        return next((value for value in (self.integer, self.number, self.text) if value is not None), None)


@dataclass(frozen=True)
class Launch:
    """One distinct launch of a kernel, or one distinct call of a library operator."""

    kernel: str  # the kernel's variable in the compiled module; empty for an operator
    operator: str | None  # the full name of the overload of a library call, for example ``aten.convolution.default``
    calls: int  # the number of calls with these arguments in one run
    positions: tuple[int, ...]  # the positions of these calls among all launches of one run
    storages: tuple[Storage, ...]  # the allocations that the tensor arguments view
    arguments: tuple[Argument, ...]  # positional and keyword arguments
    keywords: dict[str, Argument] = field(default_factory=dict)  # positional and keyword arguments
    mutated: tuple[int, ...] = ()  # indices of the arguments that the call writes


# The raw results of the process that measured a module, stored beside the trace as ``SLUG.details.json``.


@dataclass(frozen=True)
class CompiledKernel:
    """The result of compiling a Triton kernel."""

    config: dict[str, int] = field(default_factory=dict)  # the block sizes, ``num_warps`` and ``num_stages``
    registers: int | None = None  # registers of one thread
    spills: int | None = None  # spilled registers of one thread, as Triton counts them
    shared_memory_bytes: int | None = None  # shared memory of one block


@dataclass(frozen=True)
class MachineLoad:
    """The load of the machine while runs of a module, or steps of a program, were measured."""

    runs: int  # the number of measured runs
    cores: int  # the number of processors that the measuring process may use
    load: float | None = None  # the system's load average of the last minute
    time_s: float = 0.0  # elapsed seconds
    cpu_time_s: float = 0.0  # CPU seconds of all threads of the measuring process
    # seconds for which its threads waited for a processor, summed over the threads; ``None`` if unknown
    waited_s: float | None = None
    # seconds that the hypervisor took from ``cores``, summed over the cores; ``None`` if unknown
    stolen_s: float | None = None
    switches: int = 0  # the number of involuntary context switches of the measuring process
    # CPU seconds on ``cores`` of processes other than the measuring process and its children; ``None`` if unknown
    others_s: float | None = None

    @property
    def others_share(self) -> float:
        """The share of the time of ``cores`` that other processes and the hypervisor had, 0 to 1; 0 if unknown."""
        taken_s = (self.others_s or 0.0) + (self.stolen_s or 0.0)
        return min(1.0, taken_s / (self.cores * self.time_s)) if self.time_s else 0.0

    @property
    def delayed_share(self) -> float:
        """The share of its running time that the process waited for a processor, 0 to 1; 0 if unknown."""
        lost_s = (self.waited_s or 0.0) + (self.stolen_s or 0.0)
        return lost_s / (lost_s + self.cpu_time_s) if lost_s else 0.0


@dataclass(frozen=True)
class Complaint:
    """The reason why a measurement stopped early, and a hint."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Reference:
    """The fingerprint of a launch's outputs; ``None`` with the error if there is none.

    The harness of standalone files makes the fingerprint and compares it.
    """

    fingerprint: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True)
class Details:
    """The raw results for one module. Every field has its default for a trace that was recorded elsewhere."""

    wall_samples_s: tuple[float, ...] = ()  # times of the unprofiled, synchronised runs, in order
    wall_load: MachineLoad | None = None  # the machine's load during these runs
    profile_load: MachineLoad | None = None  # the machine's load during the profiled runs
    graph_samples_s: tuple[float, ...] = ()  # times of replays of the whole module as one CUDA graph, in order
    graph_error: str | None = None  # the reason why the module cannot be captured as a CUDA graph
    # in a run, on a GPU the maximum of torch's allocated memory, on a CPU the process's maximum resident size
    peak_memory_bytes: int | None = None
    iterations: int | None = None  # the number of profiled runs
    threads: int | None = None  # the number of torch's threads in the measuring process
    marked: bool = False  # whether C++ kernels were timed from Python
    truncated: bool = False  # whether the trace is cut short
    # the program's settings of torch that select library kernels
    switches: dict[str, bool] = field(default_factory=dict)
    # the result of compiling each Triton kernel, by its variable in the module
    compiled: dict[str, CompiledKernel] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()  # every distinct launch of one run
    references: tuple[Reference, ...] = ()  # the reference of each launch, in order
    # the launches whose values were recorded; ``None`` if recording was not requested
    recorded: tuple[Launch, ...] | None = None
    recorded_references: tuple[Reference, ...] = ()  # the references of ``recorded``
    values_error: Complaint | None = None  # the reason why the recording of values stopped
    phases_s: dict[str, float] = field(default_factory=dict)  # seconds of each phase of the measuring process
    # in a RUN of format 1 or 2, DRAM's bytes per byte that a call site of the module touches in the program's step, by
    # the index of the call site; empty if the step is unknown, and in later formats
    dram_shares: dict[str, float] = field(default_factory=dict)
