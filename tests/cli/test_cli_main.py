"""The command's entry: help, exit codes, and what a person reads when something goes wrong."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from documented import documented
from jsonschema import Draft202012Validator

import inductor_bench
from inductor_bench.cli import main as entry
from inductor_bench.errors import ERROR_IDS, InductorBenchError, UsageError
from inductor_bench.store.codec import FORMAT
from inductor_bench.store.files import own_folder, write_text

NAMED = ("InductorBenchError", "UsageError", "UnwritableError", "NewerFormatError")
ROOT = Path(__file__).resolve().parent.parent.parent


def plant_verb(monkeypatch: pytest.MonkeyPatch, function: object, options: Sequence[str] = ()) -> None:
    """Puts a verb named ``doctor`` in place that calls ``function``, which gets none of the options."""
    module = types.ModuleType("inductor_bench.cli.doctor")
    parameters = [click.Option([name, "given"], expose_value=False) for name in options]
    module.command = click.Command(  # type: ignore[attr-defined]
        "doctor",
        callback=function,  # type: ignore[arg-type]
        params=parameters,  # type: ignore[arg-type]
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--help"]) == 0
    out = capsys.readouterr().out
    for verb, text in entry.VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(text[:30])}", out, re.MULTILINE)


def test_the_short_help_is_what_the_verb_says() -> None:
    context = click.Context(entry.group)
    for verb, text in entry.VERBS.items():
        command = entry.group.get_command(context, verb)
        assert command is not None and command.name == verb
        assert (command.help or "").startswith(text)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(documented("inductor-bench --version")) == 0
    assert capsys.readouterr().out == f"inductor-bench {inductor_bench.__version__}, record format {FORMAT}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["breakdown"], "TARGET"),
        (["breakdown", "x.py", "--amp", "int8"], "'int8' is not one of"),
        (["breakdown", "x.py", "--repeat", "0"], "--repeat"),
        (["breakdown", "x.py", "--timeout", "0"], "--timeout"),
        (["breakdown", "x.py", "--trace", "nowhere.json"], "nowhere.json"),
        (["breakdown", "x.py", "--frobnicate"], "--frobnicate"),
        (["report", "no/such/run"], "no/such/run"),
        (["measure"], "No such command 'measure'"),
        (["model.py:step"], "inductor-bench breakdown model.py:step"),
    ],
)
def test_usage_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(arguments) == 2
    streams = capsys.readouterr()
    assert said in streams.err and streams.out == ""
    assert "Traceback" not in streams.err


@pytest.mark.parametrize(("kind", "code"), [(InductorBenchError, 1), (UsageError, 2)])
def test_an_expected_failure_is_a_line_and_a_hint(
    kind: type[InductorBenchError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise kind("the model is out", "look behind the door")

    plant_verb(monkeypatch, fail)
    assert entry.main(["doctor"]) == code
    assert capsys.readouterr().err == "Error: the model is out\nHint: look behind the door\n"


@pytest.mark.parametrize(
    ("words", "code", "name", "command"),
    [
        (["report", "no/such/run"], 2, "no-such-folder", ""),
        (["report", "."], 1, "no-record", ""),
        (["compare", "a", "b"], 2, "no-such-target", ""),
        (["compare", "a", "b", "--fail-above", "much"], 2, "bad-word", "inductor-bench compare --help"),
        (["breakdown", "x.py", "--frobnicate"], 2, "bad-word", "inductor-bench breakdown --help"),
        (["frob"], 2, "bad-word", "inductor-bench --help"),
        (["kernel", "missing.py"], 2, "no-such-target", ""),
        (["apply", "--known", "--verify"], 2, "missing-target", "inductor-bench apply --known -- python train.py"),
    ],
)
def test_an_error_is_json_if_the_result_would_be(
    words: list[str],
    code: int,
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main([*words, "--format", "json"]) == entry.main([*words, "--format=json"]) == code
    streams = capsys.readouterr()
    first, second = map(json.loads, streams.err.splitlines())
    assert first == second and [json.loads(line) for line in streams.out.splitlines()] == [first, first]
    assert (first["id"], first["command"], first["exit_code"]) == (name, command, code)
    assert first["cause"] and first["id"] in ERROR_IDS
    Draft202012Validator(inductor_bench.schema(first["schema"])).validate(first)
    assert entry.main(words) == code
    assert first["cause"].splitlines()[0] in " ".join(capsys.readouterr().err.split())


def test_a_bug_is_json_too_and_a_program_that_wants_json_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_verb(monkeypatch, lambda: 1 / 0, ["--format"])
    assert entry.main(["doctor", "--format", "json"]) == 3
    streams = capsys.readouterr()
    error = json.loads(streams.out)
    assert (
        streams.err == streams.out
        and error["id"] == "bug"
        and "ZeroDivisionError" in error["cause"]
        and "Traceback" not in error["hint"]
    )
    assert entry.main(["breakdown", "no.py", "--", "--format", "json"]) == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_the_ids_of_errors_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "agents.md").read_text().partition("| id | what happened |")[2]
    assert re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page, re.MULTILINE) == list(ERROR_IDS.items())
    assert len(set(ERROR_IDS.values())) == len(ERROR_IDS), "two ids mean the same"


def test_each_id_of_an_error_is_given_and_each_that_is_given_has_a_meaning() -> None:
    given = {found for path in (ROOT / "inductor_bench").rglob("*.py") for found in _ids_in(path.read_text())}
    assert given == set(ERROR_IDS)


def _ids_in(text: str) -> Iterator[str]:
    """The ids that a file gives to errors: of a class, in a variable ``name``, or the last word of what is raised."""
    yield from re.findall(r'^    id = "([a-z-]+)"$', text, re.MULTILINE)
    for node in ast.walk(ast.parse(text)) if "Error(" in text or "_fail(" in text else ():
        words: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMED:
            words = [*node.args[2:], *(one.value for one in node.keywords if one.arg == "name")]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_fail":
            words = [node.args[1]]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "name":
            words = [one for one in ast.walk(node.value) if ast.unparse(one).strip("'") in ERROR_IDS]
        words += [part for one in words if isinstance(one, ast.IfExp) for part in (one.body, one.orelse)]
        found = (one.value for one in words if isinstance(one, ast.Constant) and isinstance(one.value, str))
        yield from (one for one in found if one)


def test_a_bug_is_one_line_and_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plant_verb(monkeypatch, lambda: 1 // 0)
    assert entry.main(["doctor"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Error: this is a bug in inductor-bench: ZeroDivisionError: integer division or modulo by zero"
    (log,) = tmp_path.glob("inductor-bench-*.log")
    assert len(lines) == 2 and str(log) in lines[1]
    assert "Traceback" in log.read_text() and "arguments: ['doctor']" in log.read_text()


def test_a_full_disk_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def write() -> None:
        with open("/dev/full", "w") as stream:
            stream.write("x")

    plant_verb(monkeypatch, write)
    assert entry.main(["doctor"]) == 1
    assert "the disk is full" in capsys.readouterr().err


def test_a_full_disk_is_named_by_the_folder_if_the_error_names_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def usage(path: Path) -> types.SimpleNamespace:
        return types.SimpleNamespace(free=0 if path == tmp_path else 1 << 40)

    def write() -> None:
        with open("/dev/full", "w") as stream:
            stream.write("x")

    monkeypatch.setattr("shutil.disk_usage", usage)
    plant_verb(monkeypatch, write, ["-o"])
    assert entry.main(["doctor", "-o", str(tmp_path / "new" / "run")]) == 1
    assert f"No space left on device; no room in {tmp_path}\n" in capsys.readouterr().err


@pytest.mark.parametrize("takes_output", [True, False])
def test_the_hint_of_a_full_disk_names_only_an_option_that_the_verb_has(
    takes_output: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    def write_unnamed() -> None:
        with open("/dev/full", "w") as stream:
            stream.write("x")

    works = (write_unnamed, lambda: write_text(tmp_path / "file" / "page", ""), lambda: own_folder(tmp_path / "file"))
    for work in works:
        plant_verb(monkeypatch, work, ["-o"] if takes_output else [])
        assert entry.main(["doctor"]) == 1
        hint = capsys.readouterr().err.splitlines()[-1]
        assert hint.startswith("Hint: ") and ("-o" in hint) == takes_output


def test_apply_and_kernel_write_where_their_input_lies() -> None:
    outputs = {verb for verb in entry.VERBS if entry._takes_output([verb])}
    assert outputs == {"batch", "breakdown", "compare", "extract", "modes", "optimize"}
    assert not entry._takes_output([]) and not entry._takes_output(["measure"])


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_verb_gives_the_exit_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_verb(monkeypatch, lambda: code)
    assert entry.main(["doctor"]) == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_being_ended_runs_the_clean_up_undisturbed(number: signal.Signals, tmp_path: Path) -> None:
    program = """
