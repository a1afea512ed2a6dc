"""The tools of the MCP server: the commands as tools, their arguments, and the allowed paths and programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..records.request import DEFAULT_BATCH_SIZE
from ..records.request_fields import names_program

RUNS = "It runs programs, and may take minutes."
COMMON = "Paths are relative to the folder of the server, and have to stay in it."


@dataclass(frozen=True)
class Tool:
    """A tool of the MCP server that runs one verb."""

    verb: str
    about: str  # what it is for
    runs: bool = True  # whether it runs programs, kernels or an interpreter
    form: str = "json"  # the format that its verb prints
    larger: str = ""  # the format of whose text ``page`` shows a page; empty if the tool ``job`` shows it
    other_name: str = ""  # its name, if that is not the verb

    @property
    def name(self) -> str:
        return self.other_name or self.verb


TOOLS = (
    Tool(
        "breakdown",
        "Say where the time of a program goes, kernel by kernel, and write a RUN. Give `command`, the words of the "
        "program's command line, or `targets`: a script, FILE.py:FACTORY, timm:NAME.",
    ),
    Tool(
        "report",
        "Say of a RUN what to do next: its step, parts, kernels, findings with the commands that try them. Also of "
        "RUN/optimized, a batch, a comparison of modes.",
        runs=False,
        larger="md",
        other_name="what_next",
    ),
    Tool(
        "query",
        "Query the tables of a RUN or a batch with SQL; the answer is CSV. Without sql: the tables and their columns.",
        runs=False,
        form="csv",
        larger="csv",
    ),
    Tool(
        "compare",
        "Say how much slower B is than A, and why: `targets` are two RUNs, or two programs, which run in turn. With "
        "`fail_above` a verdict.",
        runs=False,
    ),
    Tool(
        "modes",
        "Say which mode of torch.compile and which settings are fastest for a program. Give `command` or `targets`.",
    ),
    Tool(
        "optimize",
        "Find the settings that make a program faster, and prove them. Give `targets`, a RUN, or `command`.",
    ),
    Tool(
        "apply",
        "With `command` and `verify`: prove what the configs of a RUN's retunes save, or with `kernel` what files of "
        "edited kernels save. Without `command`: keep them in RUN/tuned. With RUN/tuned or RUN/optimized and "
        "`command`: run the program with what is kept there.",
    ),
    Tool(
        "kernel",
        "Time kernels, RUN#NAME or files of RUN/kernels, and retune them. With `edit`: write a kernel's source. "
        "Of an edited file: say whether it is right, and with `fail_above` whether it is faster. With `compare` and "
        "`fail_above`: a verdict on another version of the file.",
    ),
)

HIDDEN = frozenset(
    (
        *("format", "brief", "plots", "verbose", "quiet", "bundle"),
        *("redact", "trace", "live", "repeat", "values", "values_limit"),
    )
)
"""Options that a tool does not have: the server decides what is printed, and the last options are for special cases."""

ELSEWHERE = frozenset(("python", "other_python", "sql"))
"""Arguments that are no paths in the folder of the server: an interpreter lies elsewhere."""

ALSO_PATHS = frozenset(("compare",))
"""Options that are paths although click takes them as text."""

OUTPUTS = ("runs", "batches", "modes")
"""The folders that verbs write into if they are given none."""

MOST_INPUT = 50_000
"""The most characters of all arguments of a call."""

WAIT_S = 50.0
"""Seconds after which a call answers although its job goes on: many clients wait a minute."""


# The arguments of a tool: those of its command, as JSON Schema and as words of a command line.


def find_command(verb: str) -> click.Command:
    """The click command of a verb."""
    found: click.Command = import_module(f"{__package__}.{verb}").command
    return found


def describe_tool(tool: Tool) -> str:
    """What an agent reads of a tool."""
    return f"{tool.about} {RUNS if tool.runs else 'It runs nothing.'}"


def list_parameters(tool: Tool) -> dict[str, click.Parameter]:
    """The parameters of a tool's verb: an argument by its name, an option as it is typed, with underscores."""
    found = {_make_key(one): one for one in find_command(tool.verb).params}
    return {name: one for name, one in found.items() if name not in HIDDEN}


def _make_key(one: click.Parameter) -> str:
    name = max(one.opts, key=len) if isinstance(one, click.Option) else str(one.name)
    return name.removeprefix("--").replace("-", "_")


