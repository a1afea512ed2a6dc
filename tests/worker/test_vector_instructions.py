"""The question which vector instructions work, which only the first process of a search asks."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import inductor_bench.worker.capture
from inductor_bench.worker.capture.startup import _remember_vectors
from inductor_bench.worker.upstream.inductor import list_vector_widths, remember_vectors


def torch_that_asks(asked: list[str], fingerprint: Callable[[str], str] | None = str) -> Any:
    """Torch's module as a process imports it, with the function that names the compiler; AMX works on no machine."""

    class VecISA:
        def __init__(self, flags: str) -> None:
            self.flags = flags

        def build_arch_flags(self) -> str:
            return self.flags

        def check_build(self, code: str) -> bool:
            asked.append(f"{self.flags} {code}")
            return self.flags != "-mamx"

    module = ModuleType("cpu_vec_isa")
    vars(module).update(VecISA=VecISA)
    if fingerprint is not None:
        vars(module).update(_get_isa_dry_compile_fingerprint=fingerprint)
    _remember_vectors(module)
    return module


def test_only_the_first_process_asks_for_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    questions = [("-mavx2", "exp"), ("-mavx512f", "exp"), ("-mavx512f", "bf16"), ("-mamx", "exp")]
    for _ in range(2):
        module = torch_that_asks(asked)
        answers = [module.VecISA(flags).check_build(code) for flags, code in questions]
        assert answers == [True, True, True, False]
    assert asked == ["-mavx2 exp", "-mavx512f exp", "-mavx512f bf16", "-mamx exp", "-mamx exp"]


def test_fewer_instructions_are_not_asked_for_code_that_works_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    module = torch_that_asks(asked)
    questions = [("-mfma -mavx512f -mvnni", "exp"), ("-mavx512f -mfma", "exp"), ("-mfma", "bf16"), ("-mavx2", "exp")]
    assert all(module.VecISA(flags).check_build(code) for flags, code in questions)
    assert asked == ["-mfma -mavx512f -mvnni exp", "-mfma bf16", "-mavx2 exp"]


def test_a_worker_remembers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    for _ in range(2):
        isa = type("VecISA", (), {"build_arch_flags": lambda _: "-mavx2", "bit_width": lambda _: 256})
        isa.check_build = lambda _, code: bool(asked.append(code)) or True  # type: ignore[attr-defined]
        module: Any = ModuleType("cpu_vec_isa")
        module.VecISA, module.valid_vec_isa_list = isa, lambda isa=isa: [isa()] * isa().check_build("exp")
        module._get_isa_dry_compile_fingerprint = str
        monkeypatch.setattr("torch._inductor.cpu_vec_isa", module)
        assert list_vector_widths() == [256]
    assert asked == ["exp"]


def test_torchs_pythons_start_without_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = str(Path(inductor_bench.worker.capture.__file__).parent / "site")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("sys.path", [hook, "/somewhere"])
    paths: list[str] = []
    module = torch_that_asks([])
    monkeypatch.setattr(module.VecISA, "check_build", lambda isa, code: bool(paths.append(_python_path())) or True)
    remember_vectors(module)
    assert module.VecISA("-mavx2").check_build("exp") and paths == ["/somewhere"] and not _python_path()


def _python_path() -> str:
    return os.environ.get("TORCH_CUSTOM_PYTHONPATH", "")


def test_another_compiler_or_torch_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    for words in ("g++ 12={}=2.13", "g++ 12={}=2.13", "g++ 14={}=2.13", "g++ 14={}=2.14"):
        assert torch_that_asks(asked, words.format).VecISA("-mavx2").check_build("exp")
    assert asked == ["-mavx2 exp"] * 3
    monkeypatch.setattr("torch.version.git_version", "another build of the same version")
    assert torch_that_asks(asked, words.format).VecISA("-mavx2").check_build("exp") and len(asked) == 4


def test_torch_names_the_compiler_and_itself_for_such_a_question() -> None:
    from torch._inductor import cpu_vec_isa

    name = "_get_isa_dry_compile_fingerprint"
    assert name in vars(cpu_vec_isa), "the name by which the question is kept apart"
    assert torch.__version__ in getattr(cpu_vec_isa, name)("-mavx2")


def test_an_answer_that_cannot_be_kept_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    asked: list[str] = []
    assert [torch_that_asks(asked).VecISA("-mavx2").check_build("exp") for _ in range(2)] == [True, True]
    assert asked == ["-mavx2 exp"] * 2


def test_a_torch_that_asks_in_another_way_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    _remember_vectors(SimpleNamespace(VecISA=object))  # type: ignore[arg-type]
    asked: list[str] = []
    assert all(torch_that_asks(asked, None).VecISA("-mavx2").check_build("exp") for _ in range(2))
    assert len(asked) == 2 and not list(tmp_path.iterdir())
