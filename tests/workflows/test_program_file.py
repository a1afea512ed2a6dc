"""Which file is the program's own, whose digest a RUN holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.request_fields import COMMAND
from inductor_bench.workflows.modules.targets import find_program_file, resolve_target


@pytest.mark.parametrize(
    ("target", "words", "file"),
    [
        ("train.py", (), "train.py"),
        ("train.py:make", (), "train.py"),
        ("", ("python", "train.py", "--lr", "1"), "train.py"),
        ("", ("python", "-m", "pkg.run"), "pkg/run.py"),
        ("", ("python", "-m", "pkg"), "pkg/__main__.py"),
        ("", ("python", "-m", "json.tool"), None),
        ("", ("ls",), None),
        ("timm:resnet18", (), None),
    ],
)
def test_a_program_has_one_file_or_none(
    target: str, words: tuple[str, ...], file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/run.py", "pkg/__main__.py"):
        (tmp_path / name).write_text("")
    request = BreakdownRequest(target, arguments=words)
    found = resolve_target(request)
    assert words == () or found.kind == COMMAND
    assert find_program_file(found.resolved(request)) == (Path(file) if file else None)