import os, sys, time, types, click
from pathlib import Path
from inductor_bench.cli import main as entry
entry.SIGNAL_GAP_S = 600.0
def wait():
    try:
        print("ready", flush=True)
        while True:
            time.sleep(0.1)  # one long sleep would miss a signal that comes just before it
    finally:
        os.kill(os.getpid(), int(sys.argv[2]))  # the same signal comes again
        Path(sys.argv[1]).write_text("cleaned")
module = types.ModuleType("inductor_bench.cli.doctor")
module.command = click.Command("doctor", callback=wait)
sys.modules[module.__name__] = module
sys.exit(entry.main(["doctor"]))
"""
    mark = tmp_path / "mark"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(mark), str(int(number))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    _, errors = child.communicate(timeout=600)
    assert child.returncode == (143 if number == signal.SIGTERM else 130)
    assert mark.read_text() == "cleaned"
    assert "interrupted" in errors and "Traceback" not in errors


def test_ctrl_c_in_a_class_body_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As Python 3.11 tells of one that came while a class of an import was made: in a RuntimeError."""

    def stop() -> None:
        raise RuntimeError("Error calling __set_name__ on 'Field' instance") from KeyboardInterrupt()

    plant_verb(monkeypatch, stop)
    assert entry.main(["doctor"]) == 130
    assert capsys.readouterr().err.strip() == "Error: interrupted"


