"""The sentences of a comparison, and what differs between the environments of its sides."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import PurePath

from .. import units
from ..devices.table import find_common_device
from ..records.comparison import (
    ADDED,
    CODE,
    CONFIG,
    FASTER,
    KERNEL_CAUSES,
    LIBRARY,
    MERGED,
    NOT_COMPARABLE,
    PRECISION,
    REMOVED,
    REST,
    SAME,
    SLOWER,
    SPLIT,
    UNCHANGED,
    UNDECIDED,
    EnvironmentDifference,
    KernelChange,
    PartChange,
    RunComparison,
    SideSummary,
)
from ..records.request import BreakdownRequest
from ..records.request_fields import LIBRARIES
from ..records.run import COPY, IDLE, SYNCHRONISING, Environment, Run
from .comparison_pairs import Match
from .comparison_sides import Side, SideKernel, has_other_calls
from .findings.doubts import (
    compute_share_of_others,
    find_disturbed_step,
    find_largest_load,
    find_step_load,
    find_worst_load,
)
from .findings.finding import join_words, plural
from .findings.next_commands import NextCommand
from .limits import compute_slowdown, describe_limit, judge_limit
from .roofline import describe_other_work
from .statistics import EFFECT
from .step_costs import runs_on_host

# The differences between the environments and the requests of two sides, and the reasons why sides are not comparable.


_VERSIONS = ("versions.torch", "versions.triton", "device.cuda", "device.driver", "versions.python")
_HOST = ("host.cpu", "host.cpu_count", "host.threads", "host.vector_isa", "platform")
_ACCELERATOR = ("device.accelerator", "device.accelerator_count", "device.cuda", "device.driver")
_MACHINE = ("device.accelerator", "device.accelerator_count", *_HOST)
_REQUEST = (
    *("target", "arguments", "training", "optimizer", "batch_size", "amp", "mode", "dynamic", "seed", "live"),
    *("steps", "skip"),
)
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
"""The names of a difference of torch's version and of Triton's version."""
INTERPRETER, PROGRAM = "interpreter", "program"
"""The names of differences that were made on purpose: how the program runs, and which program it is."""
PROGRAM_FILE = "the program's file"
"""The name of a difference of the contents of the program's file."""
SHOWN_DIGITS = 12
_COMPILERS = ("TORCH", "TRITON_", "INDUCTOR_")
_COMPILATION = ("mode", "dynamic")

NOT_COMPLETE = " is not complete: "
"""In a note, these words stand between the side and the failure in its run."""

BUSY = 0.25
"""Share of its running time for which a process waited for a core, from which the machine counts as busy."""

BUSY_OTHERS = 0.2
"""Share of the cores' time that other processes used, from which the machine counts as busy. Even a process that never
waits for a core is slower then: cores share caches, memory and clocks."""
COMMON = 0.1
"""If programs with different names share less of their kernels' time than this, they are not comparable."""
MOST_PARTS = 0.01
"""If a step and the sum of its parts differ by more than this share, somebody has edited the record."""


def list_environment_differences(a: Run, b: Run) -> tuple[EnvironmentDifference, ...]:
    """Lists the facts that differ: versions first, then the machine, variables, switches, and the request.

    A fact that one side does not know is no difference: an interrupted run may not have asked torch.
    """
    rows = list(_list_environment_rows(a.environment, b.environment))
    if a.modules and b.modules:
        rows.append(("float32 products in", _name_product_types(a), _name_product_types(b)))
        rows.append(("how it was measured", _name_methods(a), _name_methods(b)))
    rows.append(("inductor-bench", a.tool_version, b.tool_version))
    rows += _list_request_rows(a.request, b.request)
    if a.program_sha256 and b.program_sha256:  # older records have none
        one, other = (f"sha256 {run.program_sha256[:SHOWN_DIGITS]}" for run in (a, b))
        rows.append((PROGRAM_FILE, one, other))
    return tuple(EnvironmentDifference(name, one, other) for name, one, other in rows if one != other)


def name_surroundings_of_kernels(
    differences: Sequence[EnvironmentDifference], *, on_host: bool
) -> tuple[EnvironmentDifference, ...]:
    """The differences that may change the time of a kernel whose code and config stay the same.

    Another version of torch brings other libraries; another version of Triton compiles the same code differently.

    Args:
        differences: all differences.
        on_host: whether the kernels run on the host.
    """
    names = {TORCH, *map(name_fact, _HOST if on_host else _ACCELERATOR)} | (set() if on_host else {TRITON})
    return tuple(row for row in differences if row.name in names or row.name.startswith(_LIBRARIES))


