"""Standalone files are imported with their harness compiled once."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import get_type_hints

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.source.standalone_header import HARNESS_END, HARNESS_TITLE
from inductor_bench.worker.bench.bench import import_file

FIRST = '"""A kernel."""\n\nfrom __future__ import annotations\n\nRECORDED = {"name": "a"}\n'
HARNESS = """
import dataclasses

@dataclasses.dataclass
class Arguments:
    sizes: list[int]

def fail(arguments: Missing):
    raise ValueError("of the harness")
"""
LAST = "\nARGUMENTS = Arguments([1])\n\ndef fail_last():\n    return fail(ARGUMENTS)\n"


def write(folder: Path, name: str, first: str = FIRST, harness: str = HARNESS, last: str = LAST) -> Path:
    path = folder / name
    path.write_text(f"{first}{HARNESS_TITLE}{harness}{HARNESS_END}{last}")
    return path


def test_files_share_the_code_of_their_harness_and_nothing_else(tmp_path: Path) -> None:
    one = import_file(write(tmp_path, "a.py"))
    other = import_file(write(tmp_path, "b.py", FIRST.replace('"a"', '"b"')))
    assert one.fail.__code__ is other.fail.__code__ and one.fail is not other.fail
    assert one.Arguments is not other.Arguments and (one.RECORDED, other.RECORDED) == ({"name": "a"}, {"name": "b"})
    assert one.__doc__ == "A kernel." and get_type_hints(one.Arguments) == {"sizes": list[int]}
    unlike = import_file(write(tmp_path, "c.py", harness=HARNESS.replace("of the", "of another")))
    with pytest.raises(ValueError, match="of another harness"):
        unlike.fail_last()


def test_a_traceback_shows_the_lines_of_the_file_and_of_the_harness(tmp_path: Path) -> None:
    path = write(tmp_path, "a.py")
    with pytest.raises(ValueError) as raised:
        import_file(path).fail_last()
    *_, last, harness = traceback.extract_tb(raised.value.__traceback__)
    assert (last.filename, last.line) == (str(path), "return fail(ARGUMENTS)")
    assert harness.line == 'raise ValueError("of the harness")'


def test_an_edited_file_is_imported_as_a_whole(tmp_path: Path) -> None:
    quoted = write(tmp_path, "quoted.py", FIRST + "NOTE = '''\n", harness="\n", last="'''\n")
    assert vars(import_file(quoted))["NOTE"] == f"\n{HARNESS_TITLE}\n{HARNESS_END}"
    without_end = tmp_path / "old.py"
    without_end.write_text(f"{FIRST}{HARNESS_TITLE}{HARNESS}{LAST}")
    assert import_file(without_end).ARGUMENTS.sizes == [1]
    broken = write(tmp_path, "broken.py", last="def (:\n")
    with pytest.raises(SyntaxError) as raised:
        import_file(broken)
    assert raised.value.lineno == broken.read_text().count("\n"), "a line of the file"


def test_a_file_that_refuses_the_machine_says_why(tmp_path: Path) -> None:
    refused = write(tmp_path, "gpu.py", FIRST + "raise RuntimeError(f'{__name__}: it needs a GPU')\n")
    with pytest.raises(InductorBenchError, match=r"gpu\.py: it needs a GPU"):
        import_file(refused)
