"""The verb ``breakdown`` up to the workflow: what was typed becomes the request that was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inductor_bench.cli import breakdown as verb
from inductor_bench.cli import main as entry
from inductor_bench.records.base import Failure
from inductor_bench.records.run import Environment, Request, Run
from inductor_bench.workflows.options import BreakdownOptions


def parse(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> BreakdownOptions:
    """The request that a command line amounts to."""
    seen: list[BreakdownOptions] = []
    make = verb.make_options

    def stop(values: dict[str, Any], arguments: tuple[str, ...]) -> BreakdownOptions:
        seen.append(make(values, arguments))
        raise KeyboardInterrupt  # the request is all that is wanted here

    monkeypatch.setattr(verb, "make_options", stop)
    assert entry.main(["breakdown", *arguments]) == 130
    return seen[0]


def test_what_is_not_said_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(monkeypatch, "model.py") == BreakdownOptions(targets=("model.py",))


def test_everything_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text("{}")
    words = (
        "timm:mixnet_s --training --mode max-autotune --dynamic --amp bf16 --device cuda:1 --seed 7 --batch-size 32 "
        "--live --trace TRACE --timeout 90 --repeat 20 --python /usr/bin/python3 -o out --force --no-plots"
    )
    assert parse(monkeypatch, *(str(trace) if word == "TRACE" else word for word in words.split())) == BreakdownOptions(
        targets=("timm:mixnet_s",),
        training=True,
        mode="max-autotune",
        dynamic=True,
        amp="bfloat16",
        device="cuda:1",
        seed=7,
        batch_size=32,
        live=True,
        trace=trace,
        timeout_s=90.0,
        repeat=20,
        python="/usr/bin/python3",
        output=Path("out"),
        force=True,
        plots=False,
    )


def test_both_ways_of_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(monkeypatch, "model.py:f", "--inference", "--no-dynamic")
    assert options.training is False and options.dynamic is False


def test_what_follows_two_dashes_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(monkeypatch, "model.py", "--seed", "3", "--", "--seed", "4", "-o", "x", "--", "y")
    assert options.targets == ("model.py",) and options.seed == 3
    assert options.arguments == ("--seed", "4", "-o", "x", "--", "y")


def test_several_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(monkeypatch, "a.py", "--live", "b.py").targets == ("a.py", "b.py")


@pytest.mark.parametrize(
    ("kinds", "code"), [((), 0), (("exit",), 1), (("signal", "timeout"), 1), (("exit", "interrupted"), 130)]
)
def test_exit_code(kinds: tuple[str, ...], code: int) -> None:
    run = Run(
        format=1,
        tool_version="0",
        run_id="r",
        created="",
        command="",
        target="",
        title="",
        request=Request(target="", kind="script"),
        environment=Environment(),
        failures=tuple(Failure("profile", kind, "message") for kind in kinds),
    )
    assert verb.exit_code(run) == code
