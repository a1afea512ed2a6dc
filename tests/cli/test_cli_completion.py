"""Shell completion: the scripts that are printed, and the answers that they get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from inductor_bench.cli import completion
from inductor_bench.cli.main import VERBS, group, main

SCRIPT = f"#!{sys.executable}\nimport sys\nfrom inductor_bench.__main__ import main\nsys.exit(main())\n"


def answers(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the program answers when bash asks it to complete the last word."""
    monkeypatch.setenv(completion.VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_asks_this_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{completion.VARIABLE}={shell}_complete" in script and completion.PROGRAM in script


def test_the_help_says_how_to_install_it_in_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    told = capsys.readouterr().out
    assert [shell for shell in completion.SHELLS if f"{completion.PROGRAM} completion {shell}" not in told] == []


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("inductor-bench ", [f"plain,{verb}" for verb in VERBS]),
        ("inductor-bench br", ["plain,breakdown"]),
        ("inductor-bench breakdown --mo", ["plain,--mode"]),
        ("inductor-bench breakdown --mode reduce", ["plain,reduce-overhead"]),
        ("inductor-bench breakdown tr", ["file,tr"]),
        ("inductor-bench breakdown --autotune -- python tr", ["file,tr"]),
        ("inductor-bench kernel runs/a", ["file,runs/a"]),
        ("inductor-bench report r", ["dir,r"]),
        ("inductor-bench completion z", ["plain,zsh"]),
    ],
)
def test_a_word_is_completed(
    words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answers(words, monkeypatch, capsys) == expected


def test_every_argument_that_may_be_a_path_is_completed() -> None:
    context = group.make_context("inductor-bench", [], resilient_parsing=True)
    for verb in set(VERBS) - {"completion"}:
        command = group.get_command(context, verb)
        assert command is not None
        own = command.make_context(verb, [], parent=context, resilient_parsing=True)
        first = [one for one in command.params if one.param_type_name == "argument"][:1]
        assert [item.type for one in first for item in one.shell_complete(own, "a")] in ([], ["file"], ["dir"])
        assert all(one.shell_complete(own, "a") for one in first), verb


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    (tmp_path / "inductor-bench").write_text(SCRIPT)
    (tmp_path / "inductor-bench").chmod(0o755)
    typed = (
        'eval "$(inductor-bench completion bash)"\n'
        "COMP_WORDS=(inductor-bench do) COMP_CWORD=1\n"
        "_inductor_bench_completion inductor-bench\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        ["bash", "--norc", "-c", typed], env={**os.environ, **path}, capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("doctor\n", "")
