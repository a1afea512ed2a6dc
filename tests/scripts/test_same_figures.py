"""The comparison of two folders of rendered results: words may differ, numbers may not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("same_figures_script", ROOT / "scripts" / "same_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "same_figures_script", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    return module


def compared(
    script: ModuleType, capsys: pytest.CaptureFixture[str], folder: Path, before: str, after: str, name: str = "a.txt"
) -> tuple[int, list[str]]:
    for side, text in (("before", before), ("after", after)):
        (folder / side).mkdir(exist_ok=True)
        (folder / side / name).write_text(text)
    code = script.main(["compare", str(folder / "before"), str(folder / "after")])
    return code, capsys.readouterr().out.splitlines()


def test_words_may_differ_and_a_number_that_is_gone_fails(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert compared(script, capsys, tmp_path, "1,000 calls in 2.5 ms", "2.5 ms for 1000") == (0, ["the same figures"])
    code, lines = compared(script, capsys, tmp_path, "7 of 7, 3.25 ms", "7, 3.5 ms")
    assert code == 1
    assert lines == ["a.txt: gone: 3.25", "a.txt: rarer: 7", "a.txt: more: 3.5", "3 differences"]


def test_a_page_has_the_numbers_of_its_text_and_those_that_its_tables_are_sorted_by(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = "<style>a {{top: 9px}}</style><td data-v={}>{} ms</td>"
    before, after = page.format("0.0123", "12.3"), page.format("0.0124", "12.3")
    code, lines = compared(script, capsys, tmp_path, before, after, "a.html")
    assert (code, lines) == (1, ["a.html: gone: 0.0123", "a.html: more: 0.0124", "2 differences"])