def name_surroundings_of_choices(differences: Iterable[EnvironmentDifference]) -> tuple[EnvironmentDifference, ...]:
    """The differences that may change which config Inductor chooses: its variables, and how the program compiles."""
    return tuple(row for row in differences if row.name in _COMPILATION or row.name.startswith(_COMPILERS))


def name_fact(place: str) -> str:
    """The name of a field of the environment in words."""
    name = place.rpartition(".")[2]
    return _WORDS.get(name, name.replace("_", " "))


def _list_environment_rows(a: Environment, b: Environment) -> Iterator[tuple[str, str, str]]:
    for place in (*_VERSIONS, *_MACHINE):
        facts = _read_fact(place, a), _read_fact(place, b)
        if all(facts):
            yield name_fact(place), *facts
    if a.versions.torch and b.versions.torch:  # variables are read with it
        for name in sorted({*a.variables, *b.variables}):
            yield name, a.variables.get(name, ""), b.variables.get(name, "")


def _read_fact(place: str, environment: Environment) -> str:
    """Returns a fact of the environment in words; empty if it is unknown.

    A feature that torch lacks counts as absent.
    """
    value = attrgetter(place)(environment)
    if value or not environment.versions.torch:
        return _format_value(value) if value else ""
    absent = "not installed" if place == "versions.triton" else "none"
    return absent if place == "versions.triton" or place.startswith("device.") else ""


def _list_request_rows(a: BreakdownRequest, b: BreakdownRequest) -> Iterator[tuple[str, str, str]]:
    for name in _REQUEST:
        yield name.replace("_", " "), _format_value(getattr(a, name)), _format_value(getattr(b, name))


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _name_product_types(run: Run) -> str:
    return join_words(sorted({name_type(module.float32_products) for module in run.modules}))


def name_type(dtype: str) -> str:
    """Returns the usual name of an element type: ``TF32``, ``bfloat16``."""
    return "TF32" if dtype == "tf32" else dtype


def _name_methods(run: Run) -> str:
    return join_words(sorted({module.measurement.method for module in run.modules}))


def explain_incomparable(a: Side, b: Side, matches: Sequence[Match], *, are_versions: bool = False) -> tuple[str, ...]:
    """Returns the reasons why no verdict is given; empty for comparable sides.

    ``are_versions`` says that the user gave the sides as two versions of a program, which may have nothing in common.
    """
    found = tuple(list_reasons(a.runs[0], b.runs[0]))
    return found or (() if are_versions else tuple(_explain_nothing_in_common(a, b, matches)))


def list_reasons(a: Run, b: Run) -> Iterator[str]:
    devices = [find_common_device(module.device for module in run.modules).type for run in (a, b)]
    if devices[0] != devices[1]:
        yield f"A ran on {devices[0]}, B on {devices[1]}: their kernels are different programs"
    if a.request.kind in LIBRARIES and b.request.kind in LIBRARIES and a.request.target != b.request.target:
        yield f"A is {a.request.target}, B is {b.request.target}: two models"
    elif a.request.batch_size != b.request.batch_size:
        sizes = [_format_value(run.request.batch_size) or "the default" for run in (a, b)]
        yield f"the batch size is {sizes[0]} in A and {sizes[1]} in B: a step does not do the same work"
    if None not in (a.request.training, b.request.training) and a.request.training != b.request.training:
        kinds = ["training" if run.request.training else "inference" for run in (a, b)]
        yield f"A is {kinds[0]}, B is {kinds[1]}"


def _explain_nothing_in_common(a: Side, b: Side, matches: Sequence[Match]) -> Iterator[str]:
    if not a.kernels or not b.kernels:
        return
    equal = [match for match in matches if match.equal]
    if equal:
        programs = [PurePath(side.runs[0].request.target).name for side in (a, b)]
        share = max(_share(a, (match.a for match in equal)), _share(b, (match.b for match in equal)))
        if programs[0] != programs[1] and share < COMMON:
            same = f"kernels that both have take at most {units.whole_percent(share)} of the kernels' time"
            yield f"A is {programs[0]}, B is {programs[1]}, and {same}: two programs"
        return
    families = [{kernel.kernel.family_id for kernel in side.kernels if kernel.kernel.family_id} for side in (a, b)]
    if families[0] & families[1]:
        yield (
            "B has no kernel of A, but it has kernels of the same structure with other sizes: the inputs of A and B "
            "differ in size"
        )
    elif not any(match.a and match.b for match in matches) and a.runs[0].request.target != b.runs[0].request.target:
        yield "A and B have nothing in common: no graph and no kernel of A is in B"


