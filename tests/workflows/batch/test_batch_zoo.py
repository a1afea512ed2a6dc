"""Models by name: what they are called with, and what is refused. Nothing is fetched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from conftest import ROOT

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.batch_executors import OFFLINE
from inductor_bench.messages.observed import RunProgram
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store import codec
from inductor_bench.worker.capture import programs
from inductor_bench.worker.capture.programs import DownloadNeededError, Example, build_model


class Config:
    """A configuration with what every class of transformers has; a class's own settings override."""

    def __init__(self) -> None:
        self.vocab_size, self.max_position_embeddings, self.num_labels = 100, 600, 2
        self.is_encoder_decoder, self.pad_token_id, self.image_size = False, None, 32

    def get_text_config(self) -> Config:
        return self


class Places(Config):
    def __init__(self) -> None:
        super().__init__()
        self.max_position_embeddings, self.pad_token_id = 512, 1


class Endless(Config):
    def __init__(self) -> None:
        super().__init__()
        self.max_position_embeddings = -1


class Translator(Config):
    def __init__(self) -> None:
        super().__init__()
        self.is_encoder_decoder = True


def model_class(name: str, config: type[Config] = Config, main: str = "input_ids") -> type:
    def begin(self: torch.nn.Module, made: Config) -> None:
        torch.nn.Module.__init__(self)
        self.config = made

    members = {"__init__": begin, "config_class": config, "main_input_name": main}
    return type(name, (torch.nn.Module,), members)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of that name with classes of every kind."""
    library = ModuleType("transformers")
    for made in (
        model_class("BertForMaskedLM"),
        model_class("GPT2ForSequenceClassification"),
        model_class("BertForQuestionAnswering"),
        model_class("BertModel"),
        model_class("RobertaForCausalLM", Places),
        model_class("XLNetLMHeadModel", Endless),
        model_class("T5ForConditionalGeneration", Translator),
        model_class("ViTForImageClassification", main="pixel_values"),
        model_class("WhisperForConditionalGeneration", main="input_features"),
    ):
        setattr(library, made.__name__, made)
    monkeypatch.setitem(sys.modules, "transformers", library)


def shapes(example: Example) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in example.keywords.items()}


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BertForMaskedLM", {"input_ids": (3, 512), "labels": (3, 512)}),
        ("GPT2ForSequenceClassification", {"input_ids": (3, 600), "labels": (3,)}),
        ("BertForQuestionAnswering", {"input_ids": (3, 512), "start_positions": (3,), "end_positions": (3,)}),
        ("BertModel", {"input_ids": (3, 512)}),
        ("RobertaForCausalLM", {"input_ids": (3, 512), "labels": (3, 512)}),
        ("XLNetLMHeadModel", {"input_ids": (3, 512), "labels": (3, 512)}),
        ("T5Small", {"input_ids": (3, 600), "decoder_input_ids": (3, 600), "labels": (3, 600)}),
        ("ViTForImageClassification", {"pixel_values": (3, 3, 32, 32), "labels": (3,)}),
    ],
)
def test_each_class_gets_the_inputs_of_its_kind(name: str, expected: dict[str, tuple[int, ...]]) -> None:
    example = build_model("transformers", name, 3, training=True)
    assert shapes(example) == expected and example.inputs == ()
    config = example.function.config  # type: ignore[attr-defined]
    assert config.pad_token_id is not None and config.use_cache is False
    if name.startswith("Roberta"):
        assert config.max_position_embeddings == 514, "its places are counted from behind the padding's"
    if "labels" in expected:
        assert example.loss is not None and example.loss(SimpleNamespace(loss=7)) == 7
    only = build_model("transformers", name, 3, training=False)
    assert only.loss is None and not {"labels", "start_positions"} & set(only.keywords)


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("BertForMaskedML", "transformers has no model BertForMaskedML", "near names: BertForMaskedLM"),
        ("WhisperForConditionalGeneration", "takes input_features, and this tool knows no example", "factory"),
    ],
)
def test_what_cannot_be_built_is_said(name: str, message: str, hint: str) -> None:
    with pytest.raises(InductorBenchError) as caught:
        build_model("transformers", name, 1, training=False)
    assert message in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize(("source", "name"), [("timm", "hf-hub:org/name"), ("transformers", "org/name")])
def test_what_lies_elsewhere_is_refused(source: str, name: str) -> None:
    with pytest.raises(DownloadNeededError, match="has to be downloaded, and this tool downloads nothing"):
        build_model(source, name, 1, training=False)


def test_a_factory_in_a_batch_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "download_url_to_file", torch.hub.download_url_to_file)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv(*next(item for item in OFFLINE.items() if item[0] == programs.OFFLINE))
    weights = f"torch.hub.load_state_dict_from_url('http://127.0.0.1:9/weights.pth', {str(tmp_path)!r})"
    (tmp_path / "fetches.py").write_text(f"import torch\ndef weights():\n    return {weights}\n")
    request = BreakdownRequest(f"{tmp_path}/fetches.py:weights", "factory", training=False, device="cpu")
    job = RunProgram(request, str(tmp_path / "refusal.json"))
    (tmp_path / "job.json").write_text(json.dumps(codec.encode(job)))
    assert programs.main([str(tmp_path / "job.json")]) == 1
    refusal = json.loads((tmp_path / "refusal.json").read_text())
    assert refusal["kind"] == "download", "which a batch skips"
    assert "weights.pth has to be downloaded, and this tool downloads nothing" in refusal["message"]


PROGRAM = """
from inductor_bench.worker.capture.programs import build_model
for name in ("efficientnet_b1", "r3d_18", "lraspp_mobilenet_v3_large", "ssd300_vgg16", "resnt18"):
    try:
        example = build_model("torchvision", name, 2, False)
        print(name, tuple(example.inputs[0].shape), example.loss is not None)
    except Exception as error:
        print(name, error.message, error.hint)
"""


@pytest.mark.corner
@pytest.mark.slow
@pytest.mark.usefixtures("timm_imports")
def test_models_of_torchvision() -> None:
    command = [sys.executable, "-c", PROGRAM]
    out = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    lines = out.stdout.splitlines()
    assert lines[:3] == [
        "efficientnet_b1 (2, 3, 240, 240) True",
        "r3d_18 (2, 3, 16, 112, 112) True",
        "lraspp_mobilenet_v3_large (2, 3, 224, 224) False",
    ], out.stderr
    assert "ssd300_vgg16 takes other inputs than a batch of images" in lines[3] and "factory" in lines[3]
    assert "torchvision has no model resnt18" in lines[4] and "resnet18" in lines[4]
