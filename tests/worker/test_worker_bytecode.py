"""Bytecode of workers: kept in the tool's cache only if the interpreter keeps none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from inductor_bench.worker.fast_start import keep_bytecode
keep_bytecode("packaged")
import packaged.part
import os
print(sys.pycache_prefix, sys.dont_write_bytecode, os.environ.get("PYTHONDONTWRITEBYTECODE"))
print(packaged.part.__cached__)
"""


def run(folder: Path, *, writes: bool) -> tuple[list[str], Path]:
    """The state of a process that imports ``packaged``, and the cache of its tool."""
    package, cache = folder / "site" / "packaged", folder / "cache"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 1\n")
    environment = {**os.environ, "INDUCTOR_BENCH_CACHE": str(cache)}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not writes:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-c", PROGRAM, str(package.parent)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.split("\n"), cache


def test_bytecode_is_kept_in_the_cache_if_none_is_written(tmp_path: Path) -> None:
    (state, cached, _), cache = run(tmp_path, writes=False)
    assert state == f"{cache / 'bytecode'} False None"
    assert Path(cached).is_file() and Path(cached).is_relative_to(cache / "bytecode")
    assert not (tmp_path / "site" / "packaged" / "__pycache__").exists()


def test_where_bytecode_is_written_nothing_changes(tmp_path: Path) -> None:
    (state, cached, _), cache = run(tmp_path, writes=True)
    assert state == "None False None" and not cache.exists()
    assert Path(cached).is_file() and Path(cached).parent == tmp_path / "site" / "packaged" / "__pycache__"


def test_bytecode_that_is_there_is_used(tmp_path: Path) -> None:
    run(tmp_path, writes=True)
    (state, *_), cache = run(tmp_path, writes=False)
    assert state == "None True 1" and not cache.exists()


def test_a_cache_that_cannot_be_the_users_own_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache" / "bytecode").symlink_to(tmp_path / "elsewhere")
    (state, *_), _ = run(tmp_path, writes=False)
    assert state == "None True 1" and not any((tmp_path / "elsewhere").iterdir())


def test_others_cannot_write_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cache" / "bytecode").mkdir(parents=True)
    (tmp_path / "cache" / "bytecode").chmod(0o777)
    _, cache = run(tmp_path, writes=False)
    assert (cache / "bytecode").stat().st_mode & 0o022 == 0


def test_a_missing_package_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_bench.worker import fast_start

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sys.pycache_prefix
    fast_start.keep_bytecode("no_such_package")
    assert importlib.util.find_spec("no_such_package") is None
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == (before, True)
