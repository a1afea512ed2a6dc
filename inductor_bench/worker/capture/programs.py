"""The program that a capture runs for a target that is no script: a factory in a file, or a named model.

The command is ``python -m inductor_bench.worker.capture.programs JOB``, where ``JOB`` is the path of an encoded
``RunProgram``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import itertools
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import step_marks
from ...errors import InductorBenchError
from ...messages.observed import COMPARISON, OBSERVE, VARIANTS, Refusal, RunProgram
from ...records.comparison import TF32
from ...records.request import DEFAULT_BATCH_SIZE, BreakdownRequest
from ...records.request_fields import LIBRARIES
from ...store import codec
from ...store.files import read_json, write_message
from ..device.runtime import SharedDevice
from ..upstream.inductor import import_compiler
from . import mode_setter
from .observation import running

if TYPE_CHECKING:
    import torch

    from ..device.runtime import DeviceRuntime
    from .output_comparison import OutputComparison


# A model with its inputs, and what all libraries of models share.


Loss = Callable[[Any], Any]

BROKEN = (ImportError, RuntimeError, AttributeError, OSError, TypeError, ValueError, SyntaxError)
"""Exceptions with which a library of another version fails to load."""


class DownloadNeededError(InductorBenchError):
    """The model needs a download, and downloads are forbidden."""


@dataclass
class Example:
    """A model and its inputs. ``loss`` computes a scalar from its output; ``None`` stands for the sum of the means."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None


def cross_entropy(labels: torch.Tensor) -> Loss:
    """The loss of a classifier with these labels."""
    import torch

    def loss(output: Any) -> Any:
        logits = output[0] if isinstance(output, tuple | list) else output
        return torch.nn.functional.cross_entropy(logits.float(), labels.to(logits.device))

    return loss


def make_unknown_name_error(library: str, name: str, known: Iterable[str]) -> InductorBenchError:
    """Returns the error for a name that the library does not have, with similar names."""
    near = ", ".join(difflib.get_close_matches(name, list(known), n=5))
    return InductorBenchError(f"{library} has no model {name}", f"near names: {near}" if near else "")


def import_library(kind: str, module: str = "") -> Any:
    """Imports a library of models, by its kind in ``records.request_fields``, or a module of it.

    Raises:
        InductorBenchError: the library is not installed, or its import fails.
    """
    name = module or kind
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            raise InductorBenchError(f"{kind} is not installed", LIBRARIES[kind].install) from error
        raise make_broken_library_error(kind, error) from error
    except BROKEN as error:
        raise make_broken_library_error(kind, error) from error


