"""Lists of models: every form that people have them in, and what is said of those that cannot be read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from conftest import ROOT

from inductor_bench.errors import UsageError
from inductor_bench.records.batch_record import BatchModel
from inductor_bench.records.request import ModelRequest
from inductor_bench.workflows.batch_state import list_breakdown_words
from inductor_bench.workflows.model_list import merge_batch_options, read_list, select_requests


def listed(folder: Path, text: str, name: str = "list.txt") -> tuple[ModelRequest, ...]:
    (folder / name).write_text(text)
    return read_list(folder / name)


def pairs(requests: tuple[ModelRequest, ...]) -> list[tuple[str, int | None]]:
    return [(request.target, request.batch_size) for request in requests]


def test_both_forms_with_comments_and_blanks(tmp_path: Path) -> None:
    text = (
        "\ufeff# timm\n\nresnet18 128\r\n  vit_b \t 8   # small\nBertForMaskedLM,4\nT5Small , 2\ntorchvision:alexnet\n"
    )
    found = listed(tmp_path, text)
    assert pairs(found) == [
        ("timm:resnet18", 128),
        ("timm:vit_b", 8),
        ("transformers:BertForMaskedLM", 4),
        ("transformers:T5Small", 2),
        ("torchvision:alexnet", None),
    ]
    assert [request.line for request in found] == [3, 4, 5, 6, 7]
    assert [request.name for request in found] == ["resnet18", "vit_b", "BertForMaskedLM", "T5Small", "alexnet"]


def test_files_are_found_beside_the_list(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    found = listed(tmp_path, "model.py\nmodel.py:make\n")
    assert [request.target for request in found] == [f"{tmp_path}/model.py", f"{tmp_path}/model.py:make"]
    assert [request.name for request in found] == ["model", "model-make"]


@pytest.mark.parametrize(("name", "count"), [("timm", 18), ("huggingface", 10), ("smoke", 4)])
def test_the_lists_that_come_with_it(name: str, count: int) -> None:
    found = read_list(ROOT / "configs" / f"{name}.txt")
    assert len(found) == count and all(request.batch_size for request in found)
    source = {"huggingface": "transformers"}.get(name, "timm")
    assert all(request.target.startswith(f"{source}:") for request in found)


def test_bare_names_are_whose_one_says(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("resnet18 4\ntimm:vit_b\n")
    assert [request.target for request in read_list(tmp_path / "list.txt", "torchvision")] == [
        "torchvision:resnet18",
        "timm:vit_b",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 8\n\nb 0\n", "line 3: the batch size of b is '0', not a whole number"),
        ("a,eight\n", "line 1: the batch size of a is 'eight'"),
        ("a -4\n", "line 1: the batch size of a is '-4'"),
        ("a 8 x\n", "line 1: 'a 8 x' is not a name and a batch size"),
        (",8\n", "line 1: ',8' is not a name"),
        ("a 8\nb 4\na 8\n", "line 3: timm:a stands on line 1 already"),
        ("timm:\n", "line 1: timm: needs a model name"),
        ("gone.py\n", "line 1: gone.py does not exist"),
        ("gone.py:make 4\n", "line 1: gone.py does not exist"),
        ("keras:resnet\n", "line 1: keras: is not a source of models; these are: timm:, torchvision:, transformers:"),
        ("# nothing\n\n", "lists no model"),
        ("resnet18\n" * 500_000, "is longer than a list of models, 4,000,000 characters"),
        (
            "".join(f"a{i} x\n" for i in range(9)),
            "line 5: the batch size of a4 is 'x', not a whole number of 1 or more; and 4",
        ),
        ("\0\1", "binary data"),
    ],
)
def test_bad_lines_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        listed(tmp_path, text)
    assert message in caught.value.message and caught.value.hint


def test_the_same_model_with_other_sizes_has_another_name(tmp_path: Path) -> None:
    found = listed(tmp_path, "a 8\na 16\na\nA 2\n")
    assert [request.name for request in found] == ["a", "a-batch16", "a-2", "A-batch2"]


def test_what_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_list(tmp_path / "gone.txt")
    with pytest.raises(UsageError, match="is a folder, not a list"):
        read_list(tmp_path)
    (tmp_path / "mine.txt").write_text("a\n")
    with pytest.raises(UsageError) as caught:
        read_list(tmp_path)
    assert caught.value.hint == f"try: inductor-bench batch {tmp_path / 'mine.txt'}"
    (tmp_path / "batch.json").write_text("{}")
    with pytest.raises(UsageError, match="is a batch, not a list"):
        read_list(tmp_path)


YAML = """\
defaults:
  training: true
  amp: bf16
  batch_size: 8
models:
  - resnet18
  - target: transformers:BertForMaskedLM
    batch_size: 2
    training: false
    mode: max-autotune
  - target: train.py
    args: --lr 0.1
    timeout: 60
  - {target: "train.py:make", name: mine, dynamic: true, seed: 3}
