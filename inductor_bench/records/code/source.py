"""The contents of a compiled module's text: its kernels, and its calls in execution order."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..category import Category


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program from which a kernel originates.

    Attributes:
        file: the path of the program's file.
        line: the line's number, from 1.
        function: the name of the function around it.
        code: the text of the line.
    """

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class KernelDefinition:
    """One kernel that a compiled module defines.

    Attributes:
        name: the variable in the module.
        event_name: the profiler's name of its launches, without the prefix ``graph_<n>_`` of C++ kernels. It differs
            from ``name`` for user-defined Triton kernels.
        kernel_id: a hash of the content, independent of numbering, paths and the device.
        category: the category of the kernel.
        language: ``triton``, ``cpp``, or another backend's name as Inductor spells it.
        source: the kernel's text.
        line: the line of its definition in the module.
        kernel_hash: Inductor's own hash of the kernel.
        moved_bytes: Inductor's estimate (each buffer once), where the module holds one.
        template_flops: the FLOPs of one call of a template kernel, as Inductor counts them.
        family_id: a hash of the content that is independent of sizes, too.
        padded_sides: of a kernel that only copies a matrix into a larger one for a product, as Inductor's ``pad_mm``
            does: each side that grows, before and after.
    """

    name: str
    event_name: str
    kernel_id: str
    category: Category
    language: str
    source: str
    line: int
    kernel_hash: str | None = None
    moved_bytes: int | None = None
    template_flops: int | None = None
    family_id: str = ""
    padded_sides: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CallSite:
    """One call in a compiled module.

    Attributes:
        index: position in execution order.
        line: line in the module.
        target: the called name as written: ``triton_poi_fused_add_0``, ``extern_kernels.mm``,
            ``torch.ops.aten.sort.stable``.
        kernel: the name of the called kernel of the module; ``None`` for a library call and a multi-kernel.
        operator: the ATen operator without overload (``aten.mm``) of a library or fallback call.
        source_nodes, aten_ops: from the comment at this call.
        handle: the provenance debug handle, ``name:index``.
        conditional: whether the call stands in a branch or a loop, so that it may not run.
        alternatives: the kernels of a multi-kernel, of which one runs.
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
    """The facts that the text of a compiled module holds.

    Attributes:
        role: ``forward``, ``backward``, ``inference`` or ``unknown`` (cpp_wrapper modules carry no mark).
        graph_number: the number of the AOT id.
        device: ``cuda``, ``xpu`` or ``cpu``.
        dynamic: whether sizes are symbols.
        unbacked: whether sizes depend on data.
        frozen: whether weights were folded into the module (freezing).
        cpp_wrapper: whether the calls are made from C++.
        has_harness: whether the file can be run by itself.
        threads: the fixed number of OpenMP threads of its C++ kernels; ``None`` where it is not fixed.
        vector_lanes: float32 lanes of the vector steps of its C++ kernels; ``None`` where they have none.
        kernels: its definitions.
        calls: its calls in execution order.
        inputs: its arguments.
        undefined: kernels that an edited module calls but does not define, with their numbers of calls.
        cut_short: whether the end of its calls is missing.
    """

    role: str
    graph_number: int | None
    device: str
    dynamic: bool
    unbacked: bool
    frozen: bool
    cpp_wrapper: bool
    has_harness: bool
    threads: int | None
    vector_lanes: int | None
    kernels: tuple[KernelDefinition, ...] = ()
    calls: tuple[CallSite, ...] = ()
    inputs: tuple[ModuleInput, ...] = ()
    undefined: tuple[tuple[str, int], ...] = ()
    cut_short: bool = False


@dataclass(frozen=True)
class CapturedCode:
    """One compiled module as the structured trace describes it.

    ``role`` is as in :class:`ModuleSource`, but comes from the compilations of the frame, so that modules without a
    mark of their own have one too. ``stack_traces`` are the program's lines by provenance handle. ``compiled_name`` is
    the function that the program compiled, such as ``Block.forward``; empty where it is unknown.
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
