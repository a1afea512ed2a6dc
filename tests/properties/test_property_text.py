"""Names and paths of others as text for people: one line, printable, short, distinct, and nothing else is lost."""

from __future__ import annotations

import json
import re
import unicodedata

from hypothesis import assume, example, given
from hypothesis import strategies as st

from inductor_bench import units
from inductor_bench.analysis.findings.finding import join_words, shorten_paths
from inductor_bench.report import names
from inductor_bench.source.generated_text import compute_operator_id
from inductor_bench.store.caches import slug
from inductor_bench.store.codec import LARGEST

PARTS = (
    "triton_poi_fused_",
    "void ",
    "at::native::",
    "<",
    ">",
    "(",
    ")",
    "cutlass::Kernel2<",
    "_xmma_",
    "\x1b[31m",
    "\u202e",
)
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=5)), max_size=12).map("".join),
)
DIRECTIONS = ("\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)))


def is_clean(text: str) -> bool:
    return "\n" not in text and all(unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in text)


@given(texts)
def test_a_cleaned_text_is_one_line_without_control_characters(text: str) -> None:
    cleaned = names.clean(text)
    assert is_clean(cleaned)
    assert names.clean(cleaned) == cleaned


@given(texts, st.integers(0, 60))
def test_a_shortened_text_has_at_most_that_many_columns(text: str, width: int) -> None:
    assert names.count_columns(names.cut_end(text, width)) <= width
    assert names.count_columns(names.cut_middle(text, width)) <= width
    if width >= 8:
        assert names.count_columns(names.shorten(text, width)) <= width
        assert names.count_columns(names.shorten_label(text, width)) <= width
    assert names.count_columns(names.pad(text, width)) >= width


@given(texts)
def test_a_plain_name_of_a_kernel_is_one_printable_line_and_not_empty(text: str) -> None:
    plain = names.strip_kernel_name(text)
    assert plain and is_clean(plain)


@given(st.lists(texts, max_size=12), st.integers(8, 40))
def test_short_names_are_distinct_and_fit(found: list[str], width: int) -> None:
    shorts = names.make_names_unique(found, width)
    assert set(shorts) == set(found)
    assert len(set(shorts.values())) == len(shorts)
    assert all(one and names.count_columns(one) <= width for one in shorts.values())


@given(st.text(st.one_of(st.characters(), st.sampled_from(DIRECTIONS)), max_size=40))
@example("\u200fabc\u061c")
def test_text_for_a_terminal_holds_no_control_characters_and_no_directions(text: str) -> None:
    shown = units.printable(text)
    assert len(shown) == len(text)
    assert not any(one in DIRECTIONS or (unicodedata.category(one) == "Cc" and one not in "\t\n") for one in shown)


@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(DIRECTIONS)), max_size=40))
@example("\u200f")
def test_printable_json_has_the_same_value_and_no_directions(text: str) -> None:
    shown = units.printable_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(shown) == {"a": text}
    assert not any(one in DIRECTIONS for one in shown)


folders = st.text("abc_.-~Ω@+(", min_size=1, max_size=6).filter(lambda text: not text.endswith("("))
paths = st.tuples(st.sampled_from(["", "/"]), st.lists(folders, min_size=1, max_size=6), st.integers(0, 999))
words = st.text(st.characters(codec="utf-8", exclude_characters="/:"), max_size=12)


@given(st.lists(st.tuples(words, paths), max_size=4), words)
def test_a_shortened_path_is_its_folder_and_file_and_all_other_text_stays(
    found: list[tuple[str, tuple[str, list[str], int]]], last: str
) -> None:
    text = wanted = ""
    for word, (root, parts, line) in found:
        assume(not parts[0].startswith("("))
        path = root + "/".join(parts)
        text += f"{word} {path}:{line}"
        wanted += f"{word} {'/'.join(parts[-2:]) if len(parts) > 2 else path}:{line}"
    assert shorten_paths(f"{text} {last}") == f"{wanted} {last}"


@given(st.text(st.characters(), max_size=200), st.text(st.characters(), max_size=20))
@example("\ud800", "")
@example("x" * 200 + "\ud800", "")
def test_any_name_of_a_file_of_others_has_an_id_and_a_file_name(name: str, arguments: str) -> None:
    assert re.fullmatch(r"[0-9a-f]+", compute_operator_id(name, arguments))
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", slug(name))


@given(texts)
def test_shortening_paths_twice_changes_nothing_more(text: str) -> None:
    once = shorten_paths(text)
    assert shorten_paths(once) == once


@given(st.lists(st.text(min_size=1, max_size=5), max_size=9), st.integers(1, 6))
def test_joined_words_name_the_first_and_count_the_others(found: list[str], most: int) -> None:
    joined = join_words(found, most)
    assert all(word in joined for word in found[:most])
    assert (f"{len(found) - most} more" in joined) or len(found) <= most


@given(st.one_of(st.none(), st.floats(-LARGEST, LARGEST), st.integers(-(2**70), 2**70)))
@example(float("nan"))
@example(float("-inf"))
def test_every_number_that_a_record_may_hold_has_a_short_text(value: float | None) -> None:
    for form in (units.seconds, units.size, units.rate, units.flops, units.percent, units.whole_percent, units.count):
        assert form(value)


@given(st.one_of(st.text(max_size=12), st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,3})? ?[kmgtKMGT]?i?[bB]?", fullmatch=True)))
@example("9" * 5_000)
def test_a_size_is_read_or_refused_in_words(text: str) -> None:
    try:
        assert 0 <= units.parse_size(text) <= units.LARGEST_SIZE
    except ValueError as error:
        assert "size" in str(error) or "memory" in str(error)
