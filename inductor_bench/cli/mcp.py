"""The verb ``mcp``: serves the verbs to a coding agent as tools, over the Model Context Protocol on stdio.

What the tools are is in ``mcp_tools``. Each call is a process of its own, ``inductor-bench VERB … --format json``, so
that a job can be interrupted and says what it knows. A tool answers within ``wait_s`` seconds; what takes longer goes
on, and the tool ``job`` tells how far it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import interruption
from ..errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_SLOWER,
    EXIT_TERMINATED,
    EXIT_UNDECIDED,
    JSON_ERRORS,
    InductorBenchError,
    UsageError,
)
from ..launch.process import RunningProcess, list_module_words
from ..records.comparison import SLOWER, UNDECIDED
from ..records.summary import ErrorReport, Summary, ToolAnswer
from ..report.document_summary import (
    MOST_CHARACTERS,
    make_brief_data,
    make_error_report,
    name_schema,
    name_schema_file,
    write_json,
)
from ..store import codec
from ..store.folder import RECORD, RunFolder
from ..version import __version__
from .mcp_tools import (
    ABOUT_JOB,
    ABOUT_KERNEL,
    COMMON,
    JOB,
    MOST_INPUT,
    SHOW_KERNEL,
    TOOLS,
    WAIT_S,
    Permissions,
    Tool,
    describe_tool,
    list_command_words,
    make_input_schema,
    runs_program,
)
from .presentation import PROGRESS

if TYPE_CHECKING:
    from anyio import Event

INSTALL = "pip install 'inductor-bench[mcp]'"

MOST_OUTPUT_BYTES = 64_000_000
"""The largest output of a verb that is read."""

PAGE_CHARACTERS = 6_500
"""Characters of a page, as JSON."""

MOST_OF_ERROR = 1000
"""The most characters of the cause of an error, and of its hint."""

STOP_S = 30.0
"""Seconds for an interrupted job to save and print its results so far."""

MOST_WAIT_S = 86_400.0
"""The longest wait for a job."""

MOST_AT_ONCE = 4
"""The number of jobs that may run at once; only one of them may measure."""

MOST_JOBS = 20
"""The number of jobs that are remembered."""

VERDICTS = {EXIT_OK: "passed", EXIT_SLOWER: SLOWER, EXIT_UNDECIDED: UNDECIDED}

DONE, RUNNING, STOPPED, FAILED = "done", "running", "stopped", "failed"


# A job: a process of a verb, with its output in files.


@dataclass
class ServedJob:
    """A process ``inductor-bench VERB …``."""

    number: int
    tool: Tool
    words: tuple[str, ...]
    given: Mapping[str, Any]
    process: RunningProcess
    folder: Path  # of its output
    ended: Event  # set at its end
    began_s: float = field(default_factory=time.monotonic)
    time_s: float = 0.0  # how long it took, once it has ended
    code: int | None = None  # the exit code, once it has ended
    stopped_s: float | None = None  # when it was interrupted, by the monotonic clock

    def stop(self) -> None:
        """Interrupts it once, as Ctrl-C does."""
        if self.code is None and self.stopped_s is None:
            self.stopped_s = time.monotonic()
            self.process.interrupt(by_us=True)

    @property
    def left_s(self) -> float:
        """Seconds that it may still take to end."""
        return float("inf") if self.stopped_s is None else max(0.0, self.stopped_s + STOP_S - time.monotonic())

    @property
    def takes_s(self) -> float:
        return self.time_s or time.monotonic() - self.began_s

    def progress(self) -> str:
        """The last line of its progress."""
        lines = [line for line in self.text("stderr", 4000).splitlines() if line.strip() and line[0] != "{"]
        return lines[-1][:200] if lines else ""

    def text(self, name: str, last: int = MOST_OUTPUT_BYTES) -> str:
        """Returns its output, or the last bytes of its output."""
        with (self.folder / name).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - last))
            return stream.read(last).decode("utf-8", "replace")

    async def watch(self) -> None:
        """Waits for the job's end. If the wait is cancelled, interrupts the job, and kills it if it does not end."""
        import anyio

        try:
            while self.left_s and not self.process.wait(0):
                await anyio.sleep(min(0.5, 0.02 + self.takes_s / 20))
        finally:
            with anyio.CancelScope(shield=True):
                if not self.process.wait(0):
                    self.stop()
                await anyio.to_thread.run_sync(self._end)
                self.ended.set()

    def _end(self) -> None:
        self.process.wait(min(self.left_s, STOP_S))
        code = self.process.end_family()
        self.time_s = time.monotonic() - self.began_s
        self.code = code if code >= 0 else 128 - code