def make_input_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    verb = find_command(tool.verb)
    found = {name: _describe_property(tool, name, one) for name, one in list_parameters(tool).items()}
    if "COMMAND" in " ".join(verb.collect_usage_pieces(click.Context(verb))):
        found["command"] = {"type": "array", "items": {"type": "string"}, "description": _COMMAND}
    needed = [name for name, one in list_parameters(tool).items() if one.required]
    if tool.larger:
        found["page"] = _PAGE
    return _make_object_schema({**found, "wait_s": _WAIT}, needed)


def _describe_property(tool: Tool, name: str, one: click.Parameter) -> dict[str, Any]:
    """The type of an argument, and what it does, in which unit, and by default."""
    kind = _find_json_type(one)
    if one.multiple or one.nargs == -1:
        kind = {"type": "array", "items": kind}
    of_tool = f"{tool.name}.{name}"
    text = _WORDS.get(of_tool) or _WORDS.get(name) or (one.help if isinstance(one, click.Option) else "") or ""
    if isinstance(one, click.Option) and one.multiple and "=" in (one.metavar or ""):
        text = f"{text.removesuffix('.')}: {one.metavar}."
    if "default" not in text and not one.required:
        text += f" [default: {_DEFAULTS.get(of_tool) or _DEFAULTS.get(name) or _write_default(one)}]"
    return {**kind, "description": text}


def _write_default(one: click.Parameter) -> str:
    """The value of a parameter that is not given; a flag is off."""
    if isinstance(one, click.Option) and one.show_default is True:
        return json.dumps(one.default).strip('"')
    return "false" if isinstance(one, click.Option) and one.is_flag else "none"


def _find_json_type(one: click.Parameter) -> dict[str, Any]:
    if isinstance(one, click.Option) and one.is_flag:
        return {"type": "boolean"}
    if isinstance(one.type, click.Choice):
        return {"enum": list(one.type.choices)}
    if isinstance(one.type, click.types.IntParamType):
        least = getattr(one.type, "min", None)
        return {"type": "integer", **({} if least is None else {"minimum": least})}
    return {"type": "number"} if isinstance(one.type, click.types.FloatParamType) else {"type": "string"}


def _make_object_schema(properties: Mapping[str, Any], needed: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(needed),
        "additionalProperties": False,
    }


_COMMAND = "The words of the program's command line. [default: none]"

_PROGRAM = "a script, FILE.py:FACTORY or timm:NAME; not with `command`."

_WORDS = {
    "breakdown.targets": f"A RUN, which is retuned, or a program: {_PROGRAM}",
    "what_next.folder": "The folder of a RUN, a batch, a comparison of modes, or RUN/optimized.",
    "query.folder": "The folder of a RUN or a batch.",
    "query.sql": "A query in DuckDB's SQL; by default the tables and their columns are listed.",
    "training": "true: with a loss and a backward pass; false: without gradients.",
    "modes.with": "One more row for each, with these settings: a name such as cudnn-benchmark, or NAME=VALUE; several "
    "with commas between them. [default: none]",
    "compare.targets": f"Two RUNs or programs, A and B, or one program for both: {_PROGRAM}",
    "modes.targets": f"One program: {_PROGRAM}",
    "optimize.targets": f"A RUN, or one program: {_PROGRAM}",
    "apply.run": "The folder of a RUN, RUN/tuned or RUN/optimized; not with `known`.",
    "kernel.targets": "Files of kernels, folders of them, RUN#NAME, where NAME may be a glob, or one edited file.",
    "kernel.compare": "Another version of the file: both are timed in turn, as they are, and in the same config. Of an "
    "edited file: the RUN#NAME of its original. [default: none]",
    "kernel.check": "true: first compare the outputs of a file with its reference; false: only time it. An edited file "
    "is always checked, and then timed in turn with its original: false is refused for it. [default: true]",
    "fail_above": "Limit of the slowdown in percent, such as 0%: the verdict is passed if the whole interval of the "
    "difference is at most the limit, slower if all of it is above, else undecided; by default there is no verdict.",
}
"""What an argument means, by ``TOOL.ARGUMENT`` or ``ARGUMENT``, if the command line says it in words for people."""

