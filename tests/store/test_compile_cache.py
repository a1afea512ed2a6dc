"""The places of compiled code: what is there in the next run, what is removed first, and what cannot be used."""

from __future__ import annotations

import _ssl
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.store import caches
from inductor_bench.store.caches import compile_cache_bytes, compile_cache_problem, open_compile_cache

WHOLE = Path(_ssl.__file__)
"""A library of the interpreter."""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


def fill(place: str, **files: bytes) -> Path:
    """Writes files into a place, as one run does."""
    cache = open_compile_cache(place)
    for name, content in files.items():
        write(cache.folder / name, content)
    cache.close()
    return cache.folder


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_the_next_run_finds_what_was_compiled() -> None:
    folder = fill("p", **{"ab/cab.py": b"text", "fxgraph/x/key": b"graph"})
    cache = open_compile_cache("p")
    assert cache.folder == folder and names(folder) == ["ab/cab.py", "fxgraph/x/key"]
    cache.close()
    assert compile_cache_bytes() == 9 and folder.stat().st_mode & 0o077 == 0o055


def test_files_that_were_changed_cut_short_or_added_are_removed() -> None:
    files = dict.fromkeys(("kept", "changed", "short", "link", "locks/a.lock"), b"content")
    folder = fill("p", **files)
    (folder / "changed").write_bytes(b"damaged")
    os.utime(folder / "changed", ns=(1, 1))
    os.truncate(folder / "short", 3)
    (folder / "link").unlink()
    (folder / "link").symlink_to(folder / "kept")
    (folder / "folder").symlink_to(folder, target_is_directory=True)
    write(folder / "ab" / ".1.2.tmp", b"left by a command that was killed")
    open_compile_cache("p").close()
    assert names(folder) == ["kept", "locks/a.lock"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 0, "files": {"a": [7, 1]}}', b'{"format": 1}'])
def test_a_damaged_manifest_is_an_empty_one(content: bytes, root: Path) -> None:
    folder = fill("p", a=b"content")
    (root / "p.files.json").write_bytes(content)
    open_compile_cache("p").close()
    assert names(folder) == []


def test_a_library_that_the_linker_did_not_finish_is_not_kept() -> None:
    library = WHOLE.read_bytes()
    folder = fill("p", **{"whole.so": library, "short.so": library[:-100], "begun.so": b"", "zeros.so": bytes(9999)})
    open_compile_cache("p").close()
    assert names(folder) == ["whole.so"]


def test_commands_share_a_place_and_the_last_one_keeps_its_files() -> None:
    first, second = open_compile_cache("p"), open_compile_cache("p")
    write(first.folder / "a", b"of the first")
    write(second.folder / "b", b"of the second")
    first.close()
    third = open_compile_cache("p")  # it is not alone, and removes nothing
    assert names(third.folder) == ["a", "b"]
    second.close()
    third.close()
    open_compile_cache("p").close()
    assert names(third.folder) == ["a", "b"]


def test_what_a_killed_command_left_is_removed() -> None:
    cache = open_compile_cache("p")
    write(cache.folder / "a", b"half")
    os.close(cache._lock)
    open_compile_cache("p").close()
    assert names(cache.folder) == []


def test_the_place_that_was_not_used_for_longest_makes_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("old", "older"):
        fill(place, a=bytes(400))
    for age, place in enumerate(("old", "older"), 1):
        os.utime(root / f"{place}.files.json", (1e9 - age, 1e9 - age))
    monkeypatch.setattr(caches, "LIMIT_BYTES", 1000)
    fill("new", a=bytes(300))
    assert not (root / "older").exists() and names(root / "old") == ["a"] and compile_cache_bytes() == 700


def test_a_place_in_use_makes_no_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill("old", a=bytes(400))
    user = open_compile_cache("old")
    monkeypatch.setattr(caches, "LIMIT_BYTES", 500)
    fill("new", a=bytes(50), b=bytes(50), c=bytes(50))
    assert names(root / "old") == ["a"] and names(root / "new") == [], "80% of the limit is not left for this one"
    user.close()


def test_the_files_of_a_large_place_that_were_not_used_for_longest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill("p", a=bytes(400), b=bytes(400), c=bytes(400))
    for age, name in enumerate(("b", "a", "c")):
        os.utime(folder / name, (1e9 + age, 1e9))
    cache = open_compile_cache("p")
    assert names(folder) == [], "their times have changed"
    for age, name in enumerate(("b", "a", "c")):
        write(folder / name, bytes(400))
        os.utime(folder / name, (1e9 + age, 1e9))
    monkeypatch.setattr(caches, "LIMIT_BYTES", 1000)
    cache.close()
    assert names(folder) == ["a", "c"] and compile_cache_bytes() == 800


def test_a_full_disk_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**8))
    with pytest.raises(InductorBenchError, match="less than 1 GB is free"):
        open_compile_cache("p")
    assert "less than 1 GB is free" in compile_cache_problem()


def test_a_folder_that_is_none_or_of_another_user_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.parent.mkdir(parents=True)
    root.touch()
    with pytest.raises(InductorBenchError, match="compiled is no folder of this user's"):
        open_compile_cache("p")
    root.unlink()
    open_compile_cache("p").close()
    assert compile_cache_problem() == ""
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    with pytest.raises(InductorBenchError, match="no folder of this user's"):
        open_compile_cache("p")


def test_a_folder_that_cannot_be_written_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill("p", **{"fxgraph/a": b"graph"})
    writable = os.access
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != str(folder / "fxgraph") and writable(path, mode))
    with pytest.raises(InductorBenchError, match="fxgraph cannot be written"):
        open_compile_cache("p")


def test_a_lock_that_is_no_file_or_is_held_is_no_reason_to_fail(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill("p", a=b"content")
    (root / "p.lock").unlink()
    (root / "p.lock").mkdir()
    with pytest.raises(InductorBenchError, match="cannot be used"):
        open_compile_cache("p")
    (root / "p.lock").rmdir()
    monkeypatch.setattr(caches, "PATIENCE_S", 0.0)
    monkeypatch.setattr(caches, "_is_locked", lambda lock, kind: False)
    with pytest.raises(InductorBenchError, match="another command"):
        open_compile_cache("p")


def test_a_run_ends_well_where_the_manifest_cannot_be_written(root: Path) -> None:
    cache = open_compile_cache("p")
    shutil.rmtree(root)
    root.touch()
    cache.close()
    assert root.is_file()
