"""Makes the text of a C++ kernel's standalone file: its source, its number of threads and its vector width."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...records.code.launch import Launch
from ...records.code.source import KernelDefinition
from ..module.cpp_text import read_threads, read_vector_lanes
from .header import StandaloneHeader, UnwritableKernelError, recorded_text, write_header
from .paste import framed_harness

_ENTRY = re.compile(r'extern "C"[^;{}()]*?\bvoid\s+kernel\s*\(([^()]*)\)\s*\{')
_RESTRICT = re.compile(r"\b_*restrict(?:__)?\b")
_ISA_BITS = {"avx512": 512, "avx2": 256}
_VECTOR_BITS = (128, 256, 512)
_TAIL = '''
FOLDER = os.path.dirname(os.path.abspath(__file__))
KERNEL = CppKernel(RECORDED, SOURCE, FOLDER)


def make_arguments(seed: int = 0) -> Arguments:
    """The recorded arguments; random values from ``seed``."""
    return KERNEL.make_arguments(seed)


def call(arguments: Arguments) -> None:
    """Runs the kernel once."""
    KERNEL.call(arguments)


def outputs(arguments: Arguments) -> list[torch.Tensor]:
    """The tensors that the last call wrote."""
    return KERNEL.outputs(arguments)


def check(seed: int = 0) -> tuple[bool | None, str]:
    """Whether the outputs are right, ``None`` if there is nothing to compare them with; and why."""
    return check_cpp(KERNEL, seed)


if __name__ == "__main__":
    sys.exit(run_cpp(KERNEL, __doc__.splitlines()[0]))
'''


@dataclass(frozen=True)
class CppNeeds:
    """What a C++ kernel needs to be compiled and called: ``RECORDED["cpp"]``.

    Attributes:
        argument_types: the C++ types of its arguments.
        threads: the number of threads of the capture.
        literal_threads: the number of threads that its source names, if any.
        vector_bits: the width of its vectors in bits.
    """

    argument_types: tuple[str, ...]
    threads: int | None
    literal_threads: int | None
    vector_bits: int | None


def cpp_text(header: StandaloneHeader, kernel: KernelDefinition, launch: Launch, facts: dict[str, Any]) -> str:
    """The whole text of the standalone file of a C++ kernel.

    Args:
        header: the description of the kernel.
        kernel: the definition.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch, and with ``threads`` and ``vector_isa`` of the capture.

    Raises:
        UnwritableKernelError: the entry function cannot be read, or does not fit the launch.
    """
    types = argument_types(kernel.source)
    if len(types) != len(launch.arguments):
        raise UnwritableKernelError(f"the kernel takes {len(types)} arguments, {len(launch.arguments)} were recorded")
    written = tuple(sorted({*launch.mutated, *written_arguments(types)}))
    needs = CppNeeds(
        argument_types=types,
        threads=facts.get("threads"),
        literal_threads=read_threads([kernel.source]),
        vector_bits=vector_bits(kernel.source, facts.get("vector_isa")),
    )
    facts = {**facts, "launch": {**facts["launch"], "mutated": list(written)}, "cpp": asdict(needs)}
    device = ", ".join(filter(None, (header.device_name, needs_words(needs))))
    return "\n".join(
        [
            write_header(replace(header, device_name=device), replace(launch, mutated=written)),
            "from __future__ import annotations\n",
            recorded_text(facts),
            f"SOURCE = {quoted(kernel.source)}\n",
            framed_harness("arguments.py", "comparison.py", "command.py", "timing.py", "timing_cpu.py", "cpp_main.py"),
            _TAIL,
        ]
    )


def argument_types(source: str) -> tuple[str, ...]:
    """The C++ types of a kernel's arguments in order, for example ``const float*``, from its entry's signature.

    Raises:
        UnwritableKernelError: there is no function named ``kernel``.
    """
    entry = _ENTRY.search(source)
    if entry is None:
        raise UnwritableKernelError("its C++ source has no function named kernel")
    parameters = (_RESTRICT.sub("", each).strip() for each in entry.group(1).split(","))
    return tuple(re.sub(r"\s*\b\w+$", "", each).replace(" *", "*") for each in parameters if each)


def written_arguments(types: Sequence[str]) -> list[int]:
    """The indices of the arguments that a kernel may write: pointers to non-constant types."""
    return [index for index, each in enumerate(types) if each.endswith("*") and not each.startswith("const ")]


def vector_bits(source: str, isa: str | None) -> int | None:
    """The width in bits of the vectors in the source's loops; ``None`` where it uses none.

    ``isa`` is the instruction set that torch chose at capture. Inductor may use narrower vectors, but never wider ones.
    """
    if "at::vec::" not in source:
        return None
    lanes = read_vector_lanes([source])
    read = lanes * 32 if lanes is not None and lanes * 32 in _VECTOR_BITS else None
    chosen = _ISA_BITS.get((isa or "").split()[0].split("_")[0]) if isa else None
    return min((bits for bits in (read, chosen) if bits is not None), default=None)


def needs_words(needs: CppNeeds) -> str:
    """The number of threads and the vector width of a kernel, for the header of its file; empty without either."""
    threads, exactly, bits = needs.threads, needs.literal_threads, needs.vector_bits
    words = f"exactly {exactly} threads" if exactly else f"{threads} threads" if threads else ""
    return ", ".join(filter(None, (words, f"vectors of {bits} bits" if bits else "")))


def quoted(text: str) -> str:
    """A Python literal of a text: a raw literal over several lines where that keeps every character."""
    literal = f"r'''{text}'''"
    try:
        kept = "\r" not in text and ast.literal_eval(literal) == text
    except (SyntaxError, ValueError):
        kept = False
    return literal if kept else repr(text)
