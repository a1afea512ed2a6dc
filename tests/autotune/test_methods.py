"""The table of methods: what options, help and searches take from it."""

from __future__ import annotations

import re

import pytest
from fake_device import Line

from inductor_bench.autotune.methods import METHODS
from inductor_bench.cli.kernel import command
from inductor_bench.errors import UsageError
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.tuning import BY_DEFAULT
from inductor_bench.workflows.cross_compile import compile_for_target
from inductor_bench.workflows.options import Silent


def test_the_command_line_offers_what_the_table_has() -> None:
    (option,) = [parameter for parameter in command.params if parameter.name == "autotune"]
    assert next(iter(METHODS)) == BY_DEFAULT == option.flag_value and list(option.type.choices) == list(METHODS)
    assert re.findall(r"\((\w+)\)", option.help) == list(METHODS)


def test_the_names_of_methods_are_theirs() -> None:
    assert all(name == method.name and method.help for name, method in METHODS.items())


@pytest.mark.parametrize("name", METHODS)
def test_what_is_tried_without_times_is_part_of_what_the_search_tries(name: str) -> None:
    method, space = METHODS[name], Line({"value": 0, "y": 0}, {"value": (0, 1, 2), "y": (0, 1)})
    tried, search = [], method.search(space)
    configs = next(search)
    try:
        while True:
            tried += configs
            configs = search.send(space.now)
    except StopIteration:
        assert all(config in tried for config in space.listed_by_max_autotune())
    if method.untimed is not None:
        assert [config for config in method.untimed(space) if config not in tried] == []
    assert method.ends_with_list == (tried == space.listed_by_max_autotune())


def test_only_methods_that_follow_times_are_refused_with_a_target() -> None:
    following = [name for name, method in METHODS.items() if method.untimed is None]
    for name in following:
        with pytest.raises(UsageError, match=f"--autotune {name} follows times") as refused:
            compile_for_target(KernelRequest((), name, target="sm_90"), Silent())
        others = [other for other in METHODS if other not in following]
        assert refused.value.hint == f"use {' or '.join(others)}"
    assert "coordesc" in following and BY_DEFAULT not in following
