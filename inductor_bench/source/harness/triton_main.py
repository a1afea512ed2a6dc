"""Runs, checks and times one Triton kernel with the recorded arguments."""

from __future__ import annotations

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
    profile_call,
    read_options,
    same,
    show_check,
    show_result,
    touched_bytes,
    with_zeros,
    written_tensors,
)
from .timing_cuda import measure_cuda

SCRATCH = ("ws_ptr", "sem_ptr")  # what Inductor calls workspaces and semaphores
WHOLE_NUMBERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


class TritonKernel:
    """A kernel of Inductor's launcher and its recorded launch.

    Args:
        kernel: Inductor's object around the compiled function.
        recorded: the file's ``RECORDED``.
        folder: where files of recorded values lie.
    """

    def __init__(self, kernel: Any, recorded: dict[str, Any], folder: str = ".") -> None:
        self.kernel, self.recorded, self.folder = kernel, recorded, folder
        self.launch: dict[str, Any] = recorded["launch"]
        self.device = f"cuda:{kernel.device_props.index}"
        self.names = self._tensor_names()
        self.zeroed = self._zeroed_storages()
        self.reset = self._reset_storages()
        self.kept = self._kept_storages()

    def make_arguments(self, seed: int = 0) -> Arguments:
        """The arguments of the recorded launch."""
        return build_arguments(self.launch, self.device, seed, self.folder)

    def call(self, arguments: Arguments) -> None:
        """Launches the kernel once, after zeroing the workspace that has to be zero before every call, if any."""
        for index in self.zeroed:
            arguments.storages[index].zero_()
        self.run(arguments)

    def run(self, arguments: Arguments) -> None:
        """Launches the kernel on the current stream, as the compiled module does."""
        stream = torch._C._cuda_getCurrentRawStream(self.kernel.device_props.index)
        self.kernel.run(*arguments.args, **arguments.keywords, stream=stream)

    def outputs(self, arguments: Arguments) -> list[torch.Tensor]:
        """The tensors that the kernel writes, less workspaces and semaphores."""
        mutated = self.launch.get("mutated") or ()
        kept = [index for index in mutated if not self._is_scratch(index)]
        return written_tensors({**self.launch, "mutated": kept}, arguments)

    def _is_scratch(self, index: int) -> bool:
        return self.names.get(index, "").startswith(SCRATCH)

    def measure(self, arguments: Arguments) -> dict[str, Any]:
        """Times the kernel with these arguments: ``{cold, warm, method}``."""
        return measure_cuda(self.launch, arguments, self._bind, self.moved_bytes(), self.reset, self.kept)

    def measure_with_zeros(self) -> dict[str, Any] | None:
        """The times with zeros in place of all whole numbers, as Inductor's harness has them.

        ``None`` for a kernel that reads none. A gather then hits one row, an atomic collides on it, masks are false.
        """
        launch = with_zeros(self.launch)
        if launch is None:
            return None
        twin = TritonKernel(self.kernel, {**self.recorded, "launch": launch}, self.folder)
        timing = twin.measure(twin.make_arguments())
        return {state: timing[state] for state in ("cold", "warm")}

    def _bind(self, arguments: Arguments) -> Callable[[], None]:
        return lambda: self.run(arguments)

    def moved_bytes(self) -> int:
        """What one call moves, by Inductor's count or, if there is none, by the extent of the tensors."""
        return int(self.recorded.get("moved_bytes") or touched_bytes(self.launch))

    def check(self, seed: int = 0) -> tuple[bool | None, str]:
        """Whether the outputs are those of the reference; ``None`` if there is nothing to compare."""
        reference = self.recorded.get("reference")
        if reference is None:
            return None, NOT_RECORDED
        arguments = self.make_arguments(seed)
        self.call(arguments)
        written = self.outputs(arguments)
        if not written:
            return None, "nothing that the kernel writes was recorded"
        every = self.launch["mutated"]
        if len(reference["tensors"]) == len(every) > len(written):  # scratch was fingerprinted as well
            kept = zip(every, reference["tensors"], strict=True)
            reference = {"tensors": [item for index, item in kept if not self._is_scratch(index)]}
        return same(fingerprint(written), reference, self.recorded.get("tolerance"))

    def profile(self, seed: int = 0) -> None:
        """Launches the kernel once for a profiler, after a call that compiles it."""
        self.call(self.make_arguments(seed))
        arguments = self.make_arguments(seed)
        for index in self.zeroed:
            arguments.storages[index].zero_()
        profile_call(lambda: self.run(arguments))

    def main(self, argv: list[str] | None = None) -> int:
        """Runs the file as a program; returns its exit status."""
        name = self.recorded["name"]
        try:
            return self._main(name, argv)
        except ValueError as error:  # recorded values that are not there
            print(f"{name}: {error}", file=sys.stderr)
            return 1

    def _main(self, name: str, argv: list[str] | None) -> int:
        description = f"Runs the kernel {name!r} by itself.".replace("%", "%%")
        options = read_options(description, argv, retargetable=True, on_gpu=True)
        if options.profile:
            self.profile(options.seed)
            return 0
        passed, message = self.check(options.seed) if options.check else (None, "")
        if options.check and not options.json:
            return show_check(name, passed, message)
        result = {key: self.recorded[key] for key in ("name", "kernel_id")}
        result.update(device=torch.cuda.get_device_name(self.device), moved_bytes=self.moved_bytes())
        result["check"] = {"passed": passed, "message": message} if options.check else None
        result.update(self.measure(self.make_arguments(options.seed)))
        result["with_zeros"] = self.measure_with_zeros()
        show_result(result, options.json)
        return int(options.check and not passed)

    def _tensor_names(self) -> dict[int, str]:
        """The parameters' names by the places of the tensors among the arguments, if these are certain."""
        meta = self.kernel.triton_meta
        constants, signature = meta.get("constants") or {}, meta["signature"]
        pointers = [name for name, kind in signature.items() if str(kind).startswith("*") and name not in constants]
        places = [index for index, item in enumerate(self.launch["arguments"]) if item["kind"] == "tensor"]
        return dict(zip(places, pointers, strict=True)) if len(places) == len(pointers) else {}

    def _zeroed_storages(self) -> list[int]:
        """The storages that must be zero before every call: the flags by which the blocks of a split scan wait.

        Semaphores of cooperative reductions are not among them: their barrier leaves them fit for the next call.
        """
        if self.recorded["category"] != "split_scan":
            return []
        places = [index for index, name in self.names.items() if name.startswith("ws_ptr")]
        return [self.launch["arguments"][index]["tensor"]["storage"] for index in places]

    def _reset_storages(self) -> list[int]:
        """The storages to reset before every timed call: zeroed ones, and whole numbers that are read and written.

        A position that each call moves on would soon point behind the end of what it indexes; a lock or a counter of
        a user's kernel may be left in a state that the next call waits on.
        """
        found, arguments = set(self.zeroed), self.launch["arguments"]
        for index in self.launch.get("mutated") or ():
            view = arguments[index].get("tensor") if index < len(arguments) else None
            name = self.names.get(index, "")
            read = getattr(self.kernel, "custom_kernel", False) or not name or name.startswith("in_")
            if view and view["dtype"] in WHOLE_NUMBERS and read and not name.startswith(SCRATCH):
                found.add(view["storage"])
        return sorted(found)

    def _kept_storages(self) -> list[int]:
        """The storages that a call may both read and write; what Inductor names an output is only written."""
        source = str(getattr(self.kernel.fn, "src", "atomic"))
        written = mutated_storages(self.launch)
        if getattr(self.kernel, "custom_kernel", False) or "atomic" in source or not self.names:
            return written
        views = [(name, self.launch["arguments"][index]["tensor"]["storage"]) for index, name in self.names.items()]
        read = {storage for name, storage in views if not name.startswith("out_ptr")}
        return [storage for storage in written if storage in read]