"""


def test_yaml_with_defaults(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    first, bert, script, factory = listed(tmp_path, YAML, "list.yaml")
    assert (first.target, first.batch_size, first.training, first.amp) == ("timm:resnet18", 8, True, "bfloat16")
    assert (bert.batch_size, bert.training, bert.mode, bert.amp) == (2, False, "max-autotune", "bfloat16")
    assert (script.arguments, script.timeout_s) == (("--lr", "0.1"), 60.0)
    assert (script.training, script.amp, script.batch_size) == (None, None, None), "it decides these itself"
    assert (factory.name, factory.dynamic, factory.seed, factory.training) == ("mine", True, 3, True)
    assert factory.batch_size is None and [request.line for request in (first, bert, script, factory)] == [6, 7, 11, 14]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models:\n  - target: a\n    batch_size: many\n", "line 3: batch_size should be a whole number of 1 or more"),
        ("models:\n  - target: a\n    batch_size: 0\n", "line 3: batch_size should be"),
        ("models:\n  - target: a\n    training: yes please\n", "line 3: training should be true or false"),
        ("models:\n  - target: a\n    colour: red\n", "line 3: colour is no option"),
        ("models:\n  - target: a\n    mode: fastest\n", "line 3: mode should be default or reduce-overhead"),
        ("models:\n  - batch_size: 2\n", "line 2: this model has no `target`"),
        ("models:\n  - a\n  - [b, c]\n", "line 3: a model is a target"),
        ("models:\n  - target: a\n    args: [x]\n", "line 2: args go to a script"),
        ("models:\n  - a\n  - a\n", "line 3: timm:a stands on line 2 already"),
        ("models:\n  - target: a\n    seed: 1\n    seed: 2\n", "line 4: seed is given twice"),
        ("defaults:\n  speed: 1\nmodels: [a]\n", "line 2: speed is no option"),
        ("defaults: {}\n", "has no list `models:`"),
        ("model: [a]\nmodels: [a]\n", "line 1: model is neither"),
        ("models: [a\n", "line 2: "),
        ("just words\n", "is no list of models"),
        ("", "is no list of models"),
    ],
)
def test_bad_yaml_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        listed(tmp_path, text, "list.yml")
    assert message in caught.value.message


def requests(*names: str) -> tuple[ModelRequest, ...]:
    return tuple(ModelRequest(f"timm:{name}", name=name) for name in names)


@pytest.mark.parametrize(
    ("filters", "excludes", "shard", "left"),
    [
        ((), (), None, "vit_a vit_b resnet_a resnet_b"),
        (("vit",), (), None, "vit_a vit_b"),
        (("*_a",), (), None, "vit_a resnet_a"),
        (("vit", "*_b"), ("resnet",), None, "vit_a vit_b"),
        ((), ("vit_?",), None, "resnet_a resnet_b"),
        ((), (), (1, 2), "vit_a resnet_a"),
        ((), (), (2, 2), "vit_b resnet_b"),
        (("resnet",), (), (2, 2), "resnet_b"),
    ],
)
def test_some_are_chosen(
    filters: tuple[str, ...], excludes: tuple[str, ...], shard: tuple[int, int] | None, left: str
) -> None:
    chosen = select_requests(requests("vit_a", "vit_b", "resnet_a", "resnet_b"), filters, excludes, shard)
    assert " ".join(request.name for request in chosen) == left


def test_shards_are_all_and_none_twice() -> None:
    every = requests(*(f"m{i}" for i in range(11)))
    shards = [select_requests(every, (), (), (i, 4)) for i in range(1, 5)]
    assert sorted(r.name for shard in shards for r in shard) == sorted(r.name for r in every)


def test_a_selection_without_models_is_refused() -> None:
    with pytest.raises(UsageError, match="leave none of the 1 models"):
        select_requests(requests("a"), ("b",), (), None)
    with pytest.raises(UsageError, match="shard 2/2 is empty"):
        select_requests(requests("a"), (), (), (2, 2))


def test_options_of_the_whole_batch_go_where_they_fit() -> None:
    every = [
        ModelRequest("timm:a", name="a", batch_size=8),
        ModelRequest("/x/s.py", name="s"),
        ModelRequest("/x/s.py:make", name="f"),
    ]
    model, script, factory = merge_batch_options(every, {"training": True, "batch_size": 2, "repeat": 5})
    assert list_breakdown_words(BatchModel(model)) == ("--training", "--batch-size", "2", "--repeat", "5")
    assert list_breakdown_words(BatchModel(script)) == ("--repeat", "5")
    assert list_breakdown_words(BatchModel(factory)) == ("--training", "--repeat", "5")


def test_a_pipe_is_read_to_its_end_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nobody")
    with pytest.raises(UsageError):
        read_list(tmp_path / "nobody", "timm")
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        threading.Timer(0.2, lambda: (stream.write("resnet18 8\n"), stream.close())).start()
        (request,) = read_list(Path(f"/dev/fd/{reads}"), "timm")
    os.close(reads)
    assert request.batch_size == 8
