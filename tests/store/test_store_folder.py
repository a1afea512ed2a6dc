"""Folders that are written: nobody's files are removed or overwritten, and one command writes at a time."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import run_builder

from inductor_bench.errors import InductorBenchError, UnwritableError, UsageError
from inductor_bench.records.request import BreakdownRequest, ModelRequest
from inductor_bench.store import lock as locks
from inductor_bench.store.files import find_file_inside, hash_bytes, own_folder, read_json
from inductor_bench.store.folder import BATCH, OWN_FILES, SEARCH, BatchFolder, RunFolder, make_run_folder
from inductor_bench.store.lock import hold_lock, is_locked
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.query import run_report

RUN = run_builder.cpu()
KERNEL = "def call(): ...\n"


def make(path: Path | None, *, force: bool = True) -> RunFolder:
    with make_run_folder(path, "x", force=force) as (folder, _):
        return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An earlier run with a file of every kind that a run consists of, but the record of a search."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.save(RUN)
    for name, patterns in OWN_FILES.items():
        for pattern in patterns:
            file = folder.path / name / pattern.replace("*", "forward")
            file.parent.mkdir(exist_ok=True)
            if not file.exists() and pattern != SEARCH:
                file.write_text("ours")
    (folder.work / "cache").mkdir(parents=True)
    (folder.path / ".record.json.a1b2c3d4").write_text("half of it")
    folder.kernels.mkdir()
    row = {"name": "k", "kernel_id": "0", "category": "pointwise", "module": "forward", "calls": 1}
    rows = [{**row, "file": f"{name}.py", "sha256": hash_bytes(KERNEL.encode())} for name in ("kept", "edited")]
    (folder.kernels / "kernels.json").write_text(json.dumps(rows))
    for name in ("kept", "edited"):
        (folder.kernels / f"{name}.py").write_text(KERNEL)
    return folder.path


def test_a_run_is_not_replaced_without_force(run: Path) -> None:
    with pytest.raises(UsageError, match="earlier run") as caught:
        make(run, force=False)
    assert "--force" in caught.value.hint
    assert RunFolder(run).load() == RUN


def test_with_force_all_of_a_run_goes(run: Path) -> None:
    make(run)
    assert list(run.iterdir()) == []


def search_in(run: Path, text: str) -> set[str]:
    """Adds a search to a run, and returns the names of what is in its folder."""
    (run / "optimized").mkdir(exist_ok=True)
    (run / "optimized" / SEARCH).write_text(text)
    return {path.name for path in (run / "optimized").iterdir()}


def test_with_force_the_search_of_a_run_stays(run: Path) -> None:
    made = search_in(run, "minutes")
    make(run)
    (kept,) = run.iterdir()
    assert kept.name == "optimized-1" and {path.name for path in kept.iterdir()} == made
    (run / ".lock").touch()  # as if the command was killed before it had a record
    make(run)
    assert list(run.iterdir()) == [kept] and (kept / SEARCH).read_text() == "minutes"


def test_each_search_of_a_run_that_is_replaced_is_kept_and_named(run: Path) -> None:
    for number in (1, 2):
        RunFolder(run).save(RUN)
        search_in(run, f"search {number}")
        said: list[str] = []
        with make_run_folder(run, "x", force=True, tell=said.append):
            assert said == [f"the search of the earlier run is kept: inductor-bench report {run}/optimized-{number}"]
    assert [(run / f"optimized-{n}" / SEARCH).read_text() for n in (1, 2)] == ["search 1", "search 2"]


def test_a_run_whose_settings_are_being_searched_is_not_replaced(run: Path) -> None:
    search_in(run, "half")
    with hold_lock(run / "optimized"), pytest.raises(UsageError, match="a search runs in "):
        make(run)
    assert RunFolder(run).load() == RUN and (run / "optimized" / SEARCH).is_file()


def test_with_force_what_a_killed_run_left_goes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / ".work" / "cache").mkdir(parents=True)
    (run / "traces").mkdir()
    for name in (".lock", ".record.json.a1b2c3d4", ".work/cache/a.py", "traces/host.speedscope.json"):
        (run / name).write_text("")
    make(run)
    assert list(run.iterdir()) == []
    for name in (".lock", "thesis.tex"):
        (run / name).write_text("")
    with pytest.raises(UsageError, match="holds no record"):
        make(run)


def test_with_force_what_is_somebody_elses_stays(run: Path) -> None:
    theirs = ["thesis.tex", "kernels/mine.py", "modules/notes.md", "logs/old.txt", "plots/mine.pdf", "notes/a.txt"]
    for name in theirs:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("important")
    (run / "kernels" / "edited.py").write_text("important")
    make(run)
    left = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert left == sorted([*theirs, "kernels/edited.py"])
    assert {(run / name).read_text() for name in left} == {"important"}


def test_links_in_a_run_are_not_followed(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a.csv").write_text("important")
    for name in ("tables", "kernels"):
        subprocess.run(["rm", "-r", run / name], check=True)
    subprocess.run(["rm", "-r", run / ".work"], check=True)
    for name in ("tables", "kernels", ".work"):
        (run / name).symlink_to(victim)
    (run / "modules" / "linked.py").symlink_to(victim / "a.csv")
    make(run)
    assert (victim / "a.csv").read_text() == "important" and list(run.iterdir()) == []


def beside_a_thesis(path: Path) -> None:
    (path / "thesis.tex").write_text("important")


def with_scratch(path: Path) -> None:
    (path / ".work").mkdir()


def with_another_record(path: Path) -> None:
    (path / "record.json").write_text('{"format": 1, "title": "my records"}')


def with_git(path: Path) -> None:
    RunFolder(path).save(RUN)
    (path / ".git").mkdir()


def with_a_batch(path: Path) -> None:
    RunFolder(path).save(RUN)
    (path / "batch.json").write_text("{}")
    (path / ".work").mkdir()


def from_the_future(path: Path) -> None:
    (path / "record.json").write_text('{"format": 99}')


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (beside_a_thesis, "holds no record.json"),
        (with_scratch, "holds no record.json"),
        (with_another_record, "is missing"),
        (with_git, r"it holds \.git"),
        (with_a_batch, r"it holds batch\.json"),
        (from_the_future, "newer than"),
    ],
)
def test_force_never_touches_what_is_no_run(fill: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("secret")
    fill(home)
    before = {path: path.is_file() and path.read_bytes() for path in home.rglob("*")}
    with pytest.raises(UsageError, match=f"not a run of inductor-bench: .*{reason}"):
        make(home)
    assert {path: path.is_file() and path.read_bytes() for path in home.rglob("*")} == before


@pytest.mark.parametrize("place", ["home", "current", "above", "link"])
def test_force_never_replaces_a_place_of_more(
    place: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "below").mkdir()
    if place == "home":
        monkeypatch.setenv("HOME", str(run))
    elif place != "link":
        monkeypatch.chdir(run if place == "current" else run / "below")
    (tmp_path / "link").symlink_to(run)
    named = {"home": run, "current": Path("."), "above": run, "link": tmp_path / "link"}[place]
    with pytest.raises(UsageError, match="not a run of inductor-bench"):
        make(named)
    assert RunFolder(run).load() == RUN


def test_default_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(2):
        with make_run_folder(None, "model v2/é", force=False) as (folder, _):
            names.append(folder.path.as_posix())
    assert names == ["runs/model-v2-1", "runs/model-v2-2"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_folder_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="cannot create"):
        make(tmp_path / name)


# One command at a time


def test_a_folder_is_written_by_one_command(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(UsageError, match=f"another inductor-bench command is writing .*process {os.getpid()}"):
            make(tmp_path, force=False)
    assert not is_locked(tmp_path) and list(tmp_path.iterdir()) == []


def test_a_live_run_is_not_replaced(run: Path) -> None:
    with hold_lock(run), pytest.raises(UsageError, match=f"process {os.getpid()}"):
        make(run)
    assert RunFolder(run).load() == RUN


def test_who_was_killed_says_what_it_left(tmp_path: Path) -> None:
    mark = "0123456789abcdef" * 4
    (tmp_path / ".lock").write_text(f"999999999 {mark}\n")
    with hold_lock(tmp_path, "f" * 32) as lock:
        assert lock.left == mark
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {'f' * 32}\n"


@pytest.mark.parametrize("text", ["", "\n", "1\n", "1 abc\n", f"1 {'x' * 64}\n", "\xff" * 5000])
def test_a_lock_of_a_stranger_marks_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(text.encode("latin-1"))
    with hold_lock(tmp_path) as lock:
        assert lock.left == ""


def test_a_folder_that_is_a_link_is_not_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    before = sorted(run.rglob("*"))
    with pytest.raises(InductorBenchError, match="symbolic link"):
        run_breakdown(BreakdownRequest(str(tmp_path / "link")), Silent())
    shown, problem = run_report(tmp_path / "link")
    assert shown == RUN and problem is not None and str(run) in problem.hint
    assert sorted(run.rglob("*")) == before


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("important")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(InductorBenchError, match="cannot write"), hold_lock(tmp_path / "run"):
        pass
    assert (tmp_path / "victim").read_text() == "important"


def test_a_lock_that_its_holder_took_away_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it, its holder may end and remove it."""
    flock, calls = fcntl.flock, []

    def remove_first(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(how)

    monkeypatch.setattr(locks.fcntl, "flock", remove_first)
    with hold_lock(tmp_path):
        monkeypatch.undo()
        assert len(calls) == 2 and is_locked(tmp_path)


def test_many_at_once_take_turns(tmp_path: Path) -> None:
    """Each finds no other inside, however they come together."""
    code = (
        "import sys, pathlib, time\n"
        "from inductor_bench.errors import UsageError\n"
        "from inductor_bench.store.lock import hold_lock\n"
        "folder = pathlib.Path(sys.argv[1]); done = 0\n"
        "while done < 40:\n"
        "    try:\n"
        "        with hold_lock(folder):\n"
        "            (folder / 'inside').mkdir(); (folder / 'inside').rmdir(); done += 1\n"
        "    except UsageError:\n"
        "        time.sleep(0.001)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [process.wait(600) for process in started] == [0, 0, 0, 0]


# What others wrote


@pytest.mark.parametrize("place", ["/etc/passwd", "../victim", "link", "folder", "gone", "fifo", "a\0b", "x" * 300])
def test_only_files_inside_are_read(place: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("important")
    run = tmp_path / "run"
    (run / "folder").mkdir(parents=True)
    (run / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(run / "fifo")
    with pytest.raises(InductorBenchError):
        find_file_inside(run, place)


def test_a_link_within_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to("a")
    assert find_file_inside(tmp_path, "b").read_text() == "x"


def test_nothing_is_written_through_a_link(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    shutil.rmtree(run / "tables")
    (run / "tables").symlink_to(victim)
    shown, problem = run_report(run)
    assert shown == RUN and problem is not None and "symbolic link" in problem.message
    assert list(victim.iterdir()) == []
    with pytest.raises(InductorBenchError):
        own_folder(run / "tables")


NO_JSON = {
    "lists": "[" * 5000 + "]" * 5000,
    "objects": '{"a": ' * 5000 + "1" + "}" * 5000,
    "a number": "1" * 5000,
    "no UTF-8": "\xff",
}


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_json_that_no_file_of_ours_is(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InductorBenchError, match=r"x\.json"):
        read_json(tmp_path / "x.json")


def test_a_wait_for_a_killed_holder_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lock").write_text("999999999\n")
    with (tmp_path / ".lock").open() as child_of_the_killed:
        fcntl.flock(child_of_the_killed, fcntl.LOCK_EX)
        now = itertools.count(0.0, 1.0)
        clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
        monkeypatch.setattr(locks, "time", clock)
        with pytest.raises(UsageError, match="999999999"), hold_lock(tmp_path):
            pass
        assert locks.PATIENCE_S < next(now) < locks.PATIENCE_S + 5


def test_a_removal_that_is_killed_leaves_a_run_that_can_be_replaced(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inductor_bench.store.folder.shutil.rmtree", kill)
    with pytest.raises(KeyboardInterrupt):
        make(run)
    monkeypatch.undo()
    make(run)
    assert list(run.iterdir()) == []


def test_a_lock_that_does_not_fit_on_the_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(UnwritableError) as caught, hold_lock(tmp_path):
        raise AssertionError("it is not held")
    assert caught.value.message == f"cannot write {tmp_path / '.lock'}: No space left on device"
    assert not (tmp_path / ".lock").exists()


def test_a_batch_of_an_earlier_version_has_null_for_what_its_list_did_not_say(tmp_path: Path) -> None:
    unsaid = dict.fromkeys(("training", "amp", "mode", "dynamic", "device", "seed", "live", "repeat", "values"))
    request = {"name": "a", "target": "timm:a", "line": 3, "arguments": [], "batch_size": 8, **unsaid}
    row = {"request": {**request, "timeout_s": None}, "status": "done"}
    text = {"tool_version": "0", "created": "", "command": "", "source": "list.txt", "models": [row]}
    (tmp_path / BATCH).write_text(json.dumps({"format": 1, **text}))
    (model,) = BatchFolder(tmp_path).load().models
    assert model.request == ModelRequest("timm:a", name="a", line=3, batch_size=8)


def test_a_record_in_a_closed_folder_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)  # root may look into every folder
    with pytest.raises(InductorBenchError, match=r"cannot read .*record\.json: Permission denied"):
        RunFolder(tmp_path).load()