def make_broken_library_error(kind: str, error: BaseException) -> InductorBenchError:
    """Returns the error for a library that is installed but fails to load. The library's message decides the hint."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = (str(error).splitlines() or [""])[0]
    return InductorBenchError(f"{kind} is installed but broken: {type(error).__name__}: {first}")


# Builds a named model of a library. It downloads nothing: a name that needs a download raises an error.


def build_model(source: str, name: str, batch_size: int, training: bool) -> Example:
    """Builds a named model.

    Args:
        source: the library, by its prefix in ``records.request_fields``.
        name: the name of the model in the library.
        batch_size: the batch size of the inputs.
        training: whether the inputs include labels.

    Raises:
        InductorBenchError: the library or the model is missing, the model needs a download, or the kind of its inputs
            is unknown.
    """
    row = LIBRARIES[source]
    if any(mark in name for mark in row.download_marks):
        raise DownloadNeededError(
            f"{name} has to be downloaded, and this tool downloads nothing",
            "write a factory that builds it: FILE.py:FACTORY",
        )
    example: Example = globals()[row.builder](name, batch_size, training)
    return example


# Models of timm.


def build_timm(name: str, batch_size: int, training: bool) -> Example:
    """A classifier of timm and a batch of images."""
    import torch

    timm = import_library("timm")
    if not timm.is_model(name):
        raise make_unknown_name_error("timm", name, timm.list_models())
    model = timm.create_model(name, pretrained=False)
    settings: dict[str, Any] = dict(model.pretrained_cfg)
    size = tuple(settings.get("input_size") or (3, 224, 224))
    classes = getattr(model, "num_classes", 0) or 1000
    labels = torch.randint(0, classes, (batch_size,))
    return Example(model, (torch.randn(batch_size, *size),), loss=cross_entropy(labels))


# Models of torchvision.


def build_torchvision(name: str, batch_size: int, training: bool) -> Example:
    """A classifier or a segmentation model of torchvision and a batch of images or videos."""
    import torch

    models = import_library("torchvision", "torchvision.models")
    if name not in models.list_models():
        raise make_unknown_name_error("torchvision", name, models.list_models())
    package = models.get_model_builder(name).__module__
    if re.search(r"\.(detection|optical_flow|quantization)\b", package):
        raise InductorBenchError(
            f"{name} takes other inputs than a batch of images", "write a factory that makes them: FILE.py:FACTORY"
        )
    options = {"weights_backbone": None} if ".segmentation" in package else {}
    model = models.get_model(name, weights=None, **options)
    transforms = models.get_model_weights(name).DEFAULT.transforms  # only the settings: this fetches nothing
    crop = getattr(transforms, "keywords", {}).get("crop_size", 224)
    size = tuple(crop) if isinstance(crop, tuple | list) else (crop, crop)
    shape = (3, 16, *size) if ".video" in package else (3, *size)
    loss = None if ".segmentation" in package else cross_entropy(torch.randint(0, 10, (batch_size,)))
    return Example(model, (torch.randn(batch_size, *shape),), loss=loss)


# Models of transformers.


LANGUAGE_LENGTHS = (
    (r"Blenderbot|MobileBert|DistilBert|M2M100|Pegasus|XGLM", 128),
    (r"GPT2|Bart|PLBart|MBart|T5|MT5|Longformer|BigBird", 1024),
    (r"OPT", 2048),
    (r"Reformer", 4096),
)
"""Number of input tokens in PyTorch's own benchmark suite, by a pattern for the beginning of the model's name. Other
models have :data:`USUAL_LENGTH`."""

USUAL_LENGTH = 512

SUITE_NAMES = {
    "AllenaiLongformerBase": "LongformerForMaskedLM",
    "CamemBert": "CamembertForMaskedLM",
    "DistillGPT2": "GPT2LMHeadModel",
    "GoogleFnet": "FNetForMaskedLM",
    "Reformer": "ReformerForMaskedLM",
    "T5Small": "T5ForConditionalGeneration",
    "YituTechConvBert": "ConvBertForMaskedLM",
}
"""Classes of transformers with their default configuration, by the name in PyTorch's own benchmark suite."""

_PADDED_POSITIONS = r"[Rr]oberta|Camembert|Longformer|MPNet|Data2VecText|^Esm"
"""Classes that number the positions of tokens from the padding's id on, and need that many further positions."""

_PER_SAMPLE = re.compile(r"For(SequenceClassification|ImageClassification|AudioClassification|NextSentence)")
_PER_TOKEN = re.compile(r"For(MaskedLM|CausalLM|ConditionalGeneration|TokenClassification|PreTraining)|LMHeadModel")


def build_transformers(name: str, batch_size: int, training: bool) -> Example:
    """A model of transformers by its class, and inputs of the sizes that PyTorch's suite uses."""
    transformers = import_library("transformers")
    try:
        model_class = getattr(transformers, SUITE_NAMES.get(name, name), None)
    except BROKEN as error:
        raise make_broken_library_error("transformers", error) from error
    if getattr(model_class, "config_class", None) is None:
        raise make_unknown_name_error("transformers", name, [known for known in dir(transformers) if "For" in known])
    config = model_class.config_class()  # type: ignore[union-attr]
    if name == "DistillGPT2":
        config.n_layer = 6
    config.use_cache = False
    config.return_dict = True
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    if re.search(_PADDED_POSITIONS, SUITE_NAMES.get(name, name)):
        config.max_position_embeddings += config.pad_token_id + 1
    model = model_class(config)  # type: ignore[misc]
    keywords = _make_transformers_inputs(name, model, config, batch_size)
    labels = _make_transformers_labels(type(model).__name__, keywords, config) if training else {}
    return Example(model, (), {**keywords, **labels}, (lambda output: output.loss) if labels else None)


def _make_transformers_inputs(name: str, model: Any, config: Any, batch_size: int) -> dict[str, Any]:
    import torch

    main = model.main_input_name
    if main == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, tuple | list) else (size, size)
        return {main: torch.randn(batch_size, getattr(config, "num_channels", 3), height, width)}
    if main == "input_values":
        return {main: torch.randn(batch_size, 16_000)}
    if main != "input_ids":
        raise InductorBenchError(
            f"{name} takes {main}, and this tool knows no example of such an input", "write a factory: FILE.py:FACTORY"
        )
    text = config.get_text_config()
    length = next((size for pattern, size in LANGUAGE_LENGTHS if re.match(pattern, name)), USUAL_LENGTH)
    places = getattr(text, "max_position_embeddings", None) or 0
    length = min(length, places) if places > 0 else length
    if re.search(_PADDED_POSITIONS, type(model).__name__):
        length = min(length, places - config.pad_token_id - 1)
    tokens = torch.randint(0, text.vocab_size, (batch_size, length))
    if config.is_encoder_decoder:
        return {main: tokens, "decoder_input_ids": torch.randint(0, text.vocab_size, (batch_size, length))}
    return {main: tokens}