class Jobs:
    """The processes of a server. They end with it.

    Args:
        permissions: what is allowed.
        program: the words before those of a verb.
    """

    def __init__(self, permissions: Permissions, program: Sequence[str]) -> None:
        self.permissions, self._program = permissions, program
        self._jobs: dict[int, ServedJob] = {}
        self._count = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Jobs]:
        """The context in which jobs can begin. At its end all jobs have ended."""
        import anyio

        with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
            self._folder = Path(name)
            async with anyio.create_task_group() as self._tasks:
                yield self
                self._tasks.cancel_scope.cancel()

    def begin(self, tool: Tool, given: Mapping[str, Any]) -> ServedJob:
        """Starts a job.

        Raises:
            InductorBenchError: it is not allowed, another one measures, or it cannot be started.
        """
        import anyio

        self.permissions.check(tool, given)
        measuring = tool.runs or runs_program(tool, given)
        self._check_load(measuring)
        words = list_command_words(tool, given)
        words[1:1] = self._format(tool, given)
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        try:
            process = self._start(words, folder)
        except ValueError as error:  # a character that no word of a command can hold
            raise UsageError(f"an argument cannot be passed on: {error}", "leave it out", "bad-word") from None
        job = ServedJob(self._count, replace(tool, runs=measuring), tuple(words), given, process, folder, anyio.Event())
        self._jobs[job.number] = job
        for old in [one for one in self._jobs.values() if one.code is not None][:-MOST_JOBS]:
            del self._jobs[old.number]
            shutil.rmtree(old.folder)
        self._tasks.start_soon(job.watch)
        return job

    def _check_load(self, measuring: bool) -> None:
        """Refuses a second job that measures, and an unreasonable number of jobs."""
        running = [one for one in self._jobs.values() if one.code is None]
        other = next((one for one in running if one.tool.runs), None)
        what = ""
        if measuring and other is not None:
            what = f"job {other.number} ({other.tool.name}) is running, and two would disturb each other"
        elif len(running) >= MOST_AT_ONCE:
            what = f"{len(running)} jobs are running"
        if what:
            raise InductorBenchError(what, "wait for it or stop it with the tool job", "busy")

    def _start(self, words: Sequence[str], folder: Path) -> RunningProcess:
        environment = {**os.environ, PROGRESS: "1"}
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            return RunningProcess(
                [*self._program, *words],
                environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self.permissions.root,
                start_new_session=True,
            )

    def _format(self, tool: Tool, given: Mapping[str, Any]) -> list[str]:
        """The options that say what is printed."""
        if tool.verb == "apply" and given.get("command") and not given.get("verify"):
            return []  # stdout is the program's
        if given.get("page") or tool.form != JSON_ERRORS:
            return ["--format", tool.larger or tool.form, *(["--no-plots"] if tool.verb == "report" else [])]
        if tool.verb == "report" and not (self.permissions.root / str(given["folder"]) / RECORD).is_file():
            return ["--no-plots", "--format", "json"]
        return [*(["--brief"] if tool.verb in ("report", "breakdown") else []), "--format", "json"]

    def find(self, number: int | None) -> ServedJob:
        """A job by its number, by default the last one.

        Raises:
            UsageError: there is none.
        """
        job = self._jobs.get(self._count if number is None else number)
        if job is None:
            known = ", ".join(map(str, self._jobs)) or "none"
            raise UsageError(f"there is no job {number or ''}".rstrip(), f"the jobs are: {known}", "no-such-job")
        return job


