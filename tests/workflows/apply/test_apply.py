"""Applying the winners of a RUN on a CPU: pins, their proof in the program, and what they save."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from breakdown_runs import PROGRAMS, Done, command, copy_of, factory, forks, run, scratch
from documented import documented, with_options
from forking_python import interpreter
from inline import change
from retuned_runs import make_retune, write_winners

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.observed import APPLY, PINNED, Pins, PinState
from inductor_bench.records.base import Category
from inductor_bench.records.code import Argument, Launch, TensorView
from inductor_bench.records.retune import Config, InputLayout, LibraryPin, TritonPin, Verification
from inductor_bench.records.run import Environment
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.apply import add_verification, require_same
from inductor_bench.workflows.modules.compile_environment import SITE
from inductor_bench.workflows.pins import (
    PinnedRun,
    join_states,
    lookup_table,
    make_pin,
    make_pinned_environment,
    make_pins,
    read_states,
    set_mode,
)
from inductor_bench.workflows.proof import describe_kernels, sum_predicted_savings_s
from inductor_bench.workflows.tuned import write_page

pytestmark = pytest.mark.xdist_group("captures")

PROGRAM = f"""
import sys, torch
sys.path.insert(0, {str(PROGRAMS)!r})
import inductor_bench
from factories import mlp
torch.manual_seed(3)
model, inputs = mlp()
compiled = torch.compile(model)
for _ in range(200):
    compiled(*inputs).mean().backward()
    inductor_bench.step()
