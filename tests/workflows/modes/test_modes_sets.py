"""The settings of rows as a user types them."""

from __future__ import annotations

import pytest

from inductor_bench.errors import UsageError
from inductor_bench.records.comparison import MODES, ModeSet
from inductor_bench.workflows.single_run import read_set, read_sets


@pytest.mark.parametrize(
    ("text", "settings", "name"),
    [
        ("tf32", ModeSet("default", ("tf32",)), "default + tf32"),
        ("max-autotune,tf32,tf32", ModeSet("max-autotune", ("tf32",)), "max-autotune + tf32"),
        ("eager, channels-last", ModeSet("eager", ("channels-last",)), "eager + channels-last"),
        (
            "inductor.triton.cudagraphs=true,OMP_NUM_THREADS=8",
            ModeSet("default", (), {"OMP_NUM_THREADS": "8"}, {"triton.cudagraphs": "true"}),
            "default + inductor.triton.cudagraphs=true + OMP_NUM_THREADS=8",
        ),
    ],
)
def test_a_set_has_one_mode_and_any_switches_options_and_variables(text: str, settings: ModeSet, name: str) -> None:
    assert read_set(text) == settings and settings.name == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast", "is no setting"),
        ("", "is no setting"),
        ("default,eager", "two modes"),
        ("eager,freezing", "compiles nothing"),
        ("inductor.=1", "no option of Inductor"),
    ],
)
def test_other_words_are_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as found:
        read_set(text)
    assert found.value.hint


def test_rows_are_the_modes_and_then_ones_own_sets_each_once() -> None:
    rows = read_sets([], ["tf32", "tf32"], [("A", "1,2")], ["inductor.x=1"])
    own = ["default + tf32", "default + A=1,2", "default + inductor.x=1"]
    assert [row.name for row in rows] == [*MODES, *own]
    assert [row.name for row in read_sets(["default"], ["default"], [], [])] == ["default"]
