"""Damaged inputs of ``scripts/fuzz``; and that it sees the faults it looks for.

60 inputs are drawn from the seed in ``INDUCTOR_BENCH_FUZZ_SEED``, which ``.ci/run`` sets; without one they are the same
in each run. As a program this file runs commands with planted faults, and prints what was found: forked from a small
process.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
READ = (
    "record",
    "details",
    "evidence",
    "module",
    "trace",
    "kernels",
    "batch",
    "models",
    "peaks",
    "log",
    "structured",
    "list",
    "newer",
    "renamed",
    "zipped",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_damaged_input_is_the_tools_fault() -> None:
    seed = os.environ.get("INDUCTOR_BENCH_FUZZ_SEED") or "13"
    ended = run("scripts/fuzz.py", "--seed", seed, "--count", "60", "--jobs", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def fail(words: list[str]) -> int:
    import click

    from inductor_bench.cli import main as entry

    def get_command(self: object, context: object, name: str) -> click.Command:
        raise KeyError(name)

    entry.VerbGroup.get_command = get_command  # type: ignore[method-assign,assignment]
    return entry.main(words)


def hang(words: list[str]) -> int:
    signal.pause()
    return 0


def compute(words: list[str]) -> int:
    while True:
        pass


def crash(words: list[str]) -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def shout(words: list[str]) -> int:
    raise ZeroDivisionError


def fall_silent(words: list[str]) -> int:
    return 1


def deface(words: list[str]) -> int:
    with open("../victim/secret.txt", "a") as stream:
        stream.write("x")
    return 0


def take_away(words: list[str]) -> int:
    os.rename("../victim/folder/deep", "out")
    return 0


def litter(words: list[str]) -> int:
    (Path.home() / ".new").touch()
    Path("beside").touch()
    return 0


def leak(words: list[str]) -> int:
    os.mkdir("out")
    shutil.copyfile("../victim/secret.txt", "out/copy")
    return 0


def forget(words: list[str]) -> int:
    path = Path(words[1], "record.json")
    record = json.loads(path.read_text())
    for module in record["modules"]:
        module["wall_time_s"] = module["peak_memory_bytes"] = None
    path.write_text(json.dumps(record))
    return 0


def spoil(words: list[str]) -> int:
    Path(words[1], "record.json").write_text("{}")
    return 0


def steer(words: list[str]) -> int:
    print("\x1b[2J\u200f")
    return 0


def start(words: list[str]) -> int:
    subprocess.run(["true"], check=False)
    return 0


def behave(words: list[str]) -> int:
    Path("out").mkdir()
    Path("out", "kernels.json").write_text("[]")
    return 0


PLANTED: dict[Callable[[list[str]], int], set[str]] = {
    fail: {"exit 3 KeyError"},
    hang: {"hang "},
    compute: {"over the CPU limit "},
    crash: {f"signal {int(signal.SIGSEGV)} "},
    shout: {"traceback ZeroDivisionError"},
    fall_silent: {"exit 1 without a word "},
    deface: {"changed victim changed: victim/secret.txt"},
    take_away: {"changed victim gone: victim/folder/deep", "changed victim gone: victim/folder/deep/note.md"},
    litter: {"outside write new: home/.new", "outside write new: cwd/beside"},
    leak: {"copied victim cwd/out/*"},
    forget: {"lost record wall time", "lost record peak memory"},
    spoil: {"lost record it could be read before"},
    steer: {"steers the terminal prints '\\x1b'"},
    start: {"started a process subprocess.Popen ('true', ['true'])", "traceback PermissionError"},
    behave: set(),
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    ended = run(__file__)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_seen(fault: Callable[[list[str]], int], found: dict[str, list[str]]) -> None:
    seen = set(found[fault.__name__])
    assert PLANTED[fault] <= seen if PLANTED[fault] else not seen


@pytest.mark.corner
@pytest.mark.parametrize("option", [("--count", "2", "--kind", "evidence"), ("--only", "3")])
def test_an_input_is_the_same_again(option: tuple[str, ...], tmp_path: Path) -> None:
    words = ("scripts/fuzz.py", "--seed", "5", *option)
    first, second = run(*words), run(*words)
    told = [[line for line in ended.stdout.splitlines() if " s" not in line] for ended in (first, second)]
    assert told[0] == told[1] and first.returncode == second.returncode


@pytest.mark.parametrize("kind", READ)
def test_an_input_without_damage_is_read(kind: str, found: dict[str, list[str]]) -> None:
    outcomes = found[f"undamaged {kind}"]
    # 1: the observed RUN has no traces of its modules, which its breakdown says; 5: a limit that nothing proves
    allowed = {"evidence": {"0", "1"}, "record": {"0", "5"}}
    assert outcomes and set(outcomes) <= allowed.get(kind, {"0"})


def look_at_planted(folder: Path) -> dict[str, list[str]]:
    """The faults that are found of each planted command, on one input that is enough for it."""
    from fuzzing.campaign import Campaign, run_input
    from fuzzing.fuzz_trial import Limits, Runner
    from fuzzing.inputs import generator, make_input

    breakdown = extraction = None
    for number in itertools.count():
        if breakdown is not None and extraction is not None:
            break
        if generator(2, number)[0] == "details":
            _, made = make_input(2, number, folder / "look", folder / "base")
            shutil.rmtree(folder / "look")
            breakdown = number if made.run else breakdown
            extraction = number if "cwd/out" in made.allowed else extraction
    found = {}
    for command in PLANTED:
        number = breakdown if command in (forget, spoil) else extraction
        limits = Limits(cpu_s=1, wall_s=1.0 if command is hang else 900.0)
        with Runner() as runner:
            faults = run_input(Campaign(2, limits, command=command), folder, number, runner).faults
        found[command.__name__] = [f"{fault.what} {fault.kind}" for fault in faults]
    return found


def look_at_undamaged(folder: Path) -> dict[str, list[str]]:
    """How the commands end on inputs that are as they were recorded; without those that ask for what is not there."""
    from fuzzing import foreign, inputs
    from fuzzing.campaign import Campaign, run_input
    from fuzzing.documents import Document
    from fuzzing.fuzz_trial import Runner

    for name in ("damage_json", "damage_bytes", "damage_text", "damage_packed"):
        setattr(inputs.Desk, name, lambda self, *given: None)
    for name in ("newer", "renamed"):
        setattr(Document, name, Document.written)
    foreign.CHANGES = (foreign.as_it_is,)
    left_out = {"kernel"} if importlib.util.find_spec("duckdb") else {"kernel", "query"}
    found: dict[str, list[str]] = {}
    with Runner() as runner:
        for number in range(1000):
            kind = inputs.generator(2, number)[0]
            outcomes = found.setdefault(f"undamaged {kind}", [])
            if kind in READ and len(outcomes) < 3:
                result = run_input(Campaign(2), folder, number, runner)
                assert not result.faults, result
                outcomes += [result.outcome] * (result.words[0] not in left_out)
    return found


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests" / "support")]
    from fuzzing.campaign import prepare, scratch

    prepare()
    with scratch() as folder:
        print(json.dumps({**look_at_planted(folder), **look_at_undamaged(folder)}))


if __name__ == "__main__":
    main()