# Answers.


def make_answer(job: ServedJob, page: int | None = None) -> dict[str, Any]:
    """Makes a tool's answer about a job, of at most :data:`MOST_CHARACTERS` as JSON.

    Args:
        job: the job.
        page: the page of its output to show (from 1), if it is asked for or the output is no JSON.
    """
    line = shlex.join(["inductor-bench", *job.words])
    answer = ToolAnswer(RUNNING, job.number, command=line if len(line) <= 500 else f"{line[:500]}…")
    answer = replace(answer, progress=job.progress(), time_s=round(job.takes_s, 1))
    if job.code is None:
        return make_answer_data(answer)
    printed = job.text("stdout")
    data = _read_json(printed) if job.tool.form == JSON_ERRORS else None
    error = _read_error(data) or _read_error(_read_json(job.text("stderr", 20_000).strip().rpartition("\n")[2]))
    ended = job.code in (EXIT_INTERRUPTED, EXIT_TERMINATED) or job.stopped_s is not None
    decided = job.given.get("fail_above") is not None or (job.tool.verb, job.code) == ("optimize", EXIT_UNDECIDED)
    verdict = VERDICTS.get(job.code, "") if decided else ""
    state = STOPPED if ended else FAILED if error is not None or (job.code and not verdict) else DONE
    answer = replace(answer, state=state, exit_code=job.code, verdict=verdict, error=error, progress="")
    summary = _read_summary(data)
    if page is None and summary is not None:
        return make_answer_data(answer, summary)
    if page is None and (error is not None or not printed):
        return make_answer_data(answer)
    return add_page(answer, printed, page or 1)


def add_page(answer: ToolAnswer, text: str, page: int) -> dict[str, Any]:
    """An answer with a page of a text."""
    found = split_into_pages(text)
    if not 1 <= page <= len(found):
        raise UsageError(f"there is no page {page}", f"there are {len(found)}", "bad-word")
    return make_answer_data(replace(answer, text=found[page - 1], page=page, pages=len(found)))


