"""What puts the winner of a retune into a kernel of a program."""

from __future__ import annotations

from dataclasses import dataclass, field

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
