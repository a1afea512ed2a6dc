"""What comes before the command: Ctrl-C while it starts, closed streams, and files that lie where it is typed."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest
import run_builder
from conftest import ROOT

from inductor_bench.__main__ import main
from inductor_bench.launch.process import SAFE_PATH
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.modules.compile_environment import make_observed_environment

SCRIPT = "import sys\nfrom inductor_bench.__main__ import main\nsys.exit(main())\n"
"""The installed command, which lies in a separate folder."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a RUN of an earlier measurement and a program that compiles nothing."""
    folder = RunFolder(tmp_path / "RUN")
    folder.path.mkdir()
    folder.save(run_builder.cpu())
    (tmp_path / "program.py").write_text("print('hello')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "inductor-bench").write_text(SCRIPT)
    return tmp_path


def plant(folder: Path, *names: str, text: str = "") -> None:
    """Modules that say so once they are imported."""
    for name in names:
        (folder / f"{name}.py").write_text(text or f"open({str(folder / 'EXECUTED')!r}, 'a').write({name!r} + ' ')\n")


# Ctrl-C


@pytest.mark.parametrize("words", [["-m", "inductor_bench"], ["bin/inductor-bench"]])
def test_ctrl_c_among_the_imports_ends_it_without_a_word(words: list[str], here: Path) -> None:
    (here / "path").mkdir()
    plant(here / "path", "click", text="import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(here / "path"), str(ROOT)])
    ended = subprocess.run(
        [sys.executable, *words, "--help"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, cwd=here
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")


def our_frames(errors: str) -> list[tuple[str, str]]:
    """The file and the function of each line of ours in a traceback, without those of the import of the entry.

    Until ``main`` begins, Python's own handler of Ctrl-C is in force: an import of the package may change no signal,
    because programs import it too, and the command can run nothing before it is imported. The line ``def main`` stands
    for the moment before its first statement.
    """
    frames = re.findall(r'/inductor_bench/(\S+\.py)", line (\d+), in (\S+)', errors)
    entry = {"__init__.py", "__main__.py", "step_marks.py", "version.py"}
    begin = ("__main__.py", str(main.__code__.co_firstlineno), "main")
    return [
        (file, function)
        for file, line, function in frames
        if (file not in entry or function != "<module>") and (file, line, function) != begin
    ]


def test_ctrl_c_at_any_moment_shows_no_line_of_ours(here: Path) -> None:
    """Python itself, before ``main`` begins, prints where in its start it was."""
    moments = random.Random(13)
    for _ in range(8):
        command = [sys.executable, "bin/inductor-bench", "report", "RUN", "--no-plots"]
        child = subprocess.Popen(command, cwd=here, env=runs.environment(), stdout=-1, stderr=-1, text=True)
        time.sleep(moments.uniform(0, 0.15))
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=600)
        assert our_frames(errors) == [], errors
        assert child.returncode in (0, 1, 130, -signal.SIGINT)


def test_a_line_of_ours_in_a_traceback_is_seen() -> None:
    start = (
        'File "bin/inductor-bench", line 2, in <module>\nFile "/x/inductor_bench/__init__.py", line 8, in <module>\n'
    )
    assert our_frames(start) == []
    assert our_frames(f'File "/x/inductor_bench/__main__.py", line {main.__code__.co_firstlineno}, in main\n') == []
    for file, function in (("__main__.py", "main"), ("cli/main.py", "<module>")):
        assert our_frames(f'{start}File "/x/inductor_bench/{file}", line 15, in {function}\n') == [(file, function)]


def test_ctrl_c_that_is_ignored_stays_so_and_an_import_changes_no_signal() -> None:
    program = (
        "import signal, inductor_bench, inductor_bench.__main__ as entry\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import sys; sys.argv[1:] = ['--version']; entry.main()\n"
        "assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n"
    )
    assert subprocess.run([sys.executable, "-c", program], env=runs.environment(), stdout=-1).returncode == 0


# Streams


REPORT, BREAKDOWN = "report RUN --no-plots", "breakdown program.py --no-plots -o out"


@pytest.mark.parametrize(
    ("words", "closed", "code", "said"),
    [
        ("frobnicate", "<&- >&- 2>&-", 2, ""),  # says so on the other stream
        *((REPORT, closed, 0, "graph") for closed in (">&-", "2>&-", "2>/dev/full")),
        *((BREAKDOWN, closed, 1, "compiled nothing") for closed in ("<&- >&- 2>&-", "2>/dev/full")),
    ],
)
def test_a_closed_stream_changes_no_exit_code(words: str, closed: str, code: int, said: str, here: Path) -> None:
    command = f"exec {sys.executable} -m inductor_bench {words} {closed}"
    environment = runs.environment(**runs.forks())
    ended = subprocess.run(["sh", "-c", command], cwd=here, env=environment, capture_output=True, text=True)
    assert ended.returncode == code
    if not closed.startswith(("<&- >", ">")):
        assert said in ended.stdout
    if "breakdown" in words:
        assert RunFolder(here / "out").load().failures[0].kind == "nothing-compiled"
        assert {path.name for path in (here / "out" / "logs").iterdir()} == {"program.log", "stages.log"}
        assert (here / "out" / "logs" / "program.log").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("words", "output", "said"),
    [
        ("report RUN --no-plots", ">/dev/full", "the disk is full"),
        ("report RUN --no-plots 2>/dev/full", ">/dev/full", ""),
        ("--help", "1</dev/null", "cannot be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_expected_failure(
    words: str, output: str, said: str, here: Path
) -> None:
    command = f"exec {sys.executable} -m inductor_bench {words} {output}"
    ended = subprocess.run(["sh", "-c", command], cwd=here, env=runs.environment(), capture_output=True, text=True)
    assert ended.returncode == 1
    assert "bug" not in ended.stderr and said in ended.stderr
    assert len(ended.stderr.splitlines()) <= 2


@pytest.mark.parametrize("columns", [1, 2, 5, 0])
def test_a_terminal_of_few_columns(columns: int, here: Path) -> None:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 1, columns, 0, 0))
    environment = {name: value for name, value in runs.environment(TERM="xterm").items() if name != "COLUMNS"}
    words = forking_python.forked(runs.command("report", "RUN", "--no-plots"), environment)
    with subprocess.Popen(words, cwd=here, env=environment, stdout=child, stderr=child) as tool:
        os.close(child)
        shown = b""
        try:
            while part := os.read(parent, 65536):
                shown += part
        except OSError:  # the other end is closed
            os.close(parent)
    assert tool.returncode == 0 and len(shown) > 500 and b"Traceback" not in shown


# The current folder

NAMES = ("click", "timm", "torch", "json", "psutil", "rich", "torchvision", "numpy", "inductor_bench")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("doctor --peaks none", None),
        ("kernel kernel.py", 1),
        ("breakdown timm:no_such_model -o out --no-plots", 1),
        ("breakdown programs/factory.py:factory -o out --no-plots", 1),
        ("batch list.txt -o out --no-plots", 1),  # of a script
    ],
)
def test_nothing_is_imported_from_the_current_folder(words: str, code: int | None, here: Path) -> None:
    plant(here, *NAMES)
    (here / "programs").mkdir()
    plant(here / "programs", "beside", text="BESIDE = 'it sees its own folder'\n")
    script = "import beside, os\nprint(beside.BESIDE, os.environ.get('PYTHONSAFEPATH'))\n"
    (here / "programs" / "script.py").write_text(script)
    (here / "programs" / "factory.py").write_text(
        "import beside\ndef factory():\n    print(beside.BESIDE)\n    raise ValueError('that is all')\n"
    )
    (here / "kernel.py").write_text("RECORDED = {}\nraise ValueError('that is all')\n")
    (here / "list.txt").write_text("programs/script.py\n")
    command = [sys.executable, "bin/inductor-bench", *words.split()]
    environment = {name: value for name, value in runs.environment().items() if name != "PYTHONSAFEPATH"}
    ended = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert not (here / "EXECUTED").exists(), (here / "EXECUTED").read_text()
    assert "bug" not in ended.stderr and (code is None or ended.returncode == code), ended.stderr
    if "out" in words and "timm" not in words:
        (log,) = (here / "out").rglob("program.log")
        said = log.read_text()
        assert "it sees its own folder" in said
        assert "batch" not in words or said.endswith(" None\n"), "what a script starts looks where it always did"
    if "timm" in words:
        assert "no_such_model" in ended.stderr


