"""Modules that are the same on several ranks, by the texts of an FSDP2 training on two H200s."""

from __future__ import annotations

import gzip

import pytest

from inductor_bench.source.generated_text import compute_module_id
from inductor_bench.source.labels import group_ranks
from tests.support.h200 import FOLDER


def text_of(rank: int, graph: int) -> str:
    return gzip.decompress((FOLDER / "programs" / "fsdp" / f"{rank}-{graph}.py.gz").read_bytes()).decode()


FORWARD, BACKWARD = (text_of(0, graph) for graph in (0, 1))
OTHER_FORWARD, OTHER_BACKWARD = (text_of(1, graph) for graph in (0, 1))


def test_the_ranks_graphs_differ_in_the_device_only() -> None:
    assert FORWARD != OTHER_FORWARD and compute_module_id(FORWARD) == compute_module_id(OTHER_FORWARD)
    assert compute_module_id(BACKWARD) == compute_module_id(OTHER_BACKWARD) != compute_module_id(FORWARD)
    longer = FORWARD.replace("(8, 512, 768)", "(8, 256, 768)")
    assert longer != FORWARD and compute_module_id(longer) != compute_module_id(FORWARD)


def groups(*modules: tuple[str, list[int | None]]) -> list[str]:
    """The groups of modules with these texts and ranks, which are called ``a``, ``b`` and so on."""
    named = dict(zip("abcdefg", modules, strict=False))
    texts = {name: text for name, (text, _) in named.items()}
    return ["".join(group) for group in group_ranks(texts, {name: ranks for name, (_, ranks) in named.items()})]


def test_the_lowest_rank_stands_for_the_others() -> None:
    last = FORWARD + "x = 1"
    assert groups((OTHER_FORWARD, [1]), (FORWARD, [0]), (BACKWARD, [0]), (OTHER_BACKWARD, [1]), (last, [2])) == [
        *("ba", "cd", "e")
    ]


@pytest.mark.parametrize("rank", [0, None])
def test_modules_of_one_process_stay_apart(rank: int | None) -> None:
    assert groups((FORWARD, [rank]), (OTHER_FORWARD, [rank])) == ["a", "b"]
    # Two devices in each of two ranks: each module has its counterpart.
    assert groups((FORWARD, [0]), (OTHER_FORWARD, [0]), (FORWARD, [1]), (OTHER_FORWARD, [1])) == ["ac", "bd"]
    assert groups((FORWARD, [0, 1]), (OTHER_FORWARD, [1]), (BACKWARD, [])) == ["a", "b", "c"]
