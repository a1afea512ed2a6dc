"""Checks an edited kernel alone: whether it is right, in two workers, and then whether it is faster.

One worker runs the edited kernel. Another one, which never loads it, makes its inputs, runs the original, and judges
what the edited kernel left in memory. Nothing is timed before all checks have passed, and the first checks are made
again afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...analysis.findings.finding import list_program_words
from ...analysis.statistics import summarize
from ...autotune.methods import Order, RaceResult, Times, answer_each, run_race
from ...autotune.tuning_workers import COMPILE_S, LOAD_S
from ...devices.nvidia import NVIDIA
from ...devices.protocol import CPU
from ...devices.table import find_device
from ...errors import InductorBenchError, UsageError
from ...launch.worker import WorkerLostError, WorkerPool, WorkerSession, default_python
from ...messages.kernel_requests import (
    FILL_NAN,
    FILL_PATTERN,
    FILL_STALE,
    INFINITE,
    LARGE,
    NAN,
    NUDGED,
    OTHER,
    RECORDED,
    ROUNDED,
    SMALL,
    ZERO,
    BufferRoles,
    CompiledResources,
    CompileKernel,
    EditCase,
    JudgeCase,
    Judged,
    Load,
    PrepareCase,
    RunCase,
    Sample,
)
from ...records.edit import PASSED, REFUSED, SKIPPED, EditCheck, EditHashes, EditVerdict
from ...records.request import KernelRequest
from ...records.retune import FASTER, UNDECIDED, Resources
from ...records.run import Environment, Peaks
from ...source.edited import KernelEdit, convert_to_float64, digest, read_edit
from ...store import codec
from ...store.caches import save_verdict
from ...store.files import copy_file, read_text, write_text
from ...store.folder import RECORD, RunFolder
from ...version import __version__
from ..modules.module_measurements import SUFFIX
from ..progress import Progress, Silent
from .edit_evidence import (
    EditRefusedError,
    check_clock,
    check_texts,
    count_compulsory_bytes,
    doubt_minimum,
    find_buffer_roles,
    find_roof,
    make_float64_texts,
    require_below_roof,
)
from .edit_files import make_edit
from .kernel_comparison import plan_pairs
from .kernel_session import KernelSession, make_kernel_environment
from .kernel_timing import MEASURE_S, find_doubt, find_peaks, name_device

CASE_S = 60.0
"""Limit in seconds for one call of an edited kernel, with the copies of its memory."""

FIRST_CASES = (
    (RECORDED, FILL_NAN),
    (NUDGED, FILL_STALE),
    (OTHER, FILL_STALE),
    (ROUNDED, FILL_PATTERN),
    (LARGE, FILL_NAN),
    (SMALL, FILL_STALE),
    (ZERO, FILL_NAN),
    (INFINITE, FILL_PATTERN),
    (NAN, FILL_PATTERN),
)
"""The values and fills of the checks with the launch that runs most often; the first is made several times."""

LATER_CASES = ((RECORDED, FILL_NAN), (OTHER, FILL_STALE), (INFINITE, FILL_PATTERN), (NAN, FILL_PATTERN))
"""The values and fills of the checks with each other launch."""

LAST_CASES = ((OTHER, FILL_NAN), (NUDGED, FILL_STALE))
"""The values and fills of the checks after it was timed."""

REPETITIONS = 3

_COMPILED = re.compile(r"/\S+\.cpp:(\d+):\d+: ")

EXACT = 1000
"""The first number, in the worker that judges, of a kernel that computes in float64."""

HINTS = {
    "no-compile": "correct what the compiler names, and check it again",
    "crashed": "it reads or writes outside of its memory, or traps: look at its bounds",
    "hung": f"it had {CASE_S:.0f} s: look for a loop without an end, or give more time with --timeout SECONDS",
    "raised": "correct it, and check it again",
    "not-written": "write every element of each result, for each size",
    "stale": "write every element of each result in each call, for any content of the buffer",
    "outside": "look at the bounds of its stores, and at its masks",
    "input-changed": "write only results; copy what has to be changed",
    "special-values": "infinities and NaN have to be in the same elements as in the original: no fast-math shortcuts",
    "wrong": "compare what it computes with the original, for the values that the check names",
    "precision": "compute in the types of the original, and sum in float32 or wider",
    "not-repeatable": "no atomics on floats, and no races between threads",
    "clock": "leave the clock of its process as it is",
    "above-roof": "it does not do all of the work: look for what it leaves out",
}
"""What to do, by the reason of a refusal."""

WROTE_THE_TOOL = "the file that is edited is written by: inductor-bench kernel RUN#NAME --edit FILE"


@dataclass
class EditUnderCheck:
    """An edit under check, its two workers, and what was found so far."""

    edit: KernelEdit
    session: KernelSession
    folder: Path
    checks: list[EditCheck] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judge: WorkerSession | None = None  # the worker that judges, once it is started
    has_originals: bool = False  # whether that worker has loaded the originals
    has_exact: bool = False  # whether there are kernels that compute the same in float64
    compiled: CompiledResources = field(default_factory=CompiledResources)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    progress: Progress = field(default_factory=Silent)  # is told about each case, and about the rounds of the timing

    def __post_init__(self) -> None:
        self.roles: BufferRoles = find_buffer_roles(self.edit)
        self.seed = secrets.randbits(24)
        self.launches = 0

    def write_files(self) -> None:
        """Writes the standalone files of both kernels for each launch into the scratch folder."""
        values = self.edit.path.with_suffix(SUFFIX)
        if values.is_file():
            copy_file(values, self.folder / ("values" + SUFFIX))
        texts = check_texts(self.edit)
        for number, (original, edited) in enumerate(texts):
            write_text(self._file("original", number), original)
            write_text(self._file("edited", number), edited)
        self.launches = len(texts)
        for number, exact in enumerate(make_float64_texts(self.edit, [original for original, _ in texts])):
            write_text(self._file("exact", number), exact)
        if self.edit.reference:
            write_text(self.folder / "reference.py", convert_to_float64(self.edit.reference))

    def _file(self, which: str, launch: int) -> Path:
        return self.folder / f"{which}_{launch}.py"

    @property
    def reference(self) -> str:
        path = self.folder / "reference.py"
        return str(path) if path.is_file() else ""

    def start_judge(self) -> WorkerSession:
        """Starts the worker that judges, unless it runs already."""
        if self.judge is None or not self.judge.alive:
            self.judge, self.has_originals = self.session.start("judge"), False
        return self.judge

    def get_judge(self) -> WorkerSession:
        """Returns the worker that judges, with the originals loaded. If the last one is lost, it is a new one."""
        judge = self.start_judge()
        if not self.has_originals:
            for number in range(self.launches):
                judge.ask(Load(number, str(self._file("original", number))), LOAD_S)
            for number in range(self.launches if self.has_exact else 0):
                judge.ask(Load(EXACT + number, str(self._file("exact", number))), LOAD_S)
            self.has_originals = True
        return judge

    def close(self) -> None:
        if self.judge is not None:
            self.judge.close()

    # The checks.

    def compile(self) -> None:
        """Loads and compiles the edited kernel, and at the same time a kernel that computes in float64."""
        judge, has_exact = self.get_judge(), self._file("exact", 0).is_file()
        if has_exact:
            judge.ask(Load(EXACT, str(self._file("exact", 0))), LOAD_S)
            judge.post(CompileKernel(EXACT), COMPILE_S)
        try:
            for number in range(self.launches):
                self.session.ask(Load(number, str(self._file("edited", number))), LOAD_S)
                self.compiled = self.session.ask(CompileKernel(number), COMPILE_S)
        except WorkerLostError as lost:
            raise EditRefusedError(
                "hung" if lost.kind == "hung" else "crashed", f"its compiler {lost.message}"
            ) from None
        except InductorBenchError as error:
            raise EditRefusedError("no-compile", _COMPILED.sub(self._place_of, error.message)) from None
        with contextlib.suppress(InductorBenchError, WorkerLostError):  # then the original is what counts
            if has_exact:
                judge.collect()
                for number in range(1, self.launches):
                    judge.ask(Load(EXACT + number, str(self._file("exact", number))), LOAD_S)
                self.has_exact = True

    def _place_of(self, compiled: re.Match[str]) -> str:
        """Returns the line in the edited file for a line of the compiled text; empty if the file has no such line."""
        line, lines = int(compiled[1]), self.edit.source.count("\n") + 1
        return f"line {self.edit.line + line - 1}: " if self.edit.line and line <= lines else ""

    def check_all(self) -> None:
        """Makes all checks that come before the timing."""
        for launch in range(self.launches):
            for place, (values, fill) in enumerate(LATER_CASES if launch else FIRST_CASES):
                self.check_case(launch, EditCase(values, fill, self.seed + place), "first")
                if launch == 0 and place == 0:
                    self._repeat(EditCase(values, FILL_PATTERN, self.seed + place))

    def _repeat(self, other_fill: EditCase) -> None:
        first = self.checks[-1]
        if first.outcome == SKIPPED:
            return
        for _ in range(REPETITIONS - 1):
            self._run_and_judge(0, EditCase(first.values, first.fill, self.seed), "repeated")
        self.check_case(0, other_fill, "repeated")

    def check_case(self, launch: int, case: EditCase, when: str) -> None:
        """Makes one check.

        Raises:
            EditRefusedError: the kernel fails it.
        """
        self.progress.update(_describe(EditCheck(case.values, case.fill, launch, when, ""), self.launches))
        try:
            exact = EXACT + launch if self.has_exact else None
            request = PrepareCase(launch, case, self.roles, str(self.folder / "before"), self.reference, exact)
            self.inputs.append(self.get_judge().ask(request, MEASURE_S))
        except WorkerLostError as lost:
            self._skip(launch, case, when, f"the original {lost.message}")
            return
        except InductorBenchError as error:
            self._skip(launch, case, when, f"the original cannot be run so: {error.message}")
            return
        self._run_and_judge(launch, case, when)

    def _skip(self, launch: int, case: EditCase, when: str, why: str) -> None:
        if launch == 0 and case.values == RECORDED:
            raise InductorBenchError(
                f"the original does not run here, so there is nothing to compare with: {why}",
                "check it where its RUN was measured",
            )
        self.checks.append(EditCheck(case.values, case.fill, launch, when, SKIPPED, why))

    def _run_and_judge(self, launch: int, case: EditCase, when: str) -> None:
        before, after = self.folder / "before", self.folder / "after"
        after.unlink(missing_ok=True)
        try:
            self.session.ask(RunCase(launch, str(before), str(after)), CASE_S)
            judged = self.get_judge().ask(JudgeCase(launch, str(after), when == "repeated"), MEASURE_S)
        except WorkerLostError as lost:
            judged = Judged(lost.kind, "it gave no end" if lost.kind == "hung" else f"its process {lost.message}")
        except InductorBenchError as error:
            judged = Judged("raised", error.message)
        judged = replace(judged, words=self._named(judged))
        outcome = REFUSED if judged.reason else PASSED
        self.checks.append(
            EditCheck(
                case.values,
                case.fill,
                launch,
                when,
                outcome,
                judged.words,
                judged.error,
                judged.original_error,
                judged.limit,
                judged.against,
            )
        )
        if judged.reason:
            raise EditRefusedError(judged.reason, f"{judged.words} ({_describe(self.checks[-1], self.launches)})")

    def _named(self, judged: Judged) -> str:
        """Returns the words of a judgement with the names of the parameters."""
        names = list(self.edit.facts.get("parameters") or ())

        def name(place: int) -> str:
            return str(names[place]) if place < len(names) else f"argument {place}"

        words = re.sub(r"\bargument (\d+)", lambda found: name(int(found[1])), judged.words)
        return words if judged.place is None else f"{name(judged.place)}: {words}"

    # The times.

    def race(self) -> tuple[RaceResult, str]:
        """Times both kernels in turn."""
        numbers, rounds, methods = (self.launches, 0), itertools.count(1), [""]
        self.session.ask(Load(numbers[0], str(self._file("original", 0))), LOAD_S)
        self.session.ask(CompileKernel(numbers[0]), COMPILE_S)

        def sample(order: Order) -> Times:
            self.progress.update(f"round {next(rounds)}")
            state = self.session.request.state
            taken = [self.session.ask(Sample((numbers[place],), state), MEASURE_S) for place in order]
            methods.append(taken[-1].method)
            return [time_s for one in taken for time_s in one.samples_s]

        return answer_each(run_race(2, plan=plan_pairs(self.session.request.proof_s)), sample), methods[-1]


def _describe(check: EditCheck, launches: int) -> str:
    """A check in words."""
    words = {
        RECORDED: "recorded values",
        OTHER: "other values",
        NUDGED: "three elements changed",
        ROUNDED: "rounded values",
        LARGE: "values scaled up",
        SMALL: "values scaled down",
        ZERO: "zeros",
        INFINITE: "infinities among the values",
        NAN: "NaN among the values",
    }
    when = {"repeated": "again", "after": "after it was timed"}.get(check.when, "")
    launch = f"launch {check.launch + 1} of {launches}" if launches > 1 else ""
    return ", ".join(filter(None, (f"with {words[check.values]}", launch, when)))


def run_check(request: KernelRequest, progress: Progress) -> EditVerdict:
    """Checks and times the edited kernel of a file.

    Args:
        request: the request. Its only target is the file; ``other`` may name the kernel of a RUN that was edited. Its
            original, launches and values then count instead of those in the file.
        progress: the listener for stages and output.

    Raises:
        UsageError: the file is none that can be checked, or was made for another torch or device.
        InductorBenchError: the original does not run here.
    """
    refused = [
        name
        for name, given in (
            ("--autotune", request.autotune),
            ("--configs", request.configs),
            ("--save", request.save),
            ("--ncu", request.ncu),
            ("--no-check", not request.check),
            ("--other-python", request.other_python),
        )
        if given
    ]
    if refused:
        raise UsageError(f"{refused[0]} is not for the file of an edited kernel", "leave it out", "conflicting-options")
    if len(request.targets) != 1:
        raise UsageError("one edited kernel is checked at a time", "inductor-bench kernel FILE --check", "wrong-target")
    edit = _read(Path(request.targets[0]), request.other)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        folder = Path(name)
        pool = WorkerPool(
            request.python or default_python(), folder, make_kernel_environment(folder), on_line=progress.output
        )
        session = KernelSession(request, pool, progress)
        check = EditUnderCheck(edit, session, folder, progress=progress)
        try:
            check.start_judge()
            session.open()
            require_same(edit, session.environment)
            check.write_files()
            verdict = _check_and_time(check, progress)
            save_verdict(verdict)
            return verdict
        finally:
            check.close()
            session.close()


def _read(path: Path, other: str | None) -> KernelEdit:
    """Returns the edit of a file. If a kernel of a RUN is named, that is its original."""
    edit = read_edit(path)
    if other is None:
        return edit
    made = make_edit(other, path)
    if made.kernel_id != edit.kernel_id:
        raise UsageError(
            f"{path} is an edit of {edit.kernel}, and {other} is another kernel",
            "name the kernel that it was made of",
            "wrong-target",
        )
    if (made.torch, made.triton) != (edit.torch, edit.triton):
        raise UsageError(
            f"{path} was made for torch {edit.torch}, and {other} was compiled by {made.torch}",
            WROTE_THE_TOOL,
            "elsewhere",
        )
    return replace(
        edit,
        original_source=made.original_source,
        original=made.original,
        reference=made.reference,
        facts=made.facts,
    )


def require_same(edit: KernelEdit, environment: Environment) -> None:
    """Checks that the versions and the device are those that an edit was made for.

    Raises:
        UsageError: a version or the device differs.
    """
    versions = environment.versions
    pairs: list[tuple[str, str | None, str | None]] = [("torch", edit.torch, versions.torch)]
    if edit.language == "triton":
        pairs.append(("triton", edit.triton, versions.triton))
        if not environment.device.accelerator:
            raise UsageError(
                f"{edit.kernel} is for a GPU, and torch sees none here", "check it on that machine", "no-such-device"
            )
    pairs.append(("device", edit.device, name_device(_find_device_type(edit), environment)))
    for what, made_for, here in pairs:
        if made_for and here and made_for != here:
            raise UsageError(
                f"{edit.path} was made for {what} {made_for}, and here is {here}",
                "break the program down here, and write the file anew from that RUN",
                "elsewhere",
            )


def _find_device_type(edit: KernelEdit) -> str:
    return NVIDIA.type if edit.language == "triton" else CPU.type


def _check_and_time(check: EditUnderCheck, progress: Progress) -> EditVerdict:
    edit, session = check.edit, check.session
    device = _find_device_type(edit)
    session.find_other_jobs(device)
    peaks: Peaks | None = None
    result, method, refusal, doubt = None, "", None, ""
    try:
        progress.stage(f"compiling {edit.kernel}")
        check.compile()
        progress.stage(f"checking {edit.kernel}")
        check.check_all()
        peaks = session.peaks[device] = find_peaks(device, session)
        progress.stage("timing both in turn")
        try:
            result, method = check.race()
            # for a GPU, no code of a file runs on the host
            if result.verdict == FASTER and find_device(device).runs_on_host:
                doubt = doubt_minimum(result)
                if not doubt:
                    doubt = check_clock(session, (check.launches, 0), MEASURE_S, method)
        except WorkerLostError as lost:
            raise EditRefusedError(lost.kind, f"while it was timed, its process {lost.message}") from None
        progress.stage("checking it again")
        for place, (values, fill) in enumerate(LAST_CASES):
            check.check_case(0, EditCase(values, fill, check.seed + 100 + place), "after")
        original, edited = (summarize(runner.samples).median_s for runner in result.runners)
        require_below_roof(edit, (original, edited), peaks, session.request.state)
    except EditRefusedError as error:
        refusal = error
    if result is not None and doubt:
        result = replace(result, verdict=UNDECIDED)
    busy = find_doubt(method)
    check.notes += [note for note in (doubt, busy and f"{busy}: check it again when it is idle") if note]
    return replace(_make_verdict(check, device, result, method, peaks, refusal), doubt=doubt, request=session.request)


def _make_verdict(
    check: EditUnderCheck,
    device: str,
    result: RaceResult | None,
    method: str,
    peaks: Peaks | None,
    refusal: EditRefusedError | None,
) -> EditVerdict:
    edit, environment = check.edit, check.session.environment
    original, edited = (summarize(runner.samples) for runner in result.runners) if result else (None, None)
    moved = count_compulsory_bytes(edit)
    compiled = check.compiled
    occupancy = find_device(device).theoretical_occupancy(
        environment, _count_warps(edit), compiled.registers, compiled.shared_memory_bytes
    )
    timed = result.verdict if result else REFUSED
    run, program = _find_origin(edit)
    return EditVerdict(
        file=str(edit.path),
        kernel=edit.kernel,
        kernel_id=edit.kernel_id,
        language=edit.language,
        device=name_device(device, environment),
        torch=environment.versions.torch or "",
        triton=environment.versions.triton if edit.language == "triton" else None,
        tool_version=__version__,
        verdict=REFUSED if refusal else timed,
        hashes=EditHashes(
            source=edit.sha256,
            original=edit.original,
            inputs=digest("".join(check.inputs)),
            tool=hash_tool(),
            device=digest(json.dumps(codec.encode([environment.host, environment.device]), sort_keys=True)),
        ),
        changed=edit.changed,
        reason=refusal.reason if refusal else "",
        words=refusal.words if refusal else "",
        hint=HINTS[refusal.reason] if refusal else "",
        checks=tuple(check.checks),
        launches=check.launches,
        state=check.session.request.state,
        original=original,
        edited=edited,
        ratio=result.runners[1].ratio if result else None,
        method=method,
        moved_bytes=moved,
        roof=find_roof(moved, peaks, check.session.request.state),
        resources=Resources(compiled.registers, compiled.spills, compiled.shared_memory_bytes, occupancy),
        notes=tuple(_list_notes(check)),
        run=run,
        program=program,
    )


def _find_origin(edit: KernelEdit) -> tuple[str, str]:
    """Returns the RUN that a file names, and the command line of the RUN's program; empty if the RUN is gone."""
    place = str(edit.facts.get("run") or "")
    with contextlib.suppress(InductorBenchError):
        if place and (Path(place) / RECORD).is_file():
            return place, list_program_words(RunFolder(Path(place)).load().request)
    return "", ""


