"""Makes the references of standalone files: fingerprints of the outputs of a module's kernels.

The kernels are called with the arguments that their standalone files make, so that a file can check its outputs on any
machine later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.messages.jobs import MakeReferences
from inductor_bench.records.code.details import Details, Reference
from inductor_bench.records.code.launch import Launch
from inductor_bench.source.standalone.harness import arguments as harness
from inductor_bench.source.standalone.harness.comparison import fingerprint
from inductor_bench.store.formats import codec

from ..device.protocol import DeviceRuntime
from ..device.runtimes import runtime_of
from ..device.sharing import load_in_turn
from ..switches import set_switches
from ..upstream import inductor, pinning

Save = Callable[[Details], None]


def make_references(job: MakeReferences, save: Save) -> Details:
    """The references of launches that another process recorded; ``save`` is unused."""
    import torch

    if job.threads:
        torch.set_num_threads(job.threads)
    if job.switches:
        set_switches(job.switches)
    inductor.start_no_compilers()
    module = load_in_turn(Path(job.module))
    pinning.use_configs(vars(module), job.configs)
    return Details(
        references=fingerprint_launches(module, job.launches, job.device),
        recorded_references=fingerprint_launches(module, job.recorded, job.device, job.values_folder),
    )


def fingerprint_launches(
    module: ModuleType, launches: Sequence[Launch], device: str, values_folder: str = "."
) -> tuple[Reference, ...]:
    """Makes each launch once, and takes the fingerprint of its outputs; the references are in the order of launches.

    An illegal access on a GPU ends the whole process, so the caller saves its results before this call.

    Args:
        module: the compiled module.
        launches: the launches.
        device: the type of their device.
        values_folder: the folder of the files of recorded values.
    """
    runtime = runtime_of(device)
    return tuple(_fingerprint(module, launch, runtime, values_folder) for launch in launches)


def _fingerprint(module: ModuleType, launch: Launch, runtime: DeviceRuntime, values_folder: str) -> Reference:
    import torch

    encoded = codec.encode(launch)
    try:
        made = harness.build_arguments(encoded, runtime.device.type, folder=values_folder)
        with torch.no_grad():
            result = _call(module, launch, made)
            runtime.synchronize()
            return Reference(fingerprint(harness.written_tensors(encoded, made, result)))
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Reference(error=first[:200])


def _call(module: ModuleType, launch: Launch, made: harness.Arguments) -> Any:
    if launch.operator:
        return inductor.operator_overload(launch.operator)(*made.args, **made.keywords)
    kernel = getattr(module, launch.kernel)
    if hasattr(kernel, "run"):
        return kernel.run(*made.args, stream=inductor.raw_stream(), **made.keywords)
    return kernel(*made.args)
