"""The buffers that the calls of a compiled module touch. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferUse:
    """The use of one buffer by one call.

    Attributes:
        buffer: the name of the buffer's memory: its first variable in the module. A buffer in the memory of a deleted
            one has that one's name.
        size: the bytes that all calls of the module touch: the whole buffer, or less where they take slices of it.
        touched: the part that the call reads or writes.
        read, written: the part that the call reads, and the part that it writes.
    """

    buffer: str
    size: int
    touched: int
    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class ModuleBuffers:
    """The buffers of one run of a compiled module.

    Attributes:
        calls: the uses of each call site, in the order of ``ModuleSource.calls``; ``None`` for a call whose buffers are
            unknown.
        inputs: the buffer of each argument, in order; empty for a number.
        outputs: the buffer of each result, in order; empty for what is no buffer of the device.
    """

    calls: tuple[tuple[BufferUse, ...] | None, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
