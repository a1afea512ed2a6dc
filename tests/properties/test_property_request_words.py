"""The options of each verb: the words of a request, read by click, give the request again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_bench.autotune.methods import METHODS
from inductor_bench.cli.presentation import KINDS, make_request
from inductor_bench.devices.table import DEVICES
from inductor_bench.messages.observed import read_request
from inductor_bench.records.base import IN_RECORD
from inductor_bench.records.comparison import MODES
from inductor_bench.records.request import (
    BUDGET_S,
    RECORDED,
    VALUES_LIMIT_BYTES,
    ApplyRequest,
    BatchRequest,
    BreakdownRequest,
    CompareRequest,
    DoctorRequest,
    ExtractRequest,
    KernelRequest,
    ModesRequest,
    OptimizeRequest,
)
from inductor_bench.records.request_fields import (
    ASKED,
    GIVEN,
    ONE_WORD,
    OPTION,
    PART,
    Option,
    as_recorded,
    list_option_fields,
    list_option_words,
    list_options_by_field,
)
from inductor_bench.store import codec
from inductor_bench.workflows.model_list import read_list
from inductor_bench.workflows.modules.compile_environment import make_observed_environment

VERBS: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "breakdown": (BreakdownRequest, {}, ["a.py"]),
    "batch": (BatchRequest, {"source": Path("models.txt")}, ["models.txt"]),
    "kernel": (KernelRequest, {"targets": ("a.py",)}, ["a.py"]),
    "extract": (ExtractRequest, {"targets": ("a.py",)}, ["a.py"]),
    "apply": (ApplyRequest, {"run": None}, ["--known"]),
    "compare": (CompareRequest, {}, ["a.py"]),
    "modes": (ModesRequest, {}, ["a.py"]),
    "optimize": (OptimizeRequest, {}, ["a.py"]),
    "doctor": (DoctorRequest, {}, []),
}
"""The request of each verb, its fields that are no options, and what its command line needs beside the options."""

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
seconds = st.floats(min_value=1e-9, max_value=1e9)
counts = st.integers(min_value=1, max_value=10**9)
shards = st.integers(min_value=1, max_value=10**9 - 1)
BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    "duration": st.integers(1, 10**6).map(float),
    "seconds": seconds,
    "size": counts,
    "file": st.just(Path(__file__)),
    "pairs": st.tuples(st.text("ABC_", min_size=1, max_size=4), texts),
    "shard": st.tuples(shards, shards).map(lambda pair: (min(pair), max(pair))),
    "names": st.lists(st.from_regex(r"\d{1,3}", fullmatch=True), max_size=3).map(tuple),
    "rounds": st.integers(1, 9),
    "method": st.sampled_from(list(METHODS)),
    "type of device": st.sampled_from(list(DEVICES)),
    "compared mode": st.sampled_from(list(MODES)),
}
BY_TYPE = {"bool": st.booleans(), "int": counts, "Path": texts.map(Path), "str": texts}


def values_of(option: Option, hint: str) -> st.SearchStrategy[Any]:
    """Values of a field."""
    if option.choices:
        chosen = option.choices.values() if isinstance(option.choices, dict) else option.choices
        one: st.SearchStrategy[Any] = st.sampled_from(list(chosen))
    elif option.kind:
        one = BY_KIND[option.kind]
    else:
        one = next(values for name, values in BY_TYPE.items() if name in hint)
    several = hint.startswith("tuple") and option.kind not in ONE_WORD
    return st.lists(one, max_size=2).map(tuple) if several else one


def requests(kind: Any, names: Sequence[str], fixed: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Requests with any values of these fields, but without options that need another one."""
    values: dict[str, st.SearchStrategy[Any]] = {name: st.just(value) for name, value in fixed.items()}
    for item in fields(kind):
        part, option = item.metadata.get(PART), item.metadata.get(OPTION)
        if item.name not in names:
            continue
        if part is not None and part.form != GIVEN:  # given values are no request, and have no words
            inner = requests(part.kind, part.names, {})
            values[item.name] = st.none() | inner if part.form == ASKED else inner
        elif option is not None:
            one = values_of(option, str(item.type))
            values[item.name] = one if item.default is MISSING else st.just(item.default) | one
    return st.builds(kind, **values).filter(has_what_it_needs)


def has_what_it_needs(request: Any) -> bool:
    options = [(item, item.metadata[OPTION]) for item in fields(request) if OPTION in item.metadata]
    needs = [option.needs for item, option in options if option.needs and getattr(request, item.name) != item.default]
    return all(getattr(request, one.field) not in (None, one.refused) for one in needs if hasattr(request, one.field))