def split_into_pages(text: str) -> list[str]:
    """Splits a text into pages. A page ends at the end of a line, unless a line is longer than a page."""
    found, room = [""], PAGE_CHARACTERS
    for line in text.splitlines(keepends=True):
        for begin in range(0, len(line), PAGE_CHARACTERS // 6):  # a character takes up to six in JSON
            piece = line[begin : begin + PAGE_CHARACTERS // 6]
            length = len(json.dumps(piece, ensure_ascii=False)) - 2
            if length > room:
                found, room = [*found, ""], PAGE_CHARACTERS
            found[-1] += piece
            room -= length
    return found


def make_answer_data(answer: ToolAnswer, summary: Summary | None = None) -> dict[str, Any]:
    """An answer as data, without keys at their defaults."""
    data = {"schema": name_schema(ToolAnswer), **codec.encode_sparse(answer)}
    if summary is not None:
        room = MOST_CHARACTERS - len(write_json(data, indent=None)) - len(', "summary": ')
        data["summary"] = make_brief_data(summary, room, codec.encode_sparse)
    return data


def make_failed_answer(error: InductorBenchError) -> dict[str, Any]:
    """The answer of a call that began nothing."""
    report = make_error_report(error.id, error.message, error.hint, error.exit_code)
    return make_answer_data(ToolAnswer(FAILED, exit_code=error.exit_code, error=_shorten_error(report)))


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_error(data: Any) -> ErrorReport | None:
    if not isinstance(data, dict) or data.get("schema") != name_schema(ErrorReport):
        return None
    found: ErrorReport = codec.decode(ErrorReport, {key: value for key, value in data.items() if key != "schema"})
    return _shorten_error(found)


def _shorten_error(error: ErrorReport) -> ErrorReport:
    cut = {name: getattr(error, name)[:MOST_OF_ERROR] for name in ("cause", "hint", "command")}
    return replace(error, **cut)


def _read_summary(data: Any) -> Summary | None:
    if not isinstance(data, dict):
        return None
    held = data if data.get("schema") == name_schema(Summary) else data.get("summary")
    if not isinstance(held, dict):
        return None
    found: Summary = codec.decode(Summary, {key: value for key, value in held.items() if key != "schema"})
    return found


def show_kernel(permissions: Permissions, given: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the tool ``show_kernel``.

    Raises:
        InductorBenchError: there is no such RUN or kernel, or it has no file.
    """
    from ..analysis.findings.finding import join_words
    from ..report.formats import View
    from ..report.run.run_summary import run_summary
    from ..workflows.compare import KernelTexts, OpenedRun

    path, name = permissions.inside(given["run"]), given["kernel"]
    folder = RunFolder(path)
    run = folder.load()
    rows = run_summary(run, View(path, top=sum(len(one.kernels) for one in run.modules))).kernels
    found = next((one for one in rows if name in (one.name, str(one.number))), None)
    if found is None:
        hint = f"its kernels are: {join_words([one.name for one in rows], 10)}"
        raise UsageError(f"{given['run']} has no kernel {name[:200]}", hint, "no-fitting-kernel")
    facts = "".join(f"{key}: {value}\n" for key, value in codec.encode(found).items() if value not in (None, ""))
    file = folder.optional_file(found.file) if found.file else None
    label = next(one.label for one in run.modules if one.slug == found.graph)
    texts = KernelTexts(OpenedRun(str(path), run, folder))
    text = "" if file is None else file.read_text(encoding="utf-8", errors="replace")
    text = text or texts.get((label, found.name)) or "the RUN has no source of this kernel: it is in a library"
    return add_page(ToolAnswer(DONE, exit_code=EXIT_OK), f"{facts}\n{text}", given.get("page") or 1)


# The server.


Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells the client the progress of a call: seconds so far, total seconds if known, and words."""


class Service:
    """Runs the tools of a server.

    Args:
        permissions: what is allowed.
        program: the words before those of a verb, by default this tool's.
    """

    def __init__(self, permissions: Permissions, program: Sequence[str] = ()) -> None:
        self.permissions = permissions
        self.jobs = Jobs(permissions, program or [sys.executable, *list_module_words("inductor_bench")])
        served = [one for one in TOOLS if permissions.allow_run or not one.runs]
        self._tools = {one.name: one for one in TOOLS}
        self.schemas = {one.name: (describe_tool(one), make_input_schema(one)) for one in served}
        self.schemas |= {"show_kernel": (ABOUT_KERNEL, SHOW_KERNEL), "job": (ABOUT_JOB, JOB)}

    async def call(self, name: str, given: Mapping[str, Any], report: Report) -> dict[str, Any]:
        """The answer of a tool. What fails is said in it."""
        import anyio

        try:
            self._check(name, given)
            if name == "show_kernel":
                return await anyio.to_thread.run_sync(show_kernel, self.permissions, given)
            job = self.jobs.find(given.get("job")) if name == "job" else self.jobs.begin(self._tools[name], given)
            if name == "job" and given.get("stop"):
                job.stop()
            await _wait(job, min(MOST_WAIT_S, given.get("wait_s", WAIT_S)), report, is_own=name != "job")
            return make_answer(job, given.get("page"))
        except InductorBenchError as error:
            return make_failed_answer(error)

    def _check(self, name: str, given: Mapping[str, Any]) -> None:
        """Checks the name and the arguments of a call. If the tool is not served, its arguments are checked later."""
        from jsonschema import Draft202012Validator

        if name not in self.schemas and name not in self._tools:
            raise UsageError(f"there is no tool {name[:200]}", f"the tools are: {', '.join(self.schemas)}", "bad-word")
        try:
            length = len(json.dumps(given))
        except RecursionError:
            length = MOST_INPUT + 1
        if length > MOST_INPUT:
            what = f"the arguments have more than {MOST_INPUT:,} characters"
            raise UsageError(what, "give the paths of files, not their texts", "too-large")
        schema = self.schemas[name][1] if name in self.schemas else {}
        for wrong in Draft202012Validator(schema).iter_errors(given):
            where = ".".join(map(str, wrong.path)) or name
            hint = f"the arguments of {name} are: {', '.join(schema['properties'])}"
            raise UsageError(f"{where}: {wrong.message[:300]}", hint, "bad-word")


async def _wait(job: ServedJob, limit_s: float, report: Report, *, is_own: bool) -> None:
    """Waits for a job and tells its progress. If the client cancels the call that has begun it, it is interrupted."""
    import anyio

    said = ""
    try:
        with anyio.move_on_after(limit_s):
            while job.code is None:
                line = job.progress()
                if line != said:
                    said = line
                    await report(round(job.takes_s, 1), None, line)
                with anyio.move_on_after(0.5):
                    await job.ended.wait()
    except anyio.get_cancelled_exc_class():
        if is_own:
            job.stop()
        raise


def make_server(service: Service) -> Any:
    """The server of the SDK with the tools of a service."""
    import mcp_types as types
    from mcp.server import Server

    schema = make_output_schema()
    tools = [
        types.Tool(name=name, description=about, input_schema=arguments, output_schema=schema)
        for name, (about, arguments) in service.schemas.items()
    ]

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> Any:
        data = await service.call(params.name, params.arguments or {}, context.session.report_progress)
        text = data.get("text", "")
        texts = [write_json({key: value for key, value in data.items() if key != "text"}, indent=None), text]
        return types.CallToolResult(
            content=[types.TextContent(text=text) for text in texts if text],
            structured_content=data,
            is_error=data["state"] == FAILED,
        )

    return Server(
        "inductor-bench",
        version=__version__,
        instructions=f"{ABOUT} {COMMON} {'' if service.permissions.allow_run else NO_RUNS}".rstrip(),
        lifespan=lambda _: service.jobs.running(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


ABOUT = (
    "Where the time of a torch.compile'd program goes, and what makes it faster, proven. Begin with breakdown, or with "
    "what_next of a RUN. A saving is proven if the verdict is passed, or if optimize claims it. While the state is "
    "running, call job."
)
NO_RUNS = "This server runs no programs: it was started without --allow-run."


def make_output_schema() -> dict[str, Any]:
    """The published schema of an answer, without the descriptions."""
    text = (
        Path(__file__)
        .parent.parent.joinpath("schemas", f"{name_schema_file(ToolAnswer)}.json")
        .read_text(encoding="utf-8")
    )
    found: dict[str, Any] = _remove_descriptions(json.loads(text))
    return found


def _remove_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_remove_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _remove_descriptions(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


@click.command("mcp")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="The folder of the results: programs start in it, and paths of tools have to stay in it.",
)
@click.option("--allow-run", is_flag=True, help="Run the programs and kernels that a client names.")
def command(root: Path, allow_run: bool) -> int:
    """Serve the verbs to a coding agent as tools, over the Model Context Protocol.

    The client starts the server and communicates through its stdin and stdout. Answers are brief, and have a schema.
    Long jobs report their progress and can be cancelled. If the client ends, all jobs end, too. Without --allow-run it
    only reads results.

    The server does not limit where programs write, and does not move the caches of this tool.
    """
    try:
        import anyio
        import mcp_types  # noqa: F401  # older versions have none
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise InductorBenchError("the server needs the package mcp, from 2.3 on", INSTALL, "missing-package") from None
    server = make_server(Service(Permissions(root.resolve(), allow_run)))

    async def serve() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    try:
        anyio.run(serve)
    except KeyboardInterrupt:
        # The jobs have ended. A thread still waits for stdin, and the interpreter would wait for it.
        os._exit(EXIT_TERMINATED if interruption.was_terminated() else EXIT_INTERRUPTED)
    return EXIT_OK
