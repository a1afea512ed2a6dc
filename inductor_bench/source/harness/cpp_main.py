"""Compiles and runs one C++ kernel with the number of threads and the vector width of its module."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from .common import (
    NOT_RECORDED,
    Arguments,
    build_arguments,
    fingerprint,
    mutated_storages,
    read_options,
    restore,
    same,
    show_check,
    show_result,
    snapshot,
    touched_bytes,
    with_zeros,
    written_tensors,
)
from .timing_cpu import measure_cpu

BY_INDEX = re.compile(r"atomic_add|ptr\w*\[[^\]]*\btmp\d|ptr\w* \+ static_cast<int64_t>\([^;,]*\btmp\d")
"""In a C++ kernel: an address that depends on what was read before."""


class MachineRefusedError(RuntimeError):
    """This machine cannot run the kernel as it was compiled; the message is one line."""


class CppKernel:
    """A C++ kernel that is compiled when it is first called.

    Args:
        recorded: the file's ``RECORDED``; ``cpp`` holds ``argument_types``, ``threads`` (of the capture),
            ``literal_threads`` (that the source is written for, or ``None``) and ``vector_bits`` (or ``None``).
        source: the C++ text, with an entry named ``kernel``.
        folder: where files of recorded values lie.
    """

    def __init__(self, recorded: dict[str, Any], source: str, folder: str = ".") -> None:
        self.recorded = recorded
        self.launch: dict[str, Any] = recorded["launch"]
        self.folder = folder
        self._source = source
        self._facts: dict[str, Any] = recorded["cpp"]
        self._kernel: Callable[..., Any] | None = None

    def make_arguments(self, seed: int = 0) -> Arguments:
        return build_arguments(self.launch, "cpu", seed, self.folder)

    def call(self, arguments: Arguments) -> None:
        """Runs the kernel once on the recorded number of threads.

        Raises:
            RefusedError: it would give wrong results or crash here, or it does not compile.
        """
        self.bind(arguments)()

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        """The call with these arguments and nothing else to do, for timing."""
        kernel, args = self.compile(), arguments.args
        self.set_threads()
        return lambda: kernel(*args)

    def measure_with_zeros(self) -> dict[str, Any] | None:
        """The times with zeros for all indices, ``{cold, warm}``; ``None`` for a kernel that reads by no index.

        Other kernels keep their values: a zero that they divide by would end the process.
        """
        launch = with_zeros(self.launch)
        if launch is None or not BY_INDEX.search(self._source):
            return None
        timing = measure_cpu(launch, build_arguments(launch, "cpu", folder=self.folder), self.bind)
        return {state: timing[state] for state in ("cold", "warm")}

    def outputs(self, arguments: Arguments) -> list[torch.Tensor]:
        return written_tensors(self.launch, arguments)

    def compile(self) -> Callable[..., Any]:
        """The compiled kernel, from Inductor's builder and cache. Raises: RefusedError."""
        if self._kernel is None:
            self._refuse_too_few_processors()
            facts = self._facts
            vectors, switches = facts.get("vector_bits"), facts.get("options") or {}
            self._kernel = compile_kernel(facts["argument_types"], self._source, vectors, switches)
        return self._kernel

    def _refuse_too_few_processors(self) -> None:
        literal, here = self._facts.get("literal_threads"), usable_processors()
        if literal is not None and here < literal:
            raise MachineRefusedError(
                f"the kernel is written for exactly {literal} threads, and there are {here} CPUs here"
            )

    def set_threads(self) -> None:
        """Sets the number of threads that the kernel is to run on, for the whole process."""
        threads = self._facts.get("literal_threads") or self._facts.get("threads")
        if threads and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def usable_processors() -> int:
    """The number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_kernel(
    argument_types: list[str], source: str, vector_bits: int | None, switches: dict[str, Any]
) -> Callable[..., Any]:
    """Compiles a kernel with vectors of just ``vector_bits``; ``None`` if it has none and any will do.

    ``switches`` of ``torch._inductor.config`` are set meanwhile, for the flags of the compiler.

    Raises:
        RefusedError: the processor has no such vectors, or the compiler fails.
    """
    from torch._inductor import config, exc
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    if vector_bits is not None:
        here = sorted({isa.bit_width() for isa in valid_vec_isa_list()})
        if vector_bits not in here:
            found = ", ".join(map(str, here)) or "none"
            raise MachineRefusedError(
                f"the kernel is written for vectors of {vector_bits} bits; this machine has: {found}"
            )
    # The steps of its loops are literal: with other vectors it would read past rows and give wrong numbers.
    vectors = {} if vector_bits is None else {"cpp.simdlen": vector_bits}
    try:
        with config.patch({**switches, **vectors}):
            kernel: Callable[..., Any] = CppPythonBindingsCodeCache.load_pybinding(argument_types, source)
    except exc.CppCompileError as error:
        lines = str(error).strip().splitlines()
        first = next((line for line in lines if "error: " in line), lines[-1])
        raise MachineRefusedError(f"the kernel does not compile here: {first.strip()}") from error
    except exc.InvalidCxxCompiler as error:
        raise MachineRefusedError("there is no C++ compiler here (install g++, or set CXX)") from error
    return kernel


def check_cpp(kernel: CppKernel, seed: int) -> tuple[bool | None, str]:
    """Whether the outputs are the recorded ones, and in words; also whether a second run gives the same bits."""
    arguments = kernel.make_arguments(seed)
    saved = snapshot(arguments, mutated_storages(kernel.launch))
    kernel.call(arguments)
    first = fingerprint(kernel.outputs(arguments))
    copies = [tensor.clone() for tensor in kernel.outputs(arguments)]
    restore(arguments, saved)
    kernel.call(arguments)
    repeated = all(same_bits(one, two) for one, two in zip(copies, kernel.outputs(arguments), strict=True))
    note = "a second run gives the same bits" if repeated else "a second run gives other bits"
    reference = kernel.recorded.get("reference")
    if reference is None or seed != 0:
        again, why = same(fingerprint(kernel.outputs(arguments)), first)
        note = f"{NOT_RECORDED}; {note}" if reference is None else note
        return (None if again else False), (note if again else f"a second run differs: {why}")
    agrees, why = same(first, reference)
    return agrees, f"{why}; {note}"


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same bytes; NaNs of the same bits are the same."""
    pair = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*pair)


def run_cpp(kernel: CppKernel, description: str, argv: list[str] | None = None) -> int:
    """The command line of a C++ kernel's file; returns the exit status."""
    options = read_options(description.replace("%", "%%"), argv)
    name = kernel.recorded["name"]
    try:
        if options.check and not options.json:
            return show_check(name, *check_cpp(kernel, options.seed))
        passed, why = check_cpp(kernel, options.seed) if options.check else (None, "")
        arguments = kernel.make_arguments(options.seed)
        timing = measure_cpu(kernel.launch, arguments, kernel.bind)
        timing["with_zeros"] = kernel.measure_with_zeros()
        bits = kernel.recorded["cpp"].get("vector_bits")
        timing["method"] = f"vectors of {bits} bits; {timing['method']}" if bits else timing["method"]
    except (MachineRefusedError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    facts = {"name": name, "kernel_id": kernel.recorded.get("kernel_id"), "device": "cpu"}
    moved = kernel.recorded.get("moved_bytes") or touched_bytes(kernel.launch)
    work = {"moved_bytes": moved, "check": passed, "check_message": why}
    show_result({**facts, **timing, **work}, options.json)
    return int(options.check and not passed)
