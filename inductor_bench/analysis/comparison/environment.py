"""What differs between the environments and the requests of two sides, and what makes them incomparable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import PurePath

from ... import units
from ...devices.table import common_device
from ...records.comparisons.run import EnvironmentDifference
from ...records.model_sources import LIBRARIES
from ...records.run import Environment, Request, Run
from ..costs.step import runs_on_host
from ..findings.phrases import join_words
from ..findings.rules.busy_machine import largest_load
from .pairing import Match
from .sides import Side, SideKernel

_VERSIONS = ("versions.torch", "versions.triton", "device.cuda", "device.driver", "versions.python")
_HOST = ("host.cpu", "host.cpu_count", "host.threads", "host.vector_isa", "platform")
_ACCELERATOR = ("device.accelerator", "device.accelerator_count", "device.cuda", "device.driver")
_MACHINE = ("device.accelerator", "device.accelerator_count", *_HOST)
_REQUEST = ("target", "arguments", "training", "batch_size", "amp", "mode", "dynamic", "seed", "live", "steps", "skip")
_WORDS = {
    "cuda": "CUDA",
    "python": "Python",
    "accelerator": "device",
    "cpu": "CPU",
    "vector_isa": "vector instructions",
}
_LIBRARIES = (
    *("OMP_", "MKL_", "KMP_", "GOMP_", "ATEN_", "ONEDNN_", "DNNL_", "CUDA_", "CUBLAS_", "NVIDIA_", "PYTORCH_"),
    *("HIP_", "ROCR_", "ZE_", "MALLOC_", "LD_"),
)

TORCH, TRITON = "torch", "triton"
"""Names of the differences of their versions."""
INTERPRETER = "interpreter"
"""Name of the difference of what runs the program, where it was changed on purpose."""
_COMPILERS = ("TORCH", "TRITON_", "INDUCTOR_")
_COMPILATION = ("mode", "dynamic")

BUSY = 0.25
"""Share of its running time for which a process waited for a core, from which the machine counts as busy."""
COMMON = 0.1
"""Share of the kernels' time below which programs of different names have too little in common to be compared."""
MOST_PARTS = 0.01
"""Relative difference of a step and the sum of its parts, above which a record is not what the tool wrote."""


def environment_differences(a: Run, b: Run) -> tuple[EnvironmentDifference, ...]:
    """The facts that differ: versions first, then the machine, variables, switches, and what was asked for."""
    rows = [*_environment_rows(a.environment, b.environment), ("TF32", _tf32(a), _tf32(b))]
    rows += [("how it was measured", _methods(a), _methods(b)), ("inductor-bench", a.tool_version, b.tool_version)]
    rows += _request_rows(a.request, b.request)
    return tuple(EnvironmentDifference(name, one, other) for name, one, other in rows if one != other)


def around_kernels(differences: Sequence[EnvironmentDifference], *, on_host: bool) -> tuple[EnvironmentDifference, ...]:
    """The differences that may change the time of a kernel whose code and config stay the same.

    Another torch brings other libraries; another Triton compiles the same code differently.

    Args:
        differences: all differences.
        on_host: whether the kernels run on the host.
    """
    names = {TORCH, *map(_name_of, _HOST if on_host else _ACCELERATOR)} | (set() if on_host else {TRITON})
    return tuple(row for row in differences if row.name in names or _is_variable(row.name))


def around_choices(differences: Iterable[EnvironmentDifference]) -> tuple[EnvironmentDifference, ...]:
    """The differences that may change which config Inductor chooses: its variables, and how the program compiles."""
    return tuple(row for row in differences if row.name in _COMPILATION or row.name.startswith(_COMPILERS))


def _name_of(place: str) -> str:
    """The name of a field of the environment in words."""
    name = place.rpartition(".")[2]
    return _WORDS.get(name, name.replace("_", " "))


def _is_variable(name: str) -> bool:
    """Whether a name is that of a variable that libraries and drivers read when a kernel runs."""
    return name.startswith(_LIBRARIES)


def _environment_rows(a: Environment, b: Environment) -> Iterator[tuple[str, str, str]]:
    for place in (*_VERSIONS, *_MACHINE):
        if any(_text(attrgetter(place)(one)) for one in (a, b)):
            yield _name_of(place), _fact(place, a), _fact(place, b)
    for name in sorted({*a.variables, *b.variables}):
        yield name, a.variables.get(name, ""), b.variables.get(name, "")


def _fact(place: str, environment: Environment) -> str:
    """A fact of the environment in words. A torch that is known was asked, so that what it lacks is not there."""
    text = _text(attrgetter(place)(environment))
    if text:
        return text
    if not environment.versions.torch:
        return "unknown"
    return "not installed" if place == "versions.triton" else "none" if place.startswith("device.") else "unknown"


def _request_rows(a: Request, b: Request) -> Iterator[tuple[str, str, str]]:
    for name in _REQUEST:
        yield name.replace("_", " "), _text(getattr(a, name)), _text(getattr(b, name))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _tf32(run: Run) -> str:
    return join_words(sorted({"on" if module.tf32 else "off" for module in run.modules}))