def _share(side: Side, matched: Iterable[Sequence[SideKernel]]) -> float:
    """Returns the share of these kernels in the time of all kernels of a side."""
    whole_s = sum(kernel.time_s for kernel in side.kernels)
    return sum(kernel.time_s for kernels in matched for kernel in kernels) / whole_s if whole_s else 0.0


def list_doubts(side: str, run: Run) -> Iterator[str]:
    """Yields, in words, what limits the figures of one run. ``side`` is ``A`` or ``B``."""
    for failure in run.failures[:2]:
        about = f" of {failure.subject}" if failure.subject else ""
        yield f"{side}{NOT_COMPLETE}{failure.stage}{about}: {failure.message}"
    program = run.program
    if program is not None and program.parts:
        whole = sum(part.time_s for part in program.parts)
        if abs(whole - program.step_time_s) > MOST_PARTS * program.step_time_s:
            share = units.whole_percent(whole / program.step_time_s) if program.step_time_s else "more than all"
            yield f"the parts of {side}'s step add up to {share} of it: its record was edited"


def compute_waiting_share(runs: Iterable[Run]) -> float:
    """Returns the largest share of its time for which a process of the runs waited for a core.

    For a GPU it is 0, because a GPU keeps working if the host is busy.
    """
    return max((_compute_waited_share(run) for run in runs if runs_on_host(run)), default=0.0)


def describe_busy_machine(side: str, runs: Sequence[Run]) -> Iterator[str]:
    """Says if the machine or the GPU was busy with other work during the runs of a side."""
    for run in runs:
        if run.program is not None and run.program.others is not None:
            yield describe_other_work(run.program.others, f"the steps of {side}")
    share = compute_waiting_share(runs)
    others = max((compute_share_of_others(run) for run in runs), default=0.0)
    if share >= BUSY:
        waited = f"a process waited for a core for {units.whole_percent(share)} of its time"
        yield f"the machine was busy during {side}: {waited}"
    elif others >= BUSY_OTHERS:
        used = f"other processes used {units.whole_percent(others)} of the cores' time while its steps were timed"
        yield f"the machine was busy during {side}: {used}"


def _compute_waited_share(run: Run) -> float:
    """Returns the largest share of its running time for which a measuring process waited for a core, 0 to 1."""
    worst = find_worst_load([find_largest_load(run.modules), find_step_load(run) if find_disturbed_step(run) else None])
    return worst.delayed_share if worst is not None else 0.0


def have_same_compiler(runs: Iterable[Run]) -> bool:
    """Whether all runs have the same known torch, Triton and device. A trace does not name its version of torch."""
    read = attrgetter("versions.torch", "versions.triton", "device.accelerator")
    found = {read(run.environment) for run in runs}
    return len(found) == 1 and all(run.environment.versions.torch for run in runs)


def describe_machine(run: Run) -> str:
    """Returns the device and the versions in one line."""
    device = find_common_device(module.device for module in run.modules)
    environment = run.environment
    parts = [device.name_in(environment) or environment.host.cpu]
    versions = (("torch", environment.versions.torch), ("triton", _name_triton(run)))
    parts += [f"{name} {version}" for name, version in versions if version]
    return " · ".join(part for part in parts if part)


def _name_triton(run: Run) -> str:
    device = find_common_device(module.device for module in run.modules)
    return run.environment.versions.triton or "" if device.generates_triton else ""


# The first lines of a comparison: how large the difference is, why, and how certain; then what to type next.


EXPLAINED = 0.8
"""Parts are named until they explain this share of the difference, at most :data:`MOST_NAMED` parts."""
MOST_NAMED = 3
MOST = 0.5
"""Parts count as most of the difference if they explain more than this share."""

_REWRITTEN = (CODE, SPLIT, MERGED, LIBRARY)


def format_signed(value: float) -> str:
    """A difference in seconds with its sign: ``+0.31 ms``, ``-12.0 µs``."""
    return f"{'-' if value < 0 else '+'}{units.seconds(abs(value))}"


