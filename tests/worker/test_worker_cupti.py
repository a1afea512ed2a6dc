"""When CUPTI is detached after a profile."""

from __future__ import annotations

import os
from unittest.mock import Mock

import pytest
import torch

from inductor_bench.worker.upstream.observing import VARIABLE, WAITS, detaching_cupti


@pytest.mark.parametrize(
    ("cuda", "is_used", "within"),
    [("12.8", True, "1"), ("13.0", True, "1"), ("12.4", True, None), ("13.0", False, None)],
)
@pytest.mark.parametrize("fails", [False, True])
def test_the_variable_is_set_only_while_cupti_is_detached(
    monkeypatch: pytest.MonkeyPatch, cuda: str, within: str | None, *, is_used: bool, fails: bool
) -> None:
    synchronize = Mock()
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_used)
    monkeypatch.delenv(VARIABLE, raising=False)
    try:
        with detaching_cupti():
            assert os.environ.get(VARIABLE) == within
            if fails:
                raise RuntimeError("the profiler failed")
    except RuntimeError:
        assert fails
    assert VARIABLE not in os.environ
    assert synchronize.call_count == (WAITS if within and not fails else 0)


def test_the_programs_own_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv(VARIABLE, "0")
    with detaching_cupti():
        assert os.environ[VARIABLE] == "0"
    assert os.environ[VARIABLE] == "0"
