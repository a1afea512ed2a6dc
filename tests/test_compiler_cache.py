"""The compiler of the tests' programs: what it keeps, what it compiles again, and what it leaves to g++."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import compiler_cache
import pytest

COMPILER = """#!/bin/sh
echo "$@" >> "$0.log"
for word; do
    case "$before $word" in
    "-o "*) [ -z "$source" ] || cat "$source" > "$word" ;;
    *.cpp) grep -q wrong -- "$word" && exit 3; source=$word ;;
    esac
    before=$word
done
exit 0
"""


class Compiler:
    """A compiler that copies its source, behind the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._real = folder, folder / "g++"
        self._real.write_text(COMPILER)
        self._real.chmod(0o755)
        (folder / "store").mkdir()

    def run(self, *words: str) -> int:
        command = [sys.executable, compiler_cache.__file__, str(self._real), str(self.folder / "store"), *words]
        return subprocess.run(command, cwd=self.folder, check=False).returncode

    def compile(self, text: str, flag: str = "-O3", output: str = "out.so") -> int:
        (self.folder / "source.cpp").write_text(text)
        return self.run("source.cpp", flag, "-o", output)

    @property
    def started(self) -> int:
        log = self.folder / "g++.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def test_the_same_text_with_the_same_arguments_is_compiled_once(compiler: Compiler) -> None:
    assert compiler.compile("one") == compiler.compile("one", output="again.so") == 0
    assert compiler.started == 1 and (compiler.folder / "again.so").read_text() == "one"


def test_another_text_and_another_flag_are_compiled(compiler: Compiler) -> None:
    compiler.compile("one")
    compiler.compile("two")
    assert (compiler.folder / "out.so").read_text() == "two"
    compiler.compile("two", "-O0")
    assert compiler.started == 3


def test_a_header_that_is_included_counts_by_its_text(compiler: Compiler) -> None:
    for folder, text in (("a", "header"), ("b", "header"), ("c", "another header")):
        (compiler.folder / folder).mkdir()
        (compiler.folder / folder / "x.h").write_text(text)
        (compiler.folder / "source.cpp").write_text("one")
        assert compiler.run("source.cpp", "-O3", "-o", "out.so", "-include", f"{folder}/x.h") == 0
    assert compiler.started == 2


def test_a_failure_is_tried_again_and_keeps_its_exit_code(compiler: Compiler) -> None:
    assert compiler.compile("wrong") == compiler.compile("wrong") == 3
    assert compiler.started == 2


def test_a_library_is_optimized_little_and_linked_by_the_faster_linker_if_there_is_one(compiler: Compiler) -> None:
    (compiler.folder / "source.cpp").write_text("one")
    words = ("source.cpp", "-O3", "-o", "out.so", "-shared")
    assert compiler.run(*words) == 0
    (compiler.folder / "ld.gold").touch()
    assert compiler.run(*words) == compiler.run(*words, "-g1") == 0 == compiler.compile("two")
    first, second, third = (compiler.folder / "g++.log").read_text().splitlines()
    assert "gold" not in first + third and "-fuse-ld=gold" in second
    assert first.endswith("-shared -O1 -g0") and second.endswith("-shared -g1 -O1 -g0") and third.endswith("out.so")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_library_names_those_of_torch_that_it_is_linked_with(tmp_path: Path) -> None:
    (tmp_path / "source.cpp").write_text("void defined_in_torch(); void call() { defined_in_torch(); }")
    words = ["g++", "source.cpp", "-shared", "-fPIC", "-o", "out.so", "-ltorch_cpu"]
    subprocess.run(words, cwd=tmp_path, check=True)
    assert b"libtorch_cpu.so" in (tmp_path / "out.so").read_bytes()


@pytest.mark.parametrize("words", ["--version", "x.h -O3 -o x.h.gch", "a.o b.o -o out.so"])
def test_other_requests_are_the_compilers(words: str, compiler: Compiler) -> None:
    (compiler.folder / words.split()[0]).write_text("text")
    assert compiler.run(*words.split()) == compiler.run(*words.split()) == 0
    assert compiler.started == 2


def test_another_compiler_or_torch_has_a_store_of_its_own(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copy(tmp_path / "g++", tmp_path / "another")
    keys = [compiler_cache.surroundings_key(str(each)) for each in (tmp_path / "g++", tmp_path / "g++", other)]
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} of tomorrow")
    keys.append(compiler_cache.surroundings_key(str(tmp_path / "g++")))
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_what_nobody_has_asked_for_goes_and_what_is_asked_for_again_stays(compiler: Compiler) -> None:
    compiler.compile("asked for once")
    compiler.compile("asked for twice")
    store = compiler.folder / "store"
    for path in store.iterdir():
        os.utime(path, (1, 1))
    assert compiler.compile("asked for twice") == 0 and compiler.started == 2
    (store / compiler_cache.STUBS).mkdir()
    (store / compiler_cache.STUBS / "libtorch.so").touch()
    os.utime(store / compiler_cache.STUBS / "libtorch.so", (1, 1))
    compiler_cache.forget_old(str(compiler.folder), before=2.0)
    (kept,) = (path for path in store.iterdir() if path.is_file())
    assert kept.read_text() == "asked for twice" and (store / compiler_cache.STUBS / "libtorch.so").exists()


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_programs_of_the_tests_get_it() -> None:
    found = shutil.which("g++")
    assert found is not None and found.startswith(os.environ["INDUCTOR_BENCH_TESTS"])
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("g++")
