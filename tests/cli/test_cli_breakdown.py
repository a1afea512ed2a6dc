"""The verb ``breakdown`` up to the workflow: what was typed becomes the request that was meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import step_runs

from inductor_bench.cli import breakdown as verb
from inductor_bench.cli.main import main
from inductor_bench.cli.presentation import make_request
from inductor_bench.records.base import Failure
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Environment, Run
from inductor_bench.workflows import breakdown as workflow


def parse(*arguments: str) -> BreakdownRequest:
    """The request that a command line amounts to."""
    context = verb.command.make_context("breakdown", list(arguments))
    return make_request(BreakdownRequest, context.params, **verb.find_target(context, context.params))


def test_what_is_not_said_is_left_open() -> None:
    assert parse("model.py") == BreakdownRequest("model.py")


def test_everything_said(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text("{}")
    words = (
        "timm:mixnet_s --training --mode max-autotune --dynamic --amp bf16 --device cuda:1 --seed 7 --batch-size 32 "
        "--live --trace TRACE --timeout 90 --repeat 20 --python /usr/bin/python3 -o out --force --no-plots"
    )
    assert parse(*(str(trace) if word == "TRACE" else word for word in words.split())) == BreakdownRequest(
        target="timm:mixnet_s",
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


def test_both_ways_of_a_switch() -> None:
    options = parse("model.py:f", "--inference", "--no-dynamic")
    assert options.training is False and options.dynamic is False


def test_what_follows_two_dashes_is_the_programs() -> None:
    options = parse("model.py", "--seed", "3", "--", "--seed", "4", "-o", "x", "--", "y")
    assert options.target == "model.py" and options.seed == 3
    assert options.arguments == ("--seed", "4", "-o", "x", "--", "y")


def test_several_targets() -> None:
    request = parse("a.py", "--live", "b.py")
    assert (request.target, request.others) == ("a.py", ("b.py",))


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
        request=BreakdownRequest(target="", kind="script"),
        environment=Environment(),
        failures=tuple(Failure("profile", kind, "message") for kind in kinds),
    )
    assert verb.exit_code(run) == code


def test_a_module_that_cannot_run_by_itself_is_no_failure_of_an_explained_step() -> None:
    alone = Failure("profile", "exit", "exited with 1", subject="Block.forward")
    assert verb.exit_code(replace(step_runs.transformer(), failures=(alone,))) == 0
    assert verb.exit_code(replace(step_runs.transformer(), failures=(alone, replace(alone, stage="survey")))) == 1
    assert verb.exit_code(replace(step_runs.transformer(), failures=(alone,), program=None)) == 1


def test_a_stop_while_the_result_is_printed_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    outcome = workflow.BreakdownOutcome(step_runs.transformer(), tmp_path / "run")
    monkeypatch.setattr(workflow, "run_breakdown", lambda *_: outcome)
    monkeypatch.setattr(verb, "show", stop)
    assert main(["breakdown", "train.py"]) == 130
    assert f"interrupted; what was measured until then is in {tmp_path / 'run'}" in capsys.readouterr().err
