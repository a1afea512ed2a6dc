"""Makes the references of standalone files: fingerprints of the outputs of a module's kernels.

The kernels are called with the arguments that their standalone files make, so that a file can check its outputs on any
machine later. A kernel that computes NaNs from normal numbers gets positive ones where these give fewer: a model's
variances are positive, and a square root of a negative number takes longer (NVIDIA H200, batch norm in inference: 192
instead of 110 µs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from ..launches.storage_values import with_positive_values
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
    found = Details(launches=job.launches, recorded=job.recorded)
    return with_references(found, module, job.device, job.values_folder, are_inputs_random=False)


def with_references(
    found: Details, module: ModuleType, device: str, values_folder: str = ".", *, are_inputs_random: bool = True
) -> Details:
    """Makes each launch once, and takes the fingerprint of its outputs. The values of some launches become positive.

    An illegal access on a GPU ends the whole process, so the caller saves its results before this call.

    Args:
        found: the module's launches, and those with recorded values.
        module: the compiled module.
        device: the type of their device.
        values_folder: the folder of the files of recorded values.
        are_inputs_random: whether the module's own harness made the inputs of the launches, and no program.
    """
    runtime = runtime_of(device)
    call = partial(_call_once, module, runtime=runtime, values_folder=values_folder)
    made = [_fingerprint(launch, call, are_inputs_random=are_inputs_random) for launch in found.launches]
    recorded = [_fingerprint(launch, call, are_inputs_random=False) for launch in found.recorded or ()]
    return replace(
        found,
        launches=tuple(launch for launch, _ in made),
        references=tuple(reference for _, reference in made),
        recorded=None if found.recorded is None else tuple(launch for launch, _ in recorded),
        recorded_references=tuple(reference for _, reference in recorded),
    )


def _fingerprint(
    launch: Launch, call: Callable[[Launch], Reference], *, are_inputs_random: bool
) -> tuple[Launch, Reference]:
    """The launch with the values that give fewer NaNs, and its reference."""
    best, reference = launch, call(launch)
    for with_recorded in (False, True) if are_inputs_random else (False,):
        if not _count_nans(reference):
            break
        positive = with_positive_values(launch, with_recorded=with_recorded)
        if positive != launch:
            other = call(positive)
            if other.fingerprint is not None and _count_nans(other) < _count_nans(reference):
                best, reference = positive, other
    return best, reference


def _count_nans(reference: Reference) -> int:
    return sum(tensor.get("nan", 0) for tensor in (reference.fingerprint or {}).get("tensors", ()))


def _call_once(module: ModuleType, launch: Launch, runtime: DeviceRuntime, values_folder: str) -> Reference:
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
