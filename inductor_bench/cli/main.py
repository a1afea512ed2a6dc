"""The entry point of the ``inductor-bench`` command, and the only place that maps failures to exit codes.

A verb's file is imported only when the verb is called, so that ``--help`` is fast. This file therefore imports nothing
that draws or measures.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from .. import interruption
from ..errors import (
    EXIT_BUG,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    FREE_SPACE,
    JSON_ERRORS,
    InductorBenchError,
    UnwritableError,
    UsageError,
)
from ..version import RECORD_FORMAT, __version__
from .console import Console

FULL = ("the disk is full", FREE_SPACE)
ELSEWHERE = "free some space, or copy the folder to a place with space and give that"
"""The hint of :data:`FULL` for verbs without ``-o``, which write into the folder that they read."""

LEAST_ROOM_BYTES = 1 << 20
"""Free bytes below which a file system counts as full."""

BROKEN = ("a file or the output cannot be written", "check that stdout is an open file, pipe or terminal")
MACHINE_ERRORS = {errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EIO: BROKEN, errno.EBADF: BROKEN}
"""Failures of the machine by ``errno``: message and hint."""

VERBS = {
    "breakdown": "Say where the time of a compiled model goes, kernel by kernel.",
    "extract": "Write every kernel as a separate file, with the arguments that it had.",
    "kernel": "Time standalone kernel files, and retune them.",
    "apply": "Put the configs that a RUN's retunes found, and edited kernels, into a program.",
    "batch": "Run breakdown for every model of a list, and rank the kernels by their time in all models.",
    "compare": "Say how much slower B is than A, and why.",
    "modes": "Say which mode of torch.compile is fastest for a program, and when its compilation has paid off.",
    "optimize": "Find the settings that make a program faster, and prove what each of them saves.",
    "report": "Draw an earlier run or batch again from its records.",
    "query": "Query the tables of a batch or a run with SQL.",
    "mcp": "Serve the verbs to a coding agent as tools, over the Model Context Protocol.",
    "doctor": "Check the installation, and measure the peaks of the devices.",
    "completion": "Print the script with which a shell completes commands, options and paths.",
}
"""Each verb's line in ``--help``. Its command is the function ``command`` in the file of the same name."""


class VerbGroup(click.Group):
    """A click group that imports each verb from the file of the same name in this folder."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"{__package__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and ("." in name or ":" in name or os.path.exists(name)):
            ctx.fail(f"{name!r} is no command. Did you mean: inductor-bench breakdown {name}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message=f"%(prog)s %(version)s, record format {RECORD_FORMAT}")
def group() -> None:
    """From a model to where its time goes, in one command.

    \b
    inductor-bench breakdown train.py                    a script, run untouched
    inductor-bench breakdown train.py:factory --training a factory of (module, inputs)
    inductor-bench breakdown timm:mixnet_s --training    a timm model
    inductor-bench batch configs/timm.txt                a whole list of models
    inductor-bench report runs/train-1                   look at it again

    Exit code: 0, 1 if something failed, 2 for a request that cannot be carried out as typed, 3 for a bug in this tool,
    4 for slower and 5 for undecided with --fail-above, 130 after Ctrl-C and 143 after SIGTERM.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code; ``errors`` describes the codes.

    Args:
        arguments: the words without the program's name; ``None`` for the arguments of this process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    Console.has_result = False
    for stream in (sys.stdout, sys.stderr):
        # On an ASCII terminal question marks replace the characters of bars, which would otherwise raise an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        interruption.install_signal_handlers()
        return _run(given)
    finally:
        interruption.restore_signal_handlers()
        _discard_output()