_DEFAULTS = {
    "training": "the factory module's mode; false for a named model",
    "mode": "default",
    "modes.mode": "all",
    "dynamic": "torch decides",
    "batch_size": str(DEFAULT_BATCH_SIZE),
    "steps": "5 to 50",
    "modes.steps": "for 1 s",
    "skip": "wait for that",
    "kernel.timeout": "1 to 10 minutes, by the step",
    "python": "the command's, or that of this tool",
    "compare.python": "that of this tool",
    "compare.runs": "1",
    "kernel.python": "that of this tool",
    "other_python": "that of FILE",
}
"""What holds without an argument, if it is not simply left out."""

_WAIT = {
    "type": "number",
    "minimum": 0,
    "description": f"Answer after this many seconds at the latest; the job goes on. [default: {WAIT_S:g}]",
}
_PAGE = {
    "type": "integer",
    "minimum": 1,
    "description": "A page of the whole result, from 1; by default a short answer.",
}

SHOW_KERNEL = _make_object_schema(
    {
        "run": {"type": "string", "description": "The folder of the RUN."},
        "kernel": {"type": "string", "description": "Its name, or its number in what_next."},
        "page": {**_PAGE, "description": "The page of the text. [default: 1]"},
    },
    ["run", "kernel"],
)
JOB = _make_object_schema(
    {
        "job": {"type": "integer", "description": "The number of the job; by default the last job."},
        "stop": {"type": "boolean", "description": "End it, and answer with what it has measured. [default: false]"},
        "wait_s": _WAIT,
        "page": _PAGE,
    }
)
ABOUT_KERNEL = "Show a kernel of a RUN: its cost in the step, its roof, and its file."
ABOUT_JOB = "Wait for what a tool has begun, end it, or show all that it has printed."


def list_command_words(tool: Tool, given: Mapping[str, Any]) -> list[str]:
    """The words of the command line for the arguments of a call.

    Raises:
        UsageError: a positional argument would be taken for an option.
    """
    positional: list[str] = []
    options: list[str] = []
    for name, one in list_parameters(tool).items():
        value = given.get(name)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        if isinstance(one, click.Option):
            options += [_write_option(one, each) for each in values if each is not False or one.secondary_opts]
        elif any(str(each).startswith("-") for each in values):
            raise UsageError(f"{name} begins with -, as an option does", "options are arguments by name", "bad-word")
        else:
            positional += map(str, values)
    return [tool.verb, *options, *positional, *(["--", *given["command"]] if given.get("command") else [])]


def _write_option(one: click.Option, value: Any) -> str:
    name = max(one.opts, key=len)
    if one.is_flag:
        return name if value else max(one.secondary_opts, key=len)
    return f"{name}={value}"


# Which paths a call may name, and whether it may run programs.


@dataclass(frozen=True)
class Permissions:
    """What the person who starts the server allows."""

    root: Path  # the folder of all results, resolved
    allow_run: bool = False  # whether programs are run

    def check(self, tool: Tool, given: Mapping[str, Any]) -> None:
        """Checks a call.

        Raises:
            UsageError: it leads out of the folder, or runs a program that may not be run.
        """
        if (tool.runs or runs_program(tool, given)) and not self.allow_run:
            raise UsageError(f"{tool.name} runs programs, but this server may not run any", START, "not-allowed")
        for name, one in list_parameters(tool).items():
            is_path = isinstance(one, click.Argument) or isinstance(one.type, click.Path) or name in ALSO_PATHS
            if is_path and name not in ELSEWHERE and given.get(name) is not None:
                for value in given[name] if isinstance(given[name], list) else [given[name]]:
                    self.inside(str(value))
        for name in OUTPUTS:
            self.inside(name)

    def inside(self, text: str) -> Path:
        """The path in the folder of the server. ``RUN#KERNEL`` and ``FILE:FUNCTION`` are paths up to the mark, too.

        Raises:
            UsageError: it leads out of the folder.
        """
        path = self.root
        for name in (text.partition("#")[0], text.rpartition(":")[0], text):
            try:
                path = (self.root / name).resolve()
            except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a NUL character
                path = Path("/")
            if path != self.root and self.root not in path.parents:
                raise UsageError(f"{text[:200]} is outside of the folder of this server", COMMON, "outside-root")
        return path


START = "the person who starts the server allows it with --allow-run"


def runs_program(tool: Tool, given: Mapping[str, Any]) -> bool:
    """Whether a comparison runs programs: it does unless it has two results."""
    targets = given.get("targets") or ()
    return tool.verb == "compare" and (
        bool(given.get("command")) or len(targets) != 2 or any(names_program(str(target)) for target in targets)
    )
