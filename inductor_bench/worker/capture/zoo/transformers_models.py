"""Models of transformers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....errors import InductorBenchError
from .example import BROKEN, Example, broken, library, unknown

if TYPE_CHECKING:
    import torch

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


def build(name: str, batch_size: int, training: bool) -> Example:
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
