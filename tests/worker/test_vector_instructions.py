"""The question which vector instructions work, which only the first process of a search asks."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from inductor_bench.worker.upstream.inductor import remember_vectors


def torch_that_asks(asked: list[str]) -> Any:
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


def test_a_torch_that_asks_in_another_way_is_left_as_it_is() -> None:
    from inductor_bench.worker.capture.startup import _remember_vectors

    _remember_vectors(SimpleNamespace(VecISA=object))  # type: ignore[arg-type]
