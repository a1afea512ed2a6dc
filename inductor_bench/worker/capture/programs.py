"""The program that a capture runs for a target that is no script: a factory in a file, or a named model.

The command is ``python -m inductor_bench.worker.capture.programs JOB``, where ``JOB`` is the path of an encoded
``RunProgram``.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import step_marks
from ...errors import InductorBenchError
from ...messages.observed import COMPARISON, OBSERVE, VARIANTS, Refusal, RunProgram
from ...records.comparison import TF32
from ...records.request import DEFAULT_BATCH_SIZE, BreakdownRequest
from ...store import codec
from ...store.files import read_json, write_message
from ..device.runtime import SharedDevice
from ..upstream.inductor import import_compiler
from . import mode_setter
from .named_models import DownloadNeededError, Example, build_model
from .observation import running

if TYPE_CHECKING:
    import torch

    from ..device.runtime import DeviceRuntime
    from .output_comparison import OutputComparison

STEPS = 3
MEASURED_S = 3.0
"""Maximum seconds of further steps for their measurement."""

COMPARED_S = 120.0
"""The same where steps with pins and without are compared. A process that tries variants runs until all are timed."""

LEARNING_RATE = 1e-6
"""So small that the weights, and with them the numbers of all steps, stay about the same in thousands of steps."""

OFFLINE = "INDUCTOR_BENCH_OFFLINE"
"""Environment variable: set where downloads are forbidden."""


def main(arguments: list[str]) -> int:
    job = codec.decode(RunProgram, read_json(Path(arguments[0])))
    try:
        run_program(job.request)
    except InductorBenchError as error:
        kind = "download" if isinstance(error, DownloadNeededError) else "program"
        write_message(Path(job.refusal), codec.encode(Refusal(kind, error.message, error.hint)))
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return 1
    return 0


def run_program(request: BreakdownRequest) -> None:
    """Compiles the model of a request and runs it :data:`STEPS` times, and further until its steps are measured.

    Raises:
        InductorBenchError: the model cannot be built or trained, or the device is missing.
    """
    import torch

    from ..device.runtimes import best_device_type, open_device

    torch.manual_seed(request.seed or 0)
    device = request.device or best_device_type()
    runtime, place = open_device(device)
    training = request.training
    shared = SharedDevice()
    if request.kind == "factory":
        if os.environ.get(OFFLINE):
            torch.hub.download_url_to_file = _refuse_download
        shared.use()
        example = Example(*_call_factory(request.place))
    else:
        example = build_model(request.kind, request.place, request.batch_size or DEFAULT_BATCH_SIZE, bool(training))
        import_compiler()
    shared.use()
    shared.leave_while_compiling(request.mode)
    function, inputs, keywords = _place(example, device)
    loss = example.loss or _sum_of_means
    if training is None:
        training = request.kind == "factory" and isinstance(function, torch.nn.Module) and function.training
    if isinstance(function, torch.nn.Module):
        function.train(training)
    precision: AbstractContextManager[Any] = torch.autocast(
        place.type, dtype=_dtype(request.amp), enabled=request.amp is not None
    )
    comparison = _compare(function, inputs, keywords, runtime, precision, request)
    compiled: Callable[..., Any] = torch.compile(function, mode=request.mode, dynamic=request.dynamic)
    if comparison is not None:
        compiled = comparison.noting(compiled)

    optimizer = _optimizer(function, request.optimizer) if training and request.optimizer else None

    def run() -> None:
        if training:
            if optimizer is not None:
                optimizer.zero_grad()
            with precision:
                value = loss(compiled(*inputs, **keywords))
            _backward(value)
            if optimizer is not None:
                optimizer.step()
        else:
            with precision, torch.no_grad():
                compiled(*inputs, **keywords)

    _run_steps(run)
    runtime.synchronize()
    if comparison is not None:
        for setter in mode_setter.active:
            setter.note_agreement(comparison.result())


def _compare(
    function: Any,
    inputs: tuple[Any, ...],
    keywords: Any,
    runtime: DeviceRuntime,
    autocast: AbstractContextManager[Any],
    request: BreakdownRequest,
) -> OutputComparison | None:
    """Runs the function without compilation where its outputs are compared; otherwise ``None``."""
    change = next((setter.change for setter in mode_setter.active if setter.change.compares), None)
    if change is None:
        return None
    from .output_comparison import OutputComparison

    precision = _dtype(request.amp) if request.amp else None
    return OutputComparison(
        function, inputs, keywords, runtime, autocast=autocast, precision=precision, tf32=TF32 in change.switches
    )


def _run_steps(run: Callable[[], None]) -> None:
    """Runs :data:`STEPS` steps, and more until they are measured where this process is observed."""
    begin_s, limit_s = 0.0, COMPARED_S if os.environ.get(OBSERVE) == COMPARISON else MEASURED_S
    if os.environ.get(VARIANTS):
        limit_s = math.inf
    for number in itertools.count():
        if number >= STEPS:
            begin_s = begin_s or time.perf_counter()
            if all(one.is_done for one in running) or time.perf_counter() - begin_s > limit_s:
                return
        run()
        step_marks.step()


def _optimizer(function: Any, name: str) -> torch.optim.Optimizer | None:
    """The optimizer of a module's parameters; ``None`` without any."""
    import torch

    parameters = [one for one in function.parameters() if one.requires_grad] if hasattr(function, "parameters") else []
    made: type[Any] = getattr(torch.optim, name)
    return made(parameters, lr=LEARNING_RATE) if parameters else None


def _backward(loss: torch.Tensor) -> None:
    if not loss.requires_grad:
        raise InductorBenchError(
            "the factory's output needs no gradient, so there is nothing to train", "use --inference"
        )
    loss.backward()


def _refuse_download(url: str, *_: object, **__: object) -> None:
    raise DownloadNeededError(f"{url} has to be downloaded, and nothing is fetched", "download it before")


def _call_factory(place: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    file, _, name = place.rpartition(":")
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InductorBenchError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    factory = getattr(module, name, None)
    if not callable(factory):
        known = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise InductorBenchError(f"{file} has no function {name}", f"it has: {known}" if known else "")
    made = factory()
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise InductorBenchError(
            f"{place} must return (module_or_function, example_inputs) but returned {type(made).__name__}"
        )
    inputs = made[1]
    return made[0], tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)


def _place(example: Example, device: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    function: Any = example.function
    if isinstance(function, torch.nn.Module):
        function = function.to(device)
    inputs, keywords = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda value: value.to(device), (example.inputs, example.keywords)
    )
    return function, inputs, keywords


def _sum_of_means(output: Any) -> torch.Tensor:
    import torch

    leaves = torch.utils._pytree.tree_leaves(output)
    values = [leaf.float().mean() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if not values:
        raise InductorBenchError("the factory's output holds no floating-point tensor to train on", "use --inference")
    return torch.stack(values).sum()


def _dtype(amp: str | None) -> torch.dtype:
    import torch

    names = {"float16": torch.float16, "fp16": torch.float16, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
    return names[amp] if amp else torch.bfloat16


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