def format_signed_percent(delta: float, base: float) -> str:
    """Returns a difference as a share of ``base``, with its sign."""
    if not base:
        return units.MISSING
    text = units.percent(abs(delta) / base)
    return text if text.startswith("<") else f"{'-' if delta < 0 else '+'}{text}"


def name_part(part: PartChange) -> str:
    """The name of a part: ``changed code``, ``idle: synchronising``, ``aten.sin``."""
    if part.cause in (IDLE, COPY):
        return f"{part.cause}: {part.label}"
    return part.label.replace("::", ".", 1) or part.cause


def write_headline(comparison: RunComparison, limit: float | None = None) -> str:
    """Writes the answer in one or two sentences. If there is a ``limit``, also says whether B keeps it."""
    if limit is not None:
        return f"{write_headline(comparison)} {_describe_limit(comparison, limit)}."
    step = comparison.step
    of = f"a {step.currency}" if step.currency != "iteration" else "an iteration of all graphs"
    times = f"{of} takes {units.seconds(step.a_s)} in A and {units.seconds(step.b_s)} in B"
    change = f"{format_signed(step.delta_s)}, {format_signed_percent(step.delta_s, step.a_s)}"
    if comparison.verdict == NOT_COMPARABLE:
        return f"A and B are not comparable: {'; '.join(comparison.reasons)}. No verdict: {times}."
    if comparison.verdict in (SLOWER, FASTER):
        share = units.percent(abs(step.delta_s) / step.a_s if step.a_s else None)
        return (
            f"B is {share} {comparison.verdict}: {times} ({format_signed(step.delta_s)}, "
            f"{describe_interval(comparison)})."
        )
    if comparison.verdict == SAME:
        return f"B takes as long as A, within {units.whole_percent(EFFECT)}: {times} ({change})."
    change += f", {describe_interval(comparison)}"
    if (step.low_s or 0.0) > 0 or (step.high_s or 0.0) < 0:
        return f"The difference is too small to count: {times} ({change}); less than {units.whole_percent(EFFECT)}."
    if (proof := comparison.proof) is not None:
        counts, took = f"{len(proof.a_steps_s)} and {len(proof.b_steps_s)}", units.duration(proof.process_s)
        hint = "" if proof.failure else f": one takes {took}, so give a longer --budget"
        few = f" {counts} processes are too few{hint}." if step.low_s is None else ""
        return f"Undecided: {times} ({change}).{few}"
    noise = f"±{units.percent(step.noise)}, {step.noise_source}"
    return f"Undecided: {times} ({change}). The noise between runs is {noise}."


def exceeds_limit(comparison: RunComparison, limit: float) -> str:
    """Says why B misses a limit (a share of A's step): ``slower``, ``undecided`` or ``not comparable``; else empty.

    See :func:`inductor_bench.analysis.limits.judge_limit`.
    """
    if comparison.verdict == NOT_COMPARABLE:
        return NOT_COMPARABLE
    if comparison.proof is not None and comparison.proof.difference:
        return UNDECIDED
    return judge_limit(compute_slowdown(comparison.step), limit)


def _describe_limit(comparison: RunComparison, limit: float) -> str:
    if comparison.verdict == NOT_COMPARABLE:
        return f"Limit of {100 * limit:g}%: failed"
    if comparison.proof is not None and comparison.proof.difference:
        return f"Limit of {100 * limit:g}%: undecided, because B computes something else than A"
    return describe_limit(compute_slowdown(comparison.step), limit)


def describe_interval(comparison: RunComparison) -> str:
    """Returns the interval of the step's difference: ``between +0.21 ms and +0.40 ms``."""
    step = comparison.step
    if step.low_s is None or step.high_s is None:
        return "of unknown uncertainty"
    return f"between {format_signed(step.low_s)} and {format_signed(step.high_s)}"


