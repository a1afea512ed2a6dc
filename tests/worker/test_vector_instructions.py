"""The question which vector instructions work, which only the first process of a search asks."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from inductor_bench.worker.upstream.inductor import remember_vectors


def torch_that_asks(asked: list[str], fingerprint: Callable[[str], str] | None = None) -> Any:
    """Torch's module as a process imports it; AMX works on no machine."""

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
    remember_vectors(module)
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


def test_another_compiler_or_torch_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    for words in ("g++ 12={}=2.13", "g++ 12={}=2.13", "g++ 14={}=2.13", "g++ 14={}=2.14"):
        assert torch_that_asks(asked, words.format).VecISA("-mavx2").check_build("exp")
    assert asked == ["-mavx2 exp"] * 3


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


def test_a_torch_that_asks_in_another_way_is_left_as_it_is() -> None:
    from inductor_bench.worker.capture.startup import _remember_vectors

    _remember_vectors(SimpleNamespace(VecISA=object))  # type: ignore[arg-type]
