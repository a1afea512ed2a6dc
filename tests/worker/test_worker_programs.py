"""Programs that cannot be run for a factory or a named model: the refusal that the worker leaves."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import forking_python
import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import find_remedy
from inductor_bench.messages.observed import VARIANTS, Refusal, RunProgram
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.source.standalone_header import HARNESS_END, HARNESS_TITLE
from inductor_bench.store import codec
from inductor_bench.worker.bench.bench import import_file
from inductor_bench.worker.capture import programs
from inductor_bench.worker.capture.programs import build_model

FACTORIES = """
import torch
def not_a_pair(): return "a model"
def raises(): raise ValueError("no such size: huge")
def integers(): return (lambda x: x + 1), torch.arange(9)
layer = torch.nn.Linear(3, 2)
def made(): layer.zero_grad(); return layer, torch.ones(4, 3)
def weightless(): return torch.nn.ReLU(), torch.ones(4, 3, requires_grad=True)
size = 3
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    path = tmp_path / "useless_factories.py"
    path.write_text(FACTORIES)
    return path


def refused(place: str, folder: Path, **options: str) -> Refusal:
    """Runs a factory as a worker does, and returns what it leaves."""
    job = RunProgram(BreakdownRequest(place, "factory", **options), str(folder / "refusal"))  # type: ignore[arg-type]
    (folder / "job").write_text(json.dumps(codec.encode(job)))
    assert programs.main([str(folder / "job")]) == 1
    return codec.decode(Refusal, json.loads((folder / "refusal").read_text()))


@pytest.mark.parametrize(
    ("name", "device", "message", "hint"),
    [
        ("not_a_pair", "cpu", "must return (module_or_function, example_inputs) but returned str", ""),
        ("absent", "cpu", "has no function absent", "it has: not_a_pair, raises, integers"),
        ("size", "cpu", "has no function size", "it has: not_a_pair, raises, integers"),
        ("size", "pear", "pear is no device", "cpu, cuda or cuda:N"),
    ],
)
def test_a_factory_that_is_of_no_use(
    name: str, device: str, message: str, hint: str, factories: Path, tmp_path: Path
) -> None:
    said = refused(f"{factories}:{name}", tmp_path, device=device)
    assert said.kind == "program" and message in said.message and hint in said.hint


def test_an_exception_of_a_factory_is_its_own(factories: Path) -> None:
    with pytest.raises(ValueError, match="no such size: huge"):
        programs.run_program(BreakdownRequest(f"{factories}:raises", "factory", device="cpu"))


def test_a_training_step_may_end_with_an_optimizer(factories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    gradients, weights = [], []
    for optimizer in (None, "SGD"):
        programs.run_program(BreakdownRequest(f"{factories}:made", "factory", device="cpu", optimizer=optimizer))
        layer = sys.modules["useless_factories"].layer
        gradients.append(layer.weight.grad.clone())
        weights.append(layer.weight.detach().clone())
    assert torch.equal(gradients[0], programs.STEPS * gradients[1]), "the optimizer's gradients are those of one step"
    programs.run_program(BreakdownRequest(f"{factories}:weightless", "factory", device="cpu", optimizer="AdamW"))


def test_a_program_runs_until_all_its_variants_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trial:
        @property
        def is_done(self) -> bool:
            return len(ran) == 50

    ran: list[None] = []
    monkeypatch.setattr(programs, "running", [Trial()])
    monkeypatch.setattr(programs.time, "perf_counter", lambda: 100.0 * (1 + len(ran)))
    programs._run_steps(lambda: ran.append(None))
    assert len(ran) == programs.STEPS + 1, "a breakdown ends after some seconds"
    ran.clear()
    monkeypatch.setenv(VARIANTS, "request")
    programs._run_steps(lambda: ran.append(None))
    assert len(ran) == 50


@pytest.mark.parametrize(
    ("package", "message", "hint"),
    [
        ("raise ModuleNotFoundError('No module named timm', name='timm')", "timm is not installed", "pip install"),
        ("import no_such_thing", "timm is installed but broken: ModuleNotFoundError", "install no_such_thing"),
        ("raise OSError('libcudart.so: cannot open\\nmore')", "broken: OSError: libcudart.so: cannot open", "together"),
        (
            "try:\n  raise RuntimeError('operator torchvision::nms does not exist')\n"
            "except RuntimeError as error:\n  raise ModuleNotFoundError('no model. Set more verbosity') from error",
            "timm is installed but broken: RuntimeError: operator torchvision::nms does not exist",
            "torchvision does not fit this torch",
        ),
    ],
)
def test_a_library_that_is_missing_or_broken(
    package: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text(package)
    with pytest.raises(InductorBenchError) as refusal:
        build_model("timm", "resnet18", 1, training=False)
    assert message in refusal.value.message
    assert hint in (refusal.value.hint or find_remedy(refusal.value.message))
    assert "\n" not in refusal.value.message


def test_a_model_that_does_not_exist_has_near_names(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["mixnet_s", "mixnet_xl", "resnet18"]
    library = SimpleNamespace(is_model=known.__contains__, list_models=known.copy)
    monkeypatch.setitem(sys.modules, "timm", library)  # type: ignore[arg-type]
    with pytest.raises(InductorBenchError) as refusal:
        build_model("timm", "../mixnet_x", 1, training=False)
    assert refusal.value.message == "timm has no model ../mixnet_x" and "mixnet_xl" in refusal.value.hint


# Which compiled graphs write inputs for which Inductor refuses CUDA graphs, tried with torch.


PROGRAM = """
import json

import torch
from torch._inductor.output_code import CompiledFxGraph

from inductor_bench.worker.upstream.observing import describe_graph

found, original = {}, CompiledFxGraph.__call__


def called(self, inputs):
    found.setdefault(name, []).append(describe_graph(self).writes_inputs)
    return original(self, inputs)


CompiledFxGraph.__call__ = called
name = "counter"
torch.compile(lambda x, counter: x * counter.add_(1))(torch.ones(8), torch.zeros(8))
name = "statistics"
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
model(torch.randn(4, 8)).sum().backward()
print(json.dumps(found))
"""


def test_a_graph_that_writes_an_input_is_known_and_one_that_writes_its_buffers_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without vectors, torch 2.13 writes C++ for a batch norm that does not compile.
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = forking_python.run([str(tmp_path / "program.py")])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"counter": [True], "statistics": [False, False]}


# Standalone files are imported with their harness compiled once.


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