def _run(given: list[str]) -> int:
    try:
        if any("\0" in word for word in given):  # no file name can hold it
            raise UsageError("an argument holds a NUL character", "leave it out", "bad-word")
        code = group.main(given, prog_name="inductor-bench", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except InductorBenchError as error:
        unwritable = isinstance(error, UnwritableError) and not _takes_output(given)
        return _fail(given, error.id, error.message, ELSEWHERE if unwritable else error.hint, error.exit_code)
    except click.ClickException as error:
        return _refuse(given, error)
    except (click.Abort, KeyboardInterrupt) as stop:
        return _stop(given, stop.__cause__ or stop)  # click raises an Abort from the KeyboardInterrupt
    except BrokenPipeError:  # the reader of the output has closed the pipe
        return EXIT_FAILURE
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 raises a RuntimeError from it in a class body
            return _stop(given, error.__cause__)
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            message, hint = MACHINE_ERRORS[error.errno]
            elsewhere = hint == FULL[1] and not _takes_output(given)
            where = "" if error.filename or hint != FULL[1] else _find_full_folders(given)
            name = "disk-full" if hint == FULL[1] else "unwritable"
            return _fail(given, name, f"{message}: {error}{where}", ELSEWHERE if elsewhere else hint, EXIT_FAILURE)
        return _fail(given, "bug", *_report_bug(error, given), EXIT_BUG)


def _stop(given: Sequence[str], stop: BaseException) -> int:
    """Says that the command was stopped. The message of ``stop`` may name the results that are kept."""
    said, again = str(stop) or "interrupted", _repeat_command(given)
    if interruption.was_terminated():
        return _fail(given, "terminated", said, again, EXIT_TERMINATED)
    return _fail(given, "interrupted", said, again, EXIT_INTERRUPTED)


def _fail(given: Sequence[str], name: str, message: str, hint: str, code: int) -> int:
    """Prints an error, as a line of JSON if results are to be JSON, and returns its exit code.

    The line is the last one on stderr, and all that is on stdout if there is no result.
    """
    if not _wants_json(given):
        Console().error(message, hint)
        return code
    from ..report.document_summary import write_error_json

    line = write_error_json(name, message, hint, code)
    Console().error_line(line)
    if not Console.has_result:
        with contextlib.suppress(OSError):  # the reader of the output may be gone
            Console().result(line)
    return code


def _repeat_command(given: Sequence[str]) -> str:
    """The hint for a program whose command was interrupted. A person sees what was typed; secrets are left out."""
    from ..store.redaction import Redaction, list_requested_names

    if not _wants_json(given):
        return ""
    try:
        words = Redaction.find([given], os.environ, list_requested_names(given)).words(given)
    except UsageError:  # it is not known what to leave out
        return ""
    return f"type it again: {shlex.join(['inductor-bench', *words])}"


def _wants_json(given: Sequence[str]) -> bool:
    words = given[: given.index("--")] if "--" in given else given
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(word == f"--format={JSON_ERRORS}" or (word, value) == ("--format", JSON_ERRORS) for word, value in pairs)


def _refuse(given: Sequence[str], error: click.ClickException) -> int:
    """Prints click's error about a word of the command line."""
    if _wants_json(given):
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path} --help" if context is not None else ""
        return _fail(given, "bad-word", error.format_message(), hint, error.exit_code)
    with contextlib.suppress(OSError):  # a failed write to stderr does not change the exit code
        error.show()
    return error.exit_code


def _find_full_folders(given: Sequence[str]) -> str:
    """Names the full folders among the paths of the command line, the current and the temporary folder."""
    named = [Path(word.partition("=")[2] or word).absolute() for word in given if os.sep in word]
    existing = [next((one for one in (path, *path.parents) if one.is_dir()), path) for path in named]
    folders = dict.fromkeys([*existing, Path.cwd(), Path(tempfile.gettempdir())])
    full = []
    for folder in folders:
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < LEAST_ROOM_BYTES:
                full.append(str(folder))
    return f"; no room in {', '.join(full)}" if full else ""


def _takes_output(given: Sequence[str]) -> bool:
    """Whether the verb of a command line has the option ``-o``."""
    command = group.get_command(click.Context(group), given[0]) if given else None
    return command is not None and any("-o" in parameter.opts for parameter in command.params)


def _discard_output() -> None:
    """Discards unwritten output, so that the interpreter raises no error for it at shutdown."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # the stream is closed
            continue


def _report_bug(error: Exception, arguments: list[str]) -> tuple[str, str]:
    """Writes the details of a bug into a file, and returns what to say: a message and a hint."""
    from ..store.redaction import Redaction, list_requested_names

    hidden = Redaction.find([arguments], os.environ, list_requested_names(arguments))
    summary = hidden.text(f"{type(error).__name__}: {error}".splitlines()[0])
    text = "".join(
        [
            f"inductor-bench {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n",
            f"arguments: {list(hidden.words(arguments))}\n\n",
            *map(hidden.text, traceback.format_exception(error)),
        ]
    )
    try:
        handle, path = tempfile.mkstemp(prefix="inductor-bench-", suffix=".log", text=True)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        return f"this is a bug in inductor-bench: {summary}", f"the details are in {path}; please report them"
    except OSError:
        return f"this is a bug in inductor-bench: {summary}", text
