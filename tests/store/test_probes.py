"""The libraries by which Inductor tests for vector instructions: kept by one RUN, there in the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inductor_bench.store.caches import WORKING, keep_probes, lend_probes

PROBE = 'extern "C" void __avx_chk_kernel() {}'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "probes"


def compiled(cache: Path, name: str, text: str) -> Path:
    """Writes a text and its library where Inductor does."""
    folder = cache / name[1:3]
    folder.mkdir(parents=True)
    (folder / f"{name}.cpp").write_text(text)
    (folder / f"{name}.so").write_bytes(b"the library of " + name.encode())
    return folder / f"{name}.so"


def test_a_later_cache_gets_the_probes_and_no_kernel(store: Path, tmp_path: Path) -> None:
    probe = compiled(tmp_path / "first", "cabc", PROBE)
    compiled(tmp_path / "first", "ckernel", 'extern "C" void kernel() {}')
    keep_probes(tmp_path / "first")
    lend_probes(tmp_path / "second")
    assert [path.name for path in store.iterdir()] == ["cabc.so"]
    (lent,) = (path for path in (tmp_path / "second").rglob("*") if path.is_file())
    assert lent == tmp_path / "second" / "ab" / "cabc.so" and lent.read_bytes() == probe.read_bytes()


def test_a_later_cache_knows_what_works(store: Path, tmp_path: Path) -> None:
    (tmp_path / "first" / WORKING).mkdir(parents=True)
    (tmp_path / "first" / WORKING / "0af3").touch()
    keep_probes(tmp_path / "first")
    lend_probes(tmp_path / "second")
    assert [path.name for path in (tmp_path / "second" / WORKING).iterdir()] == ["0af3"]


def test_nothing_is_written_if_nothing_is_stored(store: Path, tmp_path: Path) -> None:
    compiled(tmp_path / "cache", "ckernel", 'extern "C" void kernel() {}')
    keep_probes(tmp_path / "cache")
    lend_probes(tmp_path / "cache")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_store_that_others_could_write_is_closed_to_them(store: Path, tmp_path: Path) -> None:
    store.mkdir(parents=True)
    store.chmod(0o777)
    lend_probes(tmp_path / "cache")
    assert store.stat().st_mode & 0o777 == 0o755


def test_probes_of_others_are_left_alone(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(tmp_path / "first", "cabc", PROBE)
    keep_probes(tmp_path / "first")
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    lend_probes(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_store_that_cannot_be_written_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "file"))
    compiled(tmp_path / "first", "cabc", PROBE)
    keep_probes(tmp_path / "first")
    lend_probes(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_inductor_finds_its_probes_by_their_names(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that is there is not compiled; what it is called, and what is in it, is Inductor's affair."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    probes = [getattr(kind, name) for kind in (cpu_vec_isa.VecISA,) for name in dir(kind) if name.endswith("_code")]
    assert probes and all("_chk_kernel" in text for text in probes)
    isa = cpu_vec_isa.VecAVX2()
    monkeypatch.setattr(isa, "_probe_load", lambda path: False, raising=False)
    built = []

    def build(self: cpp_builder.CppBuilder) -> None:
        built.append(self)
        Path(self.get_target_file_path()).write_bytes(b"built")

    monkeypatch.setattr(cpp_builder.CppBuilder, "build", build)
    for name in ("first", "second"):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / name))
        lend_probes(tmp_path / name)
        isa.check_build(probes[0])
        keep_probes(tmp_path / name)
    assert len(built) == 1