@pytest.mark.parametrize("terminated", [False, True])
def test_an_interrupted_command_prints_json_on_stdout_whether_or_not_it_has_a_result(
    terminated: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt("interrupted; 2 of 3 are in runs/a")

    def show_and_stop() -> None:
        entry.Console().result('{"schema": "run/1"}')
        stop()

    monkeypatch.setattr(entry.interruption, "was_terminated", lambda: terminated)
    words = ["doctor", "--format", "json", "--api-key", "s3cr3t-and-long"]
    plant_verb(monkeypatch, stop, ["--format", "--api-key"])
    assert entry.main(words) == (143 if terminated else 130)
    streams = capsys.readouterr()
    error = json.loads(streams.out)
    assert streams.out.strip() == streams.err.strip() and error["cause"] == "interrupted; 2 of 3 are in runs/a"
    assert error["id"] == ("terminated" if terminated else "interrupted")
    assert error["command"] == "inductor-bench doctor --format json --api-key '***'"
    plant_verb(monkeypatch, show_and_stop, ["--format"])
    assert entry.main(words[:3]) == (143 if terminated else 130)
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"schema": "run/1"} and json.loads(streams.err)["id"] == error["id"]


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    program = (
        "import sys, types, click\n"
        "from inductor_bench.cli.console import Console\n"
        "from inductor_bench.cli.main import main\n"
        "module = types.ModuleType('inductor_bench.cli.doctor')\n"
        "module.command = click.Command('doctor', callback=lambda: Console().result('line\\n' * 100000))\n"
        "sys.modules[module.__name__] = module\n"
        "sys.exit(main(['doctor']))\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE)
    assert ended.stderr == b""
    assert ended.returncode == 1