def _count_warps(edit: KernelEdit) -> int | None:
    config = edit.facts["recorded"].get("config") or {}
    warps = config.get("num_warps")
    return warps if isinstance(warps, int) else None


def _list_notes(check: EditUnderCheck) -> Iterator[str]:
    if not check.edit.changed:
        yield "it is as it was written" if check.edit.calls else "its source is that of the original"
    skipped = [one for one in check.checks if one.outcome == SKIPPED]
    for one in skipped[:3]:
        yield f"not checked {_describe(one, check.launches)}: {one.words}"
    judged = [one.against for one in check.checks if one.against]
    if (unknown := judged.count("original")) > 0:
        which = "" if unknown == len(judged) else f"in {unknown} of {len(judged)} checks "
        yield (
            f"{which}the results in float64 are not known, so the results were compared with the original's; a result "
            "that jumps if the last bits of the inputs change was left out"
        )
    yield from check.notes


def hash_tool() -> str:
    """Returns the SHA-256 of those files of this tool that run, time and judge kernels."""
    package = Path(__file__).resolve().parents[2]
    found = hashlib.sha256()
    for folder in ("worker/bench", "worker/device", "source/harness", "messages"):
        for file in sorted((package / folder).glob("*.py")):
            found.update(f"{folder}{os.sep}{file.name}".encode() + b"\0" + read_text(file).encode())
    return found.hexdigest()
