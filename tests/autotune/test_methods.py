"""The table of methods: what options, help and searches take from it."""

from __future__ import annotations

import re

import pytest
from fake_device import Line

from inductor_bench.autotune.methods import METHODS
from inductor_bench.cli.kernel import command
from inductor_bench.records.retune import BY_DEFAULT


def test_the_command_line_offers_what_the_table_has() -> None:
    (option,) = [parameter for parameter in command.params if parameter.name == "autotune"]
    assert next(iter(METHODS)) == BY_DEFAULT == option.flag_value and list(option.type.choices) == list(METHODS)
    assert re.findall(r"\((\w+)\)", option.help) == list(METHODS)


def test_each_method_is_listed_under_its_name_and_has_a_help() -> None:
    assert all(name == method.name and method.help for name, method in METHODS.items())


@pytest.mark.parametrize("name", METHODS)
def test_a_search_tries_all_that_max_autotune_lists(name: str) -> None:
    method, space = METHODS[name], Line({"value": 0, "y": 0}, {"value": (0, 1, 2), "y": (0, 1)})
    tried, search = [], method.search(space)
    configs = next(search)
    try:
        while True:
            tried += configs
            configs = search.send(space.now)
    except StopIteration:
        assert all(config in tried for config in space.listed_by_max_autotune())
    assert method.ends_with_list == (tried == space.listed_by_max_autotune())