def list_notes(comparison: RunComparison) -> Iterator[str]:
    """Yields the reasons: the parts that explain most of the difference, and the changes of the generated code."""
    named = name_main_parts(comparison)
    if comparison.proof is not None and (rest := _find_rest(comparison)) is not None:
        yield f"The parts do not say where this difference comes from: {rest.detail}."
        named = []
    if comparison.verdict in (SLOWER, FASTER) and named:
        share = sum(part.delta_s for part in named) / comparison.step.delta_s
        lead = "Most of it" if share > MOST else "Its largest parts"
        yield f"{lead}: {join_words([_describe_named_part(part) for part in named])}."
        if named[0].cause == UNCHANGED:
            yield f"Its largest part is in kernels whose code, config and calls are the same: {named[0].detail}."
    if comparison.verdict in (UNDECIDED, SAME):
        sure = [part for part in comparison.parts if part.verdict in (SLOWER, FASTER)]
        if sure:
            yield f"Parts that differ beyond noise: {join_words([_describe_named_part(part) for part in sure])}."
            replaced = [part for part in sure if part.cause in (ADDED, REMOVED)]
            if len(replaced) > 1:
                yield f"New and removed kernels together: {format_signed(sum(part.delta_s for part in replaced))}."
    else:
        sure = named
        opposite = {SLOWER: FASTER, FASTER: SLOWER}.get(comparison.verdict)
        against = [part for part in comparison.parts if part.verdict == opposite]
        if against:
            yield (
                f"In the other direction: {join_words([_describe_named_part(part) for part in against[:MOST_NAMED]])}."
            )
            sure = [*named, *against]
    yield from _describe_waits(comparison)
    calls = [part for part in comparison.parts if has_other_calls(part) and part not in sure]
    if calls:
        numbers = join_words([f"{name_part(part)} {_describe_calls(part)}" for part in calls])
        yield f"Other numbers of calls in the profiled steps: {numbers}."
    if comparison.kernels or comparison.proof is None:
        yield describe_code(comparison)


def _find_rest(comparison: RunComparison) -> PartChange | None:
    """The time that belongs to no part, if it is more than half of the difference of a slower or faster step."""
    if comparison.verdict not in (SLOWER, FASTER):
        return None
    rest = next((part for part in comparison.parts if part.cause == REST), None)
    return rest if rest is not None and abs(rest.delta_s) > abs(comparison.step.delta_s) / 2 else None


def _describe_waits(comparison: RunComparison) -> Iterator[str]:
    """Says where B waits for its device and A does not. After such a wait the device waits for the host."""
    idle = [part for part in comparison.parts if part.cause == IDLE]
    new = next((part for part in idle if part.label == SYNCHRONISING and part.detail and not part.a_s), None)
    if new is not None and any(part.verdict == SLOWER for part in idle):
        place = new.detail.partition("in B ")[2]
        more = format_signed(sum(part.delta_s for part in idle))
        after = f"After this wait the device waits for the host's next launches: idle {more} in all."
        yield f"B waits for the device {place}. {after}"


def _describe_calls(part: PartChange) -> str:
    return f"{units.count(part.a_calls)} → {units.count(part.b_calls)}"


def name_main_parts(comparison: RunComparison) -> list[PartChange]:
    """Returns up to :data:`MOST_NAMED` of the largest parts that explain most of the difference and have its sign."""
    delta = comparison.step.delta_s
    found: list[PartChange] = []
    for part in comparison.parts:
        if sum(one.delta_s for one in found) / delta >= EXPLAINED if delta else True:
            break
        if part.delta_s * delta > 0 and part.cause != REST and len(found) < MOST_NAMED:
            found.append(part)
    return found


def _describe_named_part(part: PartChange) -> str:
    if part.cause in (ADDED, REMOVED):
        return f"{plural(part.kernels, part.cause)} {format_signed(part.delta_s)}"
    count = f" of {plural(part.kernels, 'kernel')}" if part.kernels and part.cause in KERNEL_CAUSES else ""
    detail = f" ({part.detail})" if part.detail and part.cause != UNCHANGED else ""
    return f"{name_part(part)}{count} {format_signed(part.delta_s)}{detail}"


