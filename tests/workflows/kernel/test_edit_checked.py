"""Edited kernels under check: those that are wrong are refused, each with its reason, and honest ones are not."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from edited_kernels import CHEATS, HONEST, LAUNCHES, ROLES, Compiled, Worker, compile_all, edits_of

from inductor_bench.source.edited import KernelEdit
from inductor_bench.workflows.kernels.edit_check import EditRefusedError, EditUnderCheck


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_all(tmp_path_factory.mktemp("edits"))


def checked(library: ctypes.CDLL, kernel: str, name: str, folder: Path) -> tuple[str, str, list[Any]]:
    """Returns the reason for which an edit is refused, in an id and in words, and what was checked."""
    functions, launches = edits_of(library, kernel), LAUNCHES[kernel]
    facts = {"roles": {role: list(places) for role, places in vars(ROLES[kernel]).items()}, "launches": launches}
    edit = KernelEdit(folder / "mine.py", kernel, "cpp", "", "", "", "2.13", None, "", facts=facts)
    runner = Worker(dict(enumerate(Compiled(functions[name], launch) for launch in launches)))
    judge = Worker(dict(enumerate(Compiled(functions["the original"], launch) for launch in launches)))
    session: Any = runner
    check = EditUnderCheck(edit, session, folder)
    check.judge, check.has_originals, check.launches = judge, True, len(launches)  # type: ignore[assignment]
    try:
        check.check_all()
    except EditRefusedError as refused:
        return refused.reason, refused.words, check.checks
    return "", "", check.checks


@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel in CHEATS for name in CHEATS[kernel]])
def test_a_wrong_edit_is_refused_with_the_reason(library: ctypes.CDLL, kernel: str, name: str, tmp_path: Path) -> None:
    reason, words, checks = checked(library, kernel, f"cheat: {name}", tmp_path)
    assert reason == CHEATS[kernel][name][0], words
    assert words
    assert checks[-1].outcome == "refused"


@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel in HONEST for name in HONEST[kernel]])
def test_an_honest_edit_is_not_refused(library: ctypes.CDLL, kernel: str, name: str, tmp_path: Path) -> None:
    reason, words, checks = checked(library, kernel, name, tmp_path)
    assert (reason, words) == ("", "")
    assert {check.outcome for check in checks} == {"passed"}
    assert {check.launch for check in checks} == {0, 1}
