"""The program that stands for ``python`` in tests: a fork sees what a separate process would, and ends like one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import forking_python
import psutil
import pytest
from breakdown_runs import environment

PROGRAM = """
import json, os, sys, tempfile
assert "torch._inductor.compile_fx" in sys.modules
import beside
assert sys.orig_argv == [sys.executable, *sys.argv], sys.orig_argv
seen = [sys.argv[1:], sys.path[0], os.getcwd(), tempfile.gettempdir(), os.environ["SAID"], sys.stdin.read()]
os.write(int(sys.argv[1]), json.dumps(seen).encode())
print("before its end", flush=True)
print("why", file=sys.stderr)
END
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_a_fork_has_what_its_starter_gave_and_ends_as_a_process_does(end: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("END", end))
    reads, writes = os.pipe()
    ended = subprocess.run(
        [forking_python.interpreter(), script, str(writes), "-x"],
        cwd=tmp_path,
        env=environment(SAID="it", TMPDIR=tmp_path),
        input="given",
        capture_output=True,
        text=True,
        pass_fds=[writes],
    )
    os.close(writes)
    assert (ended.returncode, ended.stdout) == (code, "before its end\n") and ended.stderr.startswith("why\n")
    with open(reads) as seen:
        folder = str(tmp_path)
        assert json.load(seen) == [[str(writes), "-x"], folder, folder, folder, "it", "given"]


def test_a_fork_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(900)\n")
    words = [forking_python.interpreter(), script]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        fork = psutil.Process(int(waiting.stdout.readline()))
        assert fork.pid != waiting.pid
        waiting.kill()
        fork.wait(600)


def test_what_torch_reads_at_its_import_is_that_of_the_starter(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    config = "import torch._inductor.config as config\nprint(config.max_autotune, config.cpp.enable_kernel_profile)\n"
    script.write_text(config)
    for variables, expected in (
        ({"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}, "True False\n"),
        ({"TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"}, "False True\n"),
        ({}, "False False\n"),
    ):
        ended = forking_python.run([str(script)], **variables)
        assert ended.stdout == expected, ended.stderr
    servers = [path for path in Path(os.environ[forking_python.FOLDER]).iterdir() if path.is_socket()]
    script.write_text("import os, torch\nprint(os.environ['OMP_NUM_THREADS'], torch.get_num_threads())\n")
    ended = forking_python.run([str(script)], OMP_NUM_THREADS="1")
    assert ended.stdout == "1 1\n", ended.stderr
    now = [path for path in Path(os.environ[forking_python.FOLDER]).iterdir() if path.is_socket()]
    assert len(now) <= len(servers) + 1
    assert any(spent > 0 for _, spent in forking_python.costs())


def test_anything_else_runs_in_python_itself() -> None:
    ended = forking_python.run(["-c", "import sys; print('torch' in sys.modules)"])
    assert ended.stdout == "False\n"


@pytest.mark.corner
def test_who_starts_a_process_that_forks_may_be_killed_meanwhile(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import sys\nsys.exit(7)\n")
    words = [forking_python.interpreter(), script]
    variables = with_forks_in(tmp_path)
    with subprocess.Popen(words, env=variables) as first:
        while not (serving := servers(tmp_path)):
            assert first.poll() is None
        first.kill()
    assert subprocess.run(words, env=variables).returncode == 7
    assert servers(tmp_path) == serving
    for server in serving:
        server.kill()


@pytest.mark.corner
def test_who_is_killed_while_asking_ends_nobody_else(tmp_path: Path) -> None:
    """Tests that kill commands at any moment do that, too."""
    script = tmp_path / "program.py"
    script.write_text("import sys\nsys.stdin.read()\nsys.exit(7)\n")
    words = [forking_python.interpreter(), script]
    variables = with_forks_in(tmp_path)
    with subprocess.Popen(words, env=variables, stdin=subprocess.PIPE) as waiting:
        while not (places := [one for one in tmp_path.glob("own-*/*") if one.is_socket() and not one.suffix]):
            assert waiting.poll() is None
        for said in (b"", (1000).to_bytes(8, "big") + b"half"):
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(str(places[0]))
                asking.send(b"\n")
                asking.send(said)
        assert subprocess.run(words, env=variables, stdin=subprocess.DEVNULL).returncode == 7
        waiting.communicate(b"")
        assert waiting.returncode == 7
    for server in servers(tmp_path):
        server.kill()


def with_forks_in(folder: Path) -> dict[str, str]:
    """The variables of programs whose process that forks is started in a folder, for nobody else."""
    variables = environment(OMP_STACKSIZE=folder.name, INDUCTOR_BENCH_TESTS_FORKS=folder / f"own-{os.getpid()}")
    Path(variables["INDUCTOR_BENCH_TESTS_FORKS"]).mkdir()
    return variables


def servers(folder: Path) -> list[psutil.Process]:
    """The processes that fork whose sockets are in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[-2:-1] == ["--serve"] and Path(words[-1]).is_relative_to(folder):
                found.append(process)
    return found