def _make_transformers_labels(name: str, keywords: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The keyword arguments that make the model compute its own loss; empty if they are unknown."""
    import torch

    main = next(iter(keywords.values()))
    if "QuestionAnswering" in name:
        places = torch.randint(0, main.shape[1], (2, main.shape[0]))
        return {"start_positions": places[0], "end_positions": places[1]}
    if _PER_SAMPLE.search(name):
        return {"labels": torch.randint(0, config.num_labels, main.shape[:1])}
    if _PER_TOKEN.search(name) and main.dim() == 2 and "PreTraining" not in name:
        many = config.num_labels if "Token" in name else config.get_text_config().vocab_size
        return {"labels": torch.randint(0, many, main.shape)}
    return {}


STEPS = 3
MEASURED_S = 3.0
"""Maximum seconds of further steps for their measurement."""

COMPARED_S = 120.0
"""Maximum seconds for a comparison of steps with and without pins. A process with variants runs until all are timed."""

LEARNING_RATE = 1e-6
"""The learning rate. It is small enough that the weights and all numbers stay about the same over thousands of
steps."""

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

    from ..device.runtimes import find_best_device_type, open_device

    torch.manual_seed(request.seed or 0)
    device = request.device or find_best_device_type()
    runtime, place = open_device(device)
    training = request.training
    shared = SharedDevice()
    if request.kind == "factory":
        if os.environ.get(OFFLINE):
            torch.hub.download_url_to_file = _refuse_download
        shared.take_turn()
        example = Example(*_call_factory(request.place))
    else:
        example = build_model(request.kind, request.place, request.batch_size or DEFAULT_BATCH_SIZE, bool(training))
        import_compiler()
    shared.take_turn()
    shared.release_turn_while_compiling(request.mode)
    function, inputs, keywords = _place(example, device)
    loss = example.loss or _sum_of_means
    if training is None:
        training = request.kind == "factory" and isinstance(function, torch.nn.Module) and function.training
    if isinstance(function, torch.nn.Module):
        function.train(training)
    precision: AbstractContextManager[Any] = torch.autocast(
        place.type, dtype=_find_dtype(request.amp), enabled=request.amp is not None
    )
    comparison = _compare(function, inputs, keywords, runtime, precision, request)
    compiled: Callable[..., Any] = torch.compile(function, mode=request.mode, dynamic=request.dynamic)
    if comparison is not None:
        compiled = comparison.keeping_first_outputs(compiled)

    optimizer = _make_optimizer(function, request.optimizer) if training and request.optimizer else None

    def run() -> None:
        if training:
            if optimizer is not None:
                optimizer.zero_grad()
            with precision:
                value = loss(compiled(*inputs, **keywords))
            _run_backward(value)
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
    """Runs the function without compilation if its outputs are to be compared; otherwise returns ``None``."""
    change = next((setter.change for setter in mode_setter.active if setter.change.compares), None)
    if change is None:
        return None
    from .output_comparison import OutputComparison

    precision = _find_dtype(request.amp) if request.amp else None
    return OutputComparison(
        function, inputs, keywords, runtime, autocast=autocast, precision=precision, tf32=TF32 in change.switches
    )


def _run_steps(run: Callable[[], None]) -> None:
    """Runs :data:`STEPS` steps, and more until they are measured if this process is observed."""
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


def _make_optimizer(function: Any, name: str) -> torch.optim.Optimizer | None:
    """The optimizer of a module's parameters; ``None`` without any."""
    import torch

    parameters = [one for one in function.parameters() if one.requires_grad] if hasattr(function, "parameters") else []
    made: type[Any] = getattr(torch.optim, name)
    return made(parameters, lr=LEARNING_RATE) if parameters else None


def _run_backward(loss: torch.Tensor) -> None:
    if not loss.requires_grad:
        raise InductorBenchError(
            "the factory's output needs no gradient, so there is nothing to train", "use --inference"
        )
    loss.backward()


def _refuse_download(url: str, *_: object, **__: object) -> None:
    raise DownloadNeededError(f"{url} has to be downloaded, and this tool downloads nothing", "download it before")


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


def _find_dtype(amp: str | None) -> torch.dtype:
    import torch

    names = {"float16": torch.float16, "fp16": torch.float16, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
    return names[amp] if amp else torch.bfloat16


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