def test_typed_as_a_module_it_imports_nothing_from_there_either(here: Path) -> None:
    plant(here, *(name for name in NAMES if name != "inductor_bench"), "signal", "pathlib", "contextlib", "__future__")
    (here / "path").mkdir()
    (here / "path" / "inductor_bench").symlink_to(ROOT / "inductor_bench")
    environment = {**os.environ, "PYTHONPATH": str(here / "path")}
    command = [sys.executable, "-m", "inductor_bench", "report", "RUN", "--no-plots"]
    ended = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not (here / "EXECUTED").exists()


def test_where_the_package_lies_it_is_found() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", "import sys; print(sys.path[0])"]
    assert subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout == "\n"
    words = [sys.executable, "-m", "inductor_bench", "--version"]
    assert subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def test_a_script_keeps_the_users_own_safe_path_and_gets_none(tmp_path: Path) -> None:
    (name,) = SAFE_PATH
    for kind, given, wanted in (("script", {}, None), ("script", {name: "x"}, "x"), ("timm", {}, "1")):
        request = BreakdownRequest("program.py", kind)
        assert make_observed_environment(request, tmp_path, given).get(name) == wanted


def test_an_installed_package_holds_every_file(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    package = ROOT / "inductor_bench"
    kept = shutil.copytree(package, tmp_path / "from" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, kept.parent)
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "to")]
    subprocess.run(build, cwd=kept.parent, check=True, capture_output=True)

    def files(folder: Path) -> set[Path]:
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}

    assert files(tmp_path / "to" / package.name) == files(kept)
