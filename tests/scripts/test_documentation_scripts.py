"""``scripts/figures`` and ``scripts/tutorial``: where figures come from, what is typed, and what is recorded of it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import figures
import tutorial
from documentation.recorded import pack

PAGE = """# Page

```bash
# no heading
inductor-bench report runs/a
```

## How fast

<!-- made by: scripts/benchmark.py --only start
     on: NVIDIA H200, torch 2.11.0
     date: 2026-11-22 -->
| start | 0.10 s |

| no | figures |

<!-- made by: inductor-bench report runs/a -->
```text
all
```
"""


def test_the_source_of_each_figure_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert figures.main([str(page)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{page}:13  table in 'How fast'",
        "    made by  scripts/benchmark.py --only start",
        "    on       NVIDIA H200, torch 2.11.0",
        "    date     2026-11-22",
        f"{page}:19  output in 'How fast', repeated: inductor-bench report runs/a",
    ]


def test_the_commands_of_a_page_are_typed_in_order(tmp_path: Path) -> None:
    page = "```bash\necho one; exit 3\necho two \\\n    words\n```\n\n```text\nls\n```\n"
    page += "\n```bash\npython runs/a/kernels/b.py\n```\n"
    commands = tutorial.commands(page)
    assert commands == ["echo one; exit 3", "echo two words", "python runs/a/kernels/b.py"]
    variables = tutorial.environment(tmp_path)
    first, second, third = (tutorial.typed(command, tmp_path, variables) for command in commands)
    assert (first.text, first.code) == ("one\n", 3) and (second.text, second.code) == ("two words\n", 0)
    assert third.code is None and "no runs/a/kernels/b.py" in third.text


def test_the_output_of_a_page_is_recorded_again() -> None:
    page = "<!-- made by: inductor-bench doctor\n     on: old\n     date: 2026-01-01 -->\n"
    page += "```text\n…\nDRAM 1.00 TB/s\n…\n```\n"
    done = [tutorial.Typed("inductor-bench doctor", "looking\nDRAM  2.00 TB/s\nmore\n", 0)]
    renewed = tutorial.measured_again(page, done, "NVIDIA B200, torch 2.15.0")
    assert "on: NVIDIA B200, torch 2.15.0\n" in renewed and "2026-01-01" not in renewed
    assert renewed.endswith("```text\n…\nDRAM  2.00 TB/s\n…\n```\n")
    assert tutorial.measured_again(page, [], "anything") == page


def test_a_recorded_run_is_small_and_names_no_place_of_the_machine(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    (run / "modules").mkdir(parents=True)
    (run / "traces").mkdir()
    (run / "traces" / "a.json").write_text("{}")
    (run / "modules" / "forward.py").write_text(f"# File: {tmp_path}/train.py:3, and {tmp_path}-other\n")
    words = {"request": {"arguments": ["/opt/x/bin/python3.12", "train.py"]}, "target": f"{tmp_path}/train.py"}
    (run / "record.json").write_text(json.dumps(words))
    for name in ("one.zip", "two.zip"):
        pack(run, tmp_path / name, {str(tmp_path): "/project"})
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["modules/forward.py", "record.json"]
        record = json.loads(archive.read("record.json"))
        assert archive.read("modules/forward.py").decode() == f"# File: /project/train.py:3, and {tmp_path}-other\n"
    assert record == {"request": {"arguments": ["python", "train.py"]}, "target": "/project/train.py"}


# The comparison of two folders of rendered results: words may differ, numbers may not.


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
