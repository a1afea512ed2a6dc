"""What the text of a compiled module says: its kernels, and its calls in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..category import Category


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program that a kernel came from."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class KernelDefinition:
    """One kernel that a compiled module defines.

    ``name`` is the variable in the module; ``event_name`` what the profiler calls its launches (they differ for
    user-defined Triton kernels and, by a ``graph_<n>_`` prefix, for C++ kernels: there it is the bare name).
    ``kernel_id`` is a content hash that does not change with numbering, paths or the device;
    ``family_id`` one that does not change with sizes either.
    ``moved_bytes`` is Inductor's own estimate (each buffer once), where the module carries one.
    """

    name: str
    event_name: str
    kernel_id: str
    category: Category
    language: str  # "triton", "cpp" or another backend's name as Inductor spells it
    source: str
    line: int
    kernel_hash: str | None = None
    moved_bytes: int | None = None
    template_flops: int | None = None
    family_id: str = ""


@dataclass(frozen=True)
class CallSite:
    """One call in a compiled module, in execution order.

    ``target`` is what is called as written (``triton_poi_fused_add_0``, ``extern_kernels.mm``,
    ``torch.ops.aten.sort.stable``); ``kernel`` the definition's name where it is a kernel of the module;
    ``operator`` the ATen operator without overload (``aten.mm``) where it is a library or fallback call.
    ``source_nodes`` and ``aten_ops`` come from the comment at this very call. ``handle`` is the provenance
    debug handle (``name:index``). ``conditional`` calls stand in a branch or loop and need not run.
    ``alternatives`` are the kernels of a multi-kernel, one of which runs; ``kernel`` is ``None`` there.
    """

    index: int
    line: int
    target: str
    kernel: str | None
    operator: str | None
    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    handle: str | None = None
    conditional: bool = False
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModuleInput:
    """One argument of a compiled module, as its ``get_args`` fabricates it. ``shape`` holds ints or symbols."""

    name: str
    kind: str  # "tensor", "int", "none" or "opaque"
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str | None = None
    value: int | None = None


@dataclass(frozen=True)
class ModuleSource:
    """What can be read from a compiled module without running it.

    ``role`` is ``forward``, ``backward``, ``inference`` or ``unknown`` (cpp_wrapper modules carry no mark).
    ``graph_number`` is the number of the AOT id. ``has_harness`` tells whether it can be run from the file.
    ``frozen`` tells that weights were folded into the module (freezing). ``unbacked`` that sizes depend on data.
    In a module that was edited or cut short, ``undefined`` are the kernels that it calls and does not define, with
    their numbers of calls, and ``cut_short`` tells that the end of its calls is missing.
    """

    role: str
    graph_number: int | None
    device: str  # "cuda", "xpu", "cpu"
    dynamic: bool
    unbacked: bool
    frozen: bool
    cpp_wrapper: bool
    has_harness: bool
    kernel_profile: bool  # C++ kernels carry record-function marks
    threads: int | None  # the literal number of OpenMP threads that C++ kernels insist on, where they do
    vector_lanes: int | None  # float32 lanes of the vector steps in C++ kernels, where they have any
    kernels: tuple[KernelDefinition, ...] = ()
    calls: tuple[CallSite, ...] = ()
    inputs: tuple[ModuleInput, ...] = ()
    undefined: tuple[tuple[str, int], ...] = ()
    cut_short: bool = False


@dataclass(frozen=True)
class CapturedCode:
    """One compiled module as the structured trace tells of it.

    ``role`` is as in :class:`ModuleSource`, here from what was compiled for the frame, which also covers modules
    that carry no mark of their own.
    """

    path: str
    text: str
    frame_id: int | None
    frame_compile_id: int | None
    attempt: int | None
    rank: int | None
    stack_traces: dict[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    role: str = "unknown"