def parsed(verb: str, typed: list[str]) -> Any:
    """The request that click makes of a command line."""
    kind, fixed, words_before = VERBS[verb]
    command: click.Command = import_module(f"inductor_bench.cli.{verb}").command
    context = command.make_context(verb, [*words_before, *typed])
    return make_request(kind, {**context.params, **fixed})


@pytest.mark.parametrize("verb", VERBS)
def test_each_field_with_an_option_has_one_on_the_command_line(verb: str) -> None:
    kind = VERBS[verb][0]
    known = {item.name: item for item in import_module(f"inductor_bench.cli.{verb}").command.params}
    for one in list_option_fields(kind):
        parameter = known[one.name]
        assert "/".join([*parameter.opts[-1:], *parameter.secondary_opts]) == one.option.names[-1]
        assert one.option.kind in ("", *KINDS)
    assert parsed(verb, []) == kind(**VERBS[verb][1]), "what is not typed is at its default"


@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=20)
@given(data=st.data())
def test_the_words_of_a_request_give_it_again(verb: str, data: st.DataObject) -> None:
    kind, fixed, _ = VERBS[verb]
    request = data.draw(requests(kind, [item.name for item in fields(kind)], fixed))
    if verb == "batch" and request.search is not None:  # its limit is that of the retune, or the other way round
        retune = request.models.retune
        if retune is not None:
            budget_s = BUDGET_S if retune.budget_s is None else retune.budget_s
            request = replace(request, search=replace(request.search, optimize=True, budget_s=budget_s))
        request = replace(request, search=replace(request.search, optimize=True))
    if verb == "batch" and request.models.values_limit_bytes != VALUES_LIMIT_BYTES:
        request = replace(request, overrides={"values": RECORDED})
        assert parsed(verb, [*list_option_words(request), "--values", RECORDED]) == request
    else:
        assert parsed(verb, list(list_option_words(request))) == request


@pytest.mark.parametrize("budget_s", [0.5, 20.0, 1e6, 123456.75])
def test_a_time_is_written_without_an_exponent(budget_s: float) -> None:
    (option,) = (one.option for one in list_option_fields(OptimizeRequest) if one.name == "budget_s")
    words = list(option.words(budget_s))
    assert "e" not in words[-1] and float(words[-1]) == budget_s
    assert parsed("optimize", words).budget_s == budget_s


@settings(max_examples=20)
@given(requests(BreakdownRequest, [item.name for item in fields(BreakdownRequest)], {}))
def test_a_record_holds_a_request_but_for_where_it_is_written(request: BreakdownRequest) -> None:
    again = codec.decode(BreakdownRequest, json.loads(json.dumps(codec.encode(request))))
    assert again == as_recorded(request)
    left_out = {item.name for item in fields(request) if not item.metadata.get(IN_RECORD, True)}
    assert left_out == {"trace", "output", "force", "redact", "plots", "variables"}


@settings(max_examples=20)
@given(requests(BreakdownRequest, [item.name for item in fields(BreakdownRequest)], {}))
def test_every_option_of_a_breakdown_reaches_the_observed_program(request: BreakdownRequest) -> None:
    with TemporaryDirectory() as work, pytest.MonkeyPatch.context() as patch:
        for name, value in make_observed_environment(
            replace(request, target="a.py", kind="script"), Path(work), {}
        ).items():
            patch.setenv(name, value)
        assert read_request() == replace(as_recorded(request), kind="script")


def test_what_is_typed_for_a_batch_precedes_its_list_even_if_it_is_the_default() -> None:
    typed = ["--seed", "0", "--inference", "--amp", "fp16", "--values", "drawn", "--python", "p"]
    request = parsed("batch", typed)
    assert request.overrides == {"seed": 0, "training": False, "amp": "float16"}, "drawn is what help calls the default"
    assert request.models == BreakdownRequest(python="p")


def test_a_list_of_models_takes_the_options_of_batch(tmp_path: Path) -> None:
    values = {
        **{"timeout": 5, "training": True, "optimizer": "SGD", "batch_size": 8, "mode": "max-autotune"},
        **{"dynamic": False, "amp": "bf16"},
        **{"device": "cpu", "seed": 3, "live": True, "repeat": 4, "values": "recorded"},
    }
    assert list(values) == [one.option.key for one in list_options_by_field(BatchRequest)["overrides"]]
    path = tmp_path / "list.yaml"
    path.write_text(json.dumps({"models": [{"target": "timm:a", **values}]}))
    (model,) = read_list(path)
    assert list_option_words(model) == (
        *("--training", "--optimizer", "SGD", "--mode", "max-autotune", "--no-dynamic", "--amp", "bfloat16"),
        *("--device", "cpu", "--seed", "3", "--batch-size", "8", "--live", "--timeout", "5"),
        *("--repeat", "4", "--values", "recorded"),
    )