def _methods(run: Run) -> str:
    return join_words(sorted({module.measurement.method for module in run.modules}))


def why_incomparable(a: Side, b: Side, matches: Sequence[Match]) -> tuple[str, ...]:
    """The reasons why no verdict is given; none for comparable sides."""
    first, second = a.runs[0], b.runs[0]
    return tuple(_reasons(first, second)) or tuple(_nothing_in_common(a, b, matches))


def _reasons(a: Run, b: Run) -> Iterator[str]:
    devices = [common_device(module.device for module in run.modules).type for run in (a, b)]
    if devices[0] != devices[1]:
        yield f"A ran on {devices[0]}, B on {devices[1]}: their kernels are different programs"
    if a.request.kind in LIBRARIES and b.request.kind in LIBRARIES and a.request.target != b.request.target:
        yield f"A is {a.request.target}, B is {b.request.target}: two models"
    elif a.request.batch_size != b.request.batch_size:
        sizes = [_text(run.request.batch_size) or "the default" for run in (a, b)]
        yield f"the batch size of A is {sizes[0]}, that of B {sizes[1]}: a step does not do the same work"
    if None not in (a.request.training, b.request.training) and a.request.training != b.request.training:
        kinds = ["training" if run.request.training else "inference" for run in (a, b)]
        yield f"A is {kinds[0]}, B is {kinds[1]}"


def _nothing_in_common(a: Side, b: Side, matches: Sequence[Match]) -> Iterator[str]:
    if not a.kernels or not b.kernels:
        return
    equal = [match for match in matches if match.equal]
    if equal:
        programs = [PurePath(side.runs[0].request.target).name for side in (a, b)]
        share = max(_share(a, (match.a for match in equal)), _share(b, (match.b for match in equal)))
        if programs[0] != programs[1] and share < COMMON:
            same = f"{units.whole_percent(share)} of their kernels' time at most is in kernels that both have"
            yield f"A is {programs[0]}, B is {programs[1]}, and {same}: two programs"
        return
    families = [{kernel.kernel.family_id for kernel in side.kernels if kernel.kernel.family_id} for side in (a, b)]
    if families[0] & families[1]:
        yield "no kernel of A is in B, but kernels of the same structure with other sizes: their inputs differ in size"
    elif not any(match.a and match.b for match in matches) and a.runs[0].request.target != b.runs[0].request.target:
        yield "A and B have nothing in common: no graph and no kernel of A is in B"


def _share(side: Side, matched: Iterable[Sequence[SideKernel]]) -> float:
    """The share of a side's kernel time in these kernels of it."""
    whole_s = sum(kernel.time_s for kernel in side.kernels)
    return sum(kernel.time_s for kernels in matched for kernel in kernels) / whole_s if whole_s else 0.0


def doubts(side: str, run: Run) -> Iterator[str]:
    """What limits the figures of one run, in words. ``side`` is ``A`` or ``B``."""
    for failure in run.failures[:2]:
        about = f" of {failure.subject}" if failure.subject else ""
        yield f"{side} is not complete: {failure.stage}{about}: {failure.message}"
    program = run.program
    if program is not None and program.parts:
        whole = sum(part.time_s for part in program.parts)
        if abs(whole - program.step_time_s) > MOST_PARTS * program.step_time_s:
            share = units.whole_percent(whole / program.step_time_s) if program.step_time_s else "more than all"
            yield f"the parts of {side}'s step add up to {share} of it: its record was edited"


def busy_share(runs: Iterable[Run]) -> float:
    """The largest share of its time that a process of the runs waited for a core. A GPU works on beside a busy host."""
    return max((_waited_share(run) for run in runs if runs_on_host(run)), default=0.0)


def busy_words(side: str, runs: Sequence[Run]) -> Iterator[str]:
    """Says that the machine was busy during the runs of a side, if it was."""
    share = busy_share(runs)
    if share >= BUSY:
        waited = f"a process waited for a core for {units.whole_percent(share)} of its time"
        yield f"the machine was busy during {side}: {waited}"


def _waited_share(run: Run) -> float:
    """The largest share of its running time for which a measuring process waited for a core, 0 to 1."""
    load = largest_load(run.modules)
    return load.delayed_share if load is not None else 0.0


def same_compiler(runs: Iterable[Run]) -> bool:
    """Whether all runs have one torch, one Triton and one device, all known; a trace alone does not name its torch."""
    read = attrgetter("versions.torch", "versions.triton", "device.accelerator")
    found = {read(run.environment) for run in runs}
    return len(found) == 1 and all(run.environment.versions.torch for run in runs)


def machine_words(run: Run) -> str:
    """The device and the versions in one line."""
    device = common_device(module.device for module in run.modules)
    environment = run.environment
    parts = [device.name_in(environment) or environment.host.cpu]
    versions = (("torch", environment.versions.torch), ("triton", _triton(run)))
    parts += [f"{name} {version}" for name, version in versions if version]
    return " · ".join(part for part in parts if part)


def _triton(run: Run) -> str:
    device = common_device(module.device for module in run.modules)
    return run.environment.versions.triton or "" if device.generates_triton else ""