def describe_code(comparison: RunComparison) -> str:
    """Says what changed in the kernels:

    ``All 40 kernels have the same code in both; 3 have another config, +0.6 ms: …``
    """
    kernels = comparison.kernels
    if not kernels:
        return "No kernel of either side is known."
    changed = [change for change in kernels if is_rewritten(change)]
    whole = sum(len(change.b) for change in kernels)
    other, gone = sum(len(change.b) for change in changed), sum(not change.b for change in changed)
    libraries = sum(side.operator is not None for change in kernels for side in change.b)
    if changed and not other:
        code = f"{plural(whole, 'kernel')} of B {'has' if whole == 1 else 'have'} the same code in A, and {gone} of A "
        code += f"{'has' if gone == 1 else 'have'} no counterpart"
    elif changed:
        differ = "differs" if other == 1 else "differ"
        code = f"{other} of the {plural(whole, 'kernel')} of B {differ} from those in A"
        code += f", and {gone} of A {'has' if gone == 1 else 'have'} no counterpart" if gone else ""
    elif libraries and not _is_of_one_torch(comparison):
        code = f"{plural(libraries, 'kernel')} of libraries {'has' if libraries == 1 else 'have'} the same name, and "
        code += "another torch may bring other code"
        generated = plural(whole - libraries, "generated kernel")
        code = (
            f"{_say_all_have(whole - libraries, generated)} the same code in both; {code}"
            if whole > libraries
            else code
        )
    else:
        code = f"{_say_all_have(whole, plural(whole, 'kernel'))} the same code in both"
    configs = [change for change in kernels if CONFIG in change.seconds]
    if configs:
        luck = format_signed(sum(change.seconds[CONFIG] for change in configs))
        have = "has" if len(configs) == 1 else "have"
        names = [row.name for row in name_surroundings_of_choices(comparison.environment_differences)]
        why = f"changed by {join_words(names)}, or by chance" if names else "which varies by chance"
        return f"{code}; {len(configs)} {have} another config, {luck}: the autotuner's choice, {why}."
    equal = (change for change in kernels if not is_rewritten(change))
    known = [found for change in equal if any(found := [bool(side.configs) for side in (*change.a, *change.b)])]
    if not known:
        return f"{code}."
    return f"{code}, and no {'config' if all(map(all, known)) else 'known config'} differs."


def is_rewritten(change: KernelChange) -> bool:
    """Whether B runs other kernels than A for the same work, or only one side does the work."""
    if not change.a or not change.b or change.cause in _REWRITTEN:
        return True
    return change.cause == PRECISION and {side.name for side in change.a} != {side.name for side in change.b}


def list_next_commands(comparison: RunComparison) -> list[NextCommand]:
    """Lists the commands to type next, the most useful first.

    Paths are as the user gave them. There is no command for a RUN in a zip file.
    """
    found: list[NextCommand] = []
    if not comparison.comparable:
        return found
    code, config = _find_largest(comparison, CODE), _find_largest(comparison, CONFIG)
    python = _name_other_python(comparison)
    if code is not None and python is not None and _is_folder(comparison.a.name) and _is_folder(comparison.b.name):
        files = (
            _find_kernel_file(comparison.a.name, code.a[0].file),
            _find_kernel_file(comparison.b.name, code.b[0].file),
        )
        found.append(
            NextCommand(
                f"inductor-bench kernel {files[0]} --compare {files[1]}{python}",
                "measures both versions of the kernel in turn, as they are and in the same config",
            )
        )
    if config is not None and _is_folder(comparison.b.name):
        found.append(
            NextCommand(
                f"inductor-bench kernel {_find_kernel_file(comparison.b.name, config.b[0].file)} --autotune",
                "measures both configs side by side, which the two runs could not do",
            )
        )
    return found


def _name_other_python(comparison: RunComparison) -> str | None:
    """Returns the option for B's interpreter.

    It is empty if one torch runs both sides, and ``None`` if it is not known.
    """
    differences = {row.name: row for row in comparison.environment_differences}
    if INTERPRETER in differences:
        return f" --other-python {shlex.quote(differences[INTERPRETER].b)}"
    return "" if _is_of_one_torch(comparison) else None


def _is_of_one_torch(comparison: RunComparison) -> bool:
    """Whether both sides are known to run one torch."""
    return all(map(knows_torch, (comparison.a, comparison.b))) and all(
        row.name != TORCH for row in comparison.environment_differences
    )


def knows_torch(side: SideSummary) -> bool:
    """Whether the records of a side name the torch that ran them. Then they also have the machine and the variables."""
    return f"{TORCH} " in side.machine


def _is_folder(name: str) -> bool:
    return not name.endswith((".zip", ".json"))


def _find_largest(comparison: RunComparison, cause: str) -> KernelChange | None:
    """Returns the largest change with this cause for which both kernels have a file."""
    for change in comparison.kernels:
        if change.cause == cause and change.a and change.b and change.a[0].file and change.b[0].file:
            return change
    return None


def _say_all_have(number: int, words: str) -> str:
    return f"The only {words.removeprefix('1 ')} has" if number == 1 else f"All {words} have"


def _find_kernel_file(folder: str, file: str | None) -> str:
    return shlex.quote(f"{folder}/{file}")
