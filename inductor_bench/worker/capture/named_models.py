"""Models of timm, torchvision and transformers by their names, with inputs. Nothing is downloaded."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import InductorBenchError
from ...records.model_sources import LIBRARIES

if TYPE_CHECKING:
    import torch

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


def unknown(library: str, name: str, known: Iterable[str]) -> InductorBenchError:
    """The error of a name that the library does not have, with near names."""
    near = ", ".join(difflib.get_close_matches(name, list(known), n=5))
    return InductorBenchError(f"{library} has no model {name}", f"near names: {near}" if near else "")


def library(kind: str, module: str = "") -> Any:
    """A library of models, by its kind in ``records.model_sources``, or a module of it.

    Raises:
        InductorBenchError: the library is not installed, or its import fails.
    """
    name = module or kind
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            raise InductorBenchError(f"{kind} is not installed", LIBRARIES[kind].install) from error
        raise broken(kind, error) from error
    except BROKEN as error:
        raise broken(kind, error) from error


def broken(kind: str, error: BaseException) -> InductorBenchError:
    """The error of a library that is installed and fails to load; what it says about the cause leads to the hint."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = (str(error).splitlines() or [""])[0]
    return InductorBenchError(f"{kind} is installed but broken: {type(error).__name__}: {first}")


# Builds a named model of a library. It downloads nothing: a name that needs a download raises an error.


def build_model(source: str, name: str, batch_size: int, training: bool) -> Example:
    """Builds a named model.

    Args:
        source: the library, by its prefix in ``records.model_sources``.
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
            f"{name} has to be downloaded, and nothing is fetched", "write a factory that builds it: FILE.py:FACTORY"
        )
    example: Example = globals()[row.builder](name, batch_size, training)
    return example


# Models of timm.


def build_timm(name: str, batch_size: int, training: bool) -> Example:
    """A classifier of timm and a batch of images."""
    import torch

    timm = library("timm")
    if not timm.is_model(name):
        raise unknown("timm", name, timm.list_models())
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

    models = library("torchvision", "torchvision.models")
    if name not in models.list_models():
        raise unknown("torchvision", name, models.list_models())
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
    transformers = library("transformers")
    try:
        model_class = getattr(transformers, SUITE_NAMES.get(name, name), None)
    except BROKEN as error:
        raise broken("transformers", error) from error
    if getattr(model_class, "config_class", None) is None:
        raise unknown("transformers", name, [known for known in dir(transformers) if "For" in known])
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
    keywords = _transformers_inputs(name, model, config, batch_size)
    labels = _transformers_labels(type(model).__name__, keywords, config) if training else {}
    return Example(model, (), {**keywords, **labels}, (lambda output: output.loss) if labels else None)


def _transformers_inputs(name: str, model: Any, config: Any, batch_size: int) -> dict[str, Any]:
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
            f"{name} takes {main}, of which no example is known here", "write a factory: FILE.py:FACTORY"
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


def _transformers_labels(name: str, keywords: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The keyword arguments that make the model compute its own loss; empty where they are unknown."""
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
