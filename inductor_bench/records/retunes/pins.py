"""What puts the winner of a retune into a kernel of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..tuning import Config


@dataclass(frozen=True)
class TritonPin:
    """The configuration of one Triton kernel.

    Attributes:
        key, types: identify the kernel; see ``source.module.lookup``.
        name, kernel_id: of the kernel.
        config: block sizes and other constants, ``num_warps`` and ``num_stages``.
    """

    key: str
    types: str
    name: str
    kernel_id: str
    config: Config

    @property
    def target(self) -> tuple[str, str]:
        """What a process knows the kernel by."""
        return self.key, self.types


@dataclass(frozen=True)
class CppPin:
    """The text of one C++ kernel.

    Attributes:
        kernel_id: identifies the kernel; see ``source.module.identity.cpp_kernel_id``.
        name: of the kernel.
        config: the configuration, for people.
        source: the changed text.
        options: the settings of ``torch._inductor.config`` with which it is compiled.
    """

    kernel_id: str
    name: str
    config: Config
    source: str
    options: Config = field(default_factory=dict)

    @property
    def target(self) -> str:
        """What a process knows the kernel by."""
        return self.kernel_id


@dataclass(frozen=True)
class InputLayout:
    """One tensor that a library call reads; strides of dimensions of size 1 are 0, because they mean nothing."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, dtype: str, shape: Sequence[int], stride: Sequence[int]) -> InputLayout:
        """The layout of a tensor of this element type, for example ``bfloat16``, with these sizes and strides."""
        steps = (0 if size == 1 else step for size, step in zip(shape, stride, strict=True))
        return cls(dtype, tuple(shape), tuple(steps))


@dataclass(frozen=True)
class LibraryPin:
    """One of Inductor's choices for a library call.

    Attributes:
        name, kernel_id: of the call.
        operator: the name of the operator, for example ``aten.mm``.
        inputs: the layouts of its :func:`factors`.
        settings: its arguments that are no tensors, by their position or their name.
        config: the choice, as ``worker.upstream.choices`` names it.
        exhaustive: whether it is one of Inductor's exhaustive search.
        on_host: whether the call runs on a CPU.
    """

    name: str
    kernel_id: str
    operator: str
    inputs: tuple[InputLayout, ...]
    settings: Config
    config: Config
    exhaustive: bool = False
    on_host: bool = False

    @property
    def target(self) -> object:
        """What a process knows the call by."""
        settings = ((name, repr(value)) for name, value in self.settings.items() if value is not None)
        return self.operator, self.inputs, tuple(sorted(settings))


AnyPin = TritonPin | CppPin | LibraryPin
Input = TypeVar("Input")


def pins_by_kind(
    pins: Iterable[AnyPin],
) -> tuple[tuple[TritonPin, ...], tuple[CppPin, ...], tuple[LibraryPin, ...]]:
    """Pins of Triton kernels, of C++ kernels and of library calls, each in the order of ``pins``."""
    every = tuple(pins)
    return (
        tuple(pin for pin in every if isinstance(pin, TritonPin)),
        tuple(pin for pin in every if isinstance(pin, CppPin)),
        tuple(pin for pin in every if isinstance(pin, LibraryPin)),
    )


def factors(operator: str, inputs: Sequence[Input]) -> Sequence[Input]:
    """The inputs of a product or a convolution that decide which choice is fast: without what is only added."""
    if operator in ("aten.addmm", "aten.baddbmm"):
        return inputs[-2:]
    return inputs[:2]
