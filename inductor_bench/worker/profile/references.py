"""What the kernels of a module write when they are called with the arguments that their standalone files make: the
reference that such a file compares itself with, wherever it runs later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.messages.jobs import MakeReferences
from inductor_bench.records.code.details import Details
from inductor_bench.records.code.launch import Launch
from inductor_bench.source.standalone.harness import arguments as harness
from inductor_bench.source.standalone.harness.comparison import fingerprint
from inductor_bench.store.formats import codec

from ..device.protocol import DeviceRuntime
from ..device.runtimes import runtime_of
from ..device.sharing import load_in_turn
from ..switches import set_switches
from ..upstream import inductor

Save = Callable[[Details], None]


def make_references(job: MakeReferences, save: Save) -> Details:
    """The references of launches that another process made; it has no part to save."""
    import torch

    if job.threads:
        torch.set_num_threads(job.threads)
    if job.switches:
        set_switches(job.switches)
    module = load_in_turn(Path(job.module))
    return Details(
        references=fingerprint_launches(module, job.launches, job.device),
        recorded_references=fingerprint_launches(module, job.recorded, job.device, job.values_folder),
    )


def fingerprint_launches(
    module: ModuleType, launches: Sequence[Launch], device: str, values_folder: str = "."
) -> tuple[dict[str, Any], ...]:
    """Makes each launch once and says what it wrote. Files of recorded values lie in ``values_folder``.

    An illegal access on a GPU takes the whole process with it: nothing that is still needed may live in it.

    Returns:
        in the order of ``launches``: ``{"fingerprint": …}`` or ``{"error": …}``.
    """
    runtime = runtime_of(device)
    return tuple(_fingerprint(module, codec.encode(launch), runtime, values_folder) for launch in launches)


def _fingerprint(
    module: ModuleType, launch: dict[str, Any], runtime: DeviceRuntime, values_folder: str
) -> dict[str, Any]:
    import torch

    try:
        made = harness.build_arguments(launch, runtime.device.type, folder=values_folder)
        with torch.no_grad():
            result = _call(module, launch, made)
            runtime.synchronize()
            return {"fingerprint": fingerprint(harness.written_tensors(launch, made, result))}
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return {"error": first[:200]}


def _call(module: ModuleType, launch: dict[str, Any], made: harness.Arguments) -> Any:
    if launch["operator"]:
        return inductor.operator_overload(launch["operator"])(*made.args, **made.keywords)
    kernel = getattr(module, launch["kernel"])
    if hasattr(kernel, "run"):
        return kernel.run(*made.args, stream=inductor.raw_stream(), **made.keywords)
    return kernel(*made.args)