print("the program's own output")
sys.exit(7)
"""


def program(name: str) -> Path:
    path = scratch() / f"{name}.py"
    path.write_text(PROGRAM)
    return path


def apply(folder: Path, *words: str | Path) -> Done:
    return run(command("apply", folder, *words), folder, **forks())


def test_a_program_runs_the_configs_and_keeps_its_output_and_exit_code() -> None:
    folder = RunFolder(copy_of(factory(), "applied"))
    write_winners(folder, flags="unroll")
    places = {"runs/train": folder.path, "python": interpreter(), "train.py": program("applied_program")}
    words = documented("inductor-bench apply runs/train -- python train.py", places)
    done = run(command(*words), folder.path, **forks())
    assert done.code == 7
    assert done.stdout == "the program's own output\n", "stdout is the program's"
    assert "ran the config" in done.stderr and "0 of" not in done.stderr


def test_steps_with_the_configs_and_without_are_compared() -> None:
    folder = RunFolder(copy_of(factory(), "verified"))
    write_winners(folder, flags="unroll")
    places = {"runs/train": folder.path, "python": interpreter(), "train.py": program("verified_program")}
    words = documented("inductor-bench apply runs/train --verify -- python train.py", places)
    done = run(command(*with_options(words, "--stop", "--format", "json")), folder.path, **forks())
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)["verification"]
    assert found["way"] == "steps" and found["step"]["pairs"] >= 9
    assert {kernel["state"] for kernel in found["kernels"]} == {"pinned"}
    assert found["outputs"]["graphs"] == 2 and found["outputs"]["difference"] <= found["outputs"]["tolerance"]
    assert folder.load().verification is not None, "the record keeps it"


def test_a_config_that_changes_the_outputs_is_dropped_and_named() -> None:
    folder = RunFolder(copy_of(factory(), "wrong"))
    record = write_winners(folder, flags="unroll")
    forward = next(retune for retune in record.retunes if "tanh" in retune.name and "backward" not in retune.name)
    assert forward.file is not None
    file = folder.path / forward.file
    text = file.read_text()
    wrong = re.sub(r"std::tanh\(|(?<=\.)tanh\(\)", lambda found: found[0].replace("tanh", "sin"), text)
    assert wrong != text, "without vectors, and with them"
    file.write_text(wrong)
    words = ("--verify", "--stop", "--format", "json", "--", interpreter(), str(program("wrong_program")))
    done = apply(folder.path, *words)
    found = json.loads(done.stdout)["verification"]
    states = {kernel["name"]: kernel["state"] for kernel in found["kernels"]}
    assert states.pop(forward.name) == "dropped"
    assert set(states.values()) <= {"pinned"}
    assert found["outputs"]["difference"] <= found["outputs"]["tolerance"], "of the configs that are left"
    pinned = make_pins(folder.load(), folder)
    assert forward.kernel_id not in {pin.kernel_id for pin in pinned.pins.all}, "nor does `apply` without --verify"
    assert [left.row.name for left in pinned.unpinned] == [forward.name]
    assert "changes the outputs" in pinned.unpinned[0].reason


def test_a_program_that_fails_while_its_steps_are_timed_is_called_failed() -> None:
    folder = RunFolder(copy_of(factory(), "failing"))
    write_winners(folder, flags="unroll")
    path = program("failing_program")
    path.write_text(PROGRAM.replace("range(200)", "range(24)").replace("sys.exit(7)", "raise ValueError('no data')"))
    done = apply(folder.path, "--verify", "--format", "json", "--", interpreter(), str(path))
    found = json.loads(done.stdout)["verification"]
    assert {kernel["state"] for kernel in found["kernels"]} == {"pinned"}, "what was compared ran the configs"
    early, failed = (note for note in found["notes"] if not note.startswith("The machine was busy"))
    assert found["ended_early"] and "ended while its steps were timed" in early
    assert "exited with code 1" in failed and "(ValueError: no data): see " in failed
    assert "no data" in Path(failed.rpartition("see ")[2]).read_text()


def test_a_program_that_fails_before_its_steps_is_called_failed() -> None:
    folder = RunFolder(copy_of(factory(), "broken"))
    write_winners(folder, flags="unroll")
    path = program("broken_program")
    path.write_text(PROGRAM.replace("range(200)", "range(2)").replace("sys.exit(7)", "raise ValueError('no data')"))
    done = apply(folder.path, "--verify", "--", interpreter(), str(path))
    assert done.code == 1
    words = " ".join(done.stderr.split())
    assert "the program exited with code 1" in words and "(ValueError: no data) before its steps had settled" in words
    assert "compare.log" in words


def test_a_program_that_is_ended_after_its_steps_has_said_what_it_runs(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "ended"))
    pinned = make_pins(write_winners(folder, flags="unroll"), folder)
    path = program("ended_program")
    path.write_text(PROGRAM.replace("sys.exit(7)", "import os; os._exit(0)"))
    environment = make_pinned_environment(set_mode(pinned, APPLY), tmp_path, os.environ, "steps")
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(SITE), "a process that is no fork starts there"
    subprocess.run([interpreter(), path], env=environment, check=True, capture_output=True)
    states = join_states(read_states(tmp_path))
    assert {state.state for state in states.values()} == {PINNED} and len(states) == len(pinned.pins.all)


def test_the_folder_says_what_cannot_be_in_the_table() -> None:
    folder = RunFolder(copy_of(factory(), "written"))
    record = write_winners(folder, flags="unroll")
    done = apply(folder.path)
    assert done.code == 0
    page = (folder.path / "tuned" / "README.md").read_text()
    assert "a C++ kernel has no entry in the table" in page
    assert not (folder.path / "tuned" / "tuned.py").exists(), "an empty table needs no module"
    table, left = lookup_table(make_pins(record, folder))
    assert not table and len(left) == len(record.retunes)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"backend": "aten", "cudnn_benchmark": True}, "modes PROGRAM --with cudnn-benchmark"),
        ({"threads": 2}, "torch.set_num_threads"),
        ({"backend": "triton", "template": "mm", "BLOCK_M": 64}, "its standalone file is missing"),
    ],
)
def test_a_setting_of_a_library_is_named_and_not_pinned(config: Config, words: str, tmp_path: Path) -> None:
    winner = replace(make_retune("aten_call_0", "c" * 16, "aten_call_0.py", config), category=Category.EXTERN_CONV)
    with pytest.raises(InductorBenchError, match=re.escape(words)):
        make_pin(winner, RunFolder(tmp_path))


def _product(place: Path, operator: str = "aten.mm", added: int = 0) -> list[InputLayout]:
    """Writes the file of a product; returns the layouts of its factors."""
    shapes = [([32000], [1])] * added + [([1, 2048], [0, 1]), ([2048, 32000], [1, 2048])]
    views = [TensorView(0, 0, tuple(shape), tuple(stride), "bfloat16", 2) for shape, stride in shapes]
    arguments = (*(Argument("tensor", view) for view in views), Argument("none"))
    keywords = {"alpha": Argument("int", integer=2), "out": Argument("tensor", views[0])}
    launch = Launch("", f"{operator}.out", 1, (0,), (), arguments, keywords, ())
    recorded = {"launch": codec.encode(launch), "device_type": "cuda"}
    (place / "aten_call_0.py").write_text(f"RECORDED = {recorded!r}")
    return [InputLayout.of("bfloat16", shape, stride) for shape, stride in shapes[added:]]


def test_calls_that_inductor_cannot_tell_apart_have_one_pin(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "alike"))
    _product(folder.path)
    config = {"backend": "triton", "template": "mm", "BLOCK_M": 64}
    configs = (config, config, {**config, "BLOCK_M": 32})
    retunes = [
        replace(
            make_retune(f"aten_call_{place}", f"{place}" * 16, "aten_call_0.py", one),
            category=Category.EXTERN_GEMM,
            time_s=(6 - place) * 2e-5,
        )
        for place, one in enumerate(configs)
    ]
    pinned = make_pins(replace(folder.load(), retunes=tuple(retunes)), folder)
    (pin,) = pinned.pins.library_pins
    assert [(one.name, one.pin) for one in pinned.pinned] == [("aten_call_0", pin), ("aten_call_1", pin)]
    assert pinned.predicted_s == pytest.approx(1.1e-4)
    (other,) = pinned.unpinned
    assert other.reason == "a process cannot tell it from aten_call_0, which has another config"
    table, left = lookup_table(pinned)
    assert (table, left) == ({}, {pin.kernel_id: "the table is for generated kernels"})
    assert write_page(folder.load(), folder, pinned, left).count("the table is for generated kernels") == 2

    states = {pin.kernel_id: PinState(pin.kernel_id, pin.name, PINNED, config)}
    kernels = describe_kernels(pinned, states, (), {})
    assert [(one.name, one.state) for one in kernels] == [
        ("aten_call_0", "pinned"),
        ("aten_call_1", "pinned"),
        ("aten_call_2", "unpinnable"),
    ]
    assert sum_predicted_savings_s(kernels) == pytest.approx(1.1e-4)
    dropped = describe_kernels(pinned, states, (pin.kernel_id,), {})
    run = add_verification(replace(folder.load(), retunes=tuple(retunes)), Verification("steps", 0.0, kernels=dropped))
    (left_over,) = make_pins(run, folder).pins.all
    assert left_over.name == "aten_call_2", "a dropped config does not come back by its twin"


@pytest.mark.parametrize(("operator", "added"), [("aten.mm", 0), ("aten.addmm", 1)])
def test_the_pin_of_a_library_call_holds_the_layouts_of_its_factors(operator: str, added: int, tmp_path: Path) -> None:
    first, second = _product(tmp_path, operator, added)
    config = {"backend": "triton", "template": "mm", "BLOCK_M": 64}
    winner = replace(make_retune("aten_call_0", "c" * 16, "aten_call_0.py", config), category=Category.EXTERN_GEMM)
    pin, key = make_pin(winner, RunFolder(tmp_path))
    assert pin == LibraryPin(
        "aten_call_0", "c" * 16, operator, (first, second), {str(2 + added): None, "alpha": 2}, config
    )
    assert key is None
    assert codec.decode(LibraryPin, codec.encode(pin)) == pin


@pytest.mark.parametrize("on_host", [True, False])
def test_a_choice_is_for_the_device_of_its_call(on_host: bool) -> None:
    pin = LibraryPin("aten_bmm_0", "b" * 16, "aten.bmm", (), {}, {"backend": "cpp"}, on_host=on_host)
    pins = Pins(APPLY, "digest", "2.13", None, library_pins=(pin,))
    there = change(Environment(), torch="2.13", triton=None, accelerator=None, cpu="a CPU")
    require_same(pins, there, there)
    for other, refused in ((change(there, triton="3.6.0"), not on_host), (change(there, cpu="another"), on_host)):
        with pytest.raises(InductorBenchError) if refused else contextlib.nullcontext():
            require_same(pins, there, other)


def test_other_versions_are_refused() -> None:
    folder = RunFolder(copy_of(factory(), "refused"))
    record = write_winners(folder, flags="unroll")
    folder.save(replace(record, environment=change(record.environment, torch="2.9.9")))
    done = apply(folder.path, "--", interpreter(), "-c", "print('never')")
    assert done.code == 1 and done.stdout == ""
    assert "torch 2.9.9, here" in done.stderr and "may be slow here" in done.stderr


def test_a_run_without_retunes_says_what_to_type() -> None:
    done = apply(factory().folder)
    assert done.code == 1
    assert "has no retunes" in done.stderr and "--autotune coordesc" in done.stderr
    for words in (("--verify",), ("--stop",)):
        asked = apply(factory().folder, *words)
        assert asked.code == 2 and "need a program" in asked.stderr


@pytest.mark.parametrize(("chosen", "shown"), [(64, {}), (128, {"XBLOCK": 128, "num_warps": 4})])
def test_inductors_choice_in_the_program_is_held_against_that_of_the_run(chosen: int, shown: dict[str, int]) -> None:
    pin = TritonPin("k" * 64, "", "triton_poi_0", "p" * 16, {"XBLOCK": 32, "num_warps": 4})
    pins = Pins(APPLY, "digest", "2.11", "3.6", triton_pins=(pin,))
    pinned = PinnedRun(pins, {}, {}, own_configs={pin.kernel_id: {"XBLOCK": 64, "num_warps": 4, "maxnreg": 64}})
    own = {"XBLOCK": chosen, "num_warps": 4}
    states = {pin.kernel_id: PinState(pin.kernel_id, pin.name, PINNED, pin.config, own_config=own)}
    (kernel,) = describe_kernels(pinned, states, (), {})
    assert kernel.own_config == shown
