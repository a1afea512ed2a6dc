"""The HTML page: self-contained, complete, and deaf to what names say."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import run_builder as build

from inductor_bench.records.run import Run
from inductor_bench.report.run.html import render_html

VOID = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)


def page(run: Run) -> tuple[str, Page]:
    text = render_html(run, {"categories": b"\x89PNG fake", "headroom": b"\x89PNG"})
    return text, Page(text)


@pytest.mark.parametrize("name", ["mixnet", "densenet", "cpu", "empty", "hostile", "without_peaks"])
def test_it_is_well_formed_and_loads_nothing(name: str) -> None:
    text, parsed = page(getattr(build, name)())
    assert parsed.tags.count("script") == 1 and parsed.tags.count("img") == 2
    for attribute, value in parsed.attributes:
        assert not attribute.startswith("on"), (attribute, value)
        assert attribute != "href"
        assert attribute != "src" or str(value).startswith("data:image/png;base64,")
    assert "default-src 'none'" in text and "http://" not in text and "https://" not in text and "url(" not in text


def test_hostile_names_are_text() -> None:
    text, parsed = page(build.hostile())
    shown = " ".join("".join(parsed.words).split())
    assert "<script>alert('x')</script>" in shown and "</script><img src=x onerror=alert(1)>" in shown
    assert "{{ 7*7 }} {% raw %}" in shown and "49" not in re.findall(r"c` \"quoted\" [^%]*%", shown)[0]
    assert not set(text) & {"\x1b", "\x9b", "\u202e", "\udcff"}
    assert "alert(1)>" not in text


def test_every_kernel_is_a_row_with_its_full_name_and_sort_keys() -> None:
    run = build.mixnet()
    text, parsed = page(run)
    words = set(parsed.words)
    for module in run.modules:
        assert {kernel.name for kernel in module.kernels} <= words
    assert text.count("<details>") == 641
    numbers = [float(value) for key, value in parsed.attributes if key == "data-value" and value]
    assert max(numbers) > 1e14 or len(numbers) > 3 * 641  # exact values, not the rounded ones that are shown
    assert str(run.modules[0].kernels[0].time_s) in [value for key, value in parsed.attributes if key == "data-value"]


def test_findings_failures_and_the_environment_are_there() -> None:
    _, parsed = page(build.cpu())
    shown = "".join(parsed.words)
    assert "forward spends 31% of 5.90 ms outside kernels" in shown and "live, in the program" in shown
    assert "inductor-bench breakdown step.py" in shown and "memory 38.0 GB/s" in shown
    assert "the program compiled nothing" in "".join(page(build.empty())[1].words)


def test_the_answer_comes_first_and_bars_are_also_words() -> None:
    words = [word.strip() for word in page(build.mixnet())[1].words]
    lead = next(word for word in words if word.startswith("GPU-bound: library kernels 63% of 61.6 ms"))
    assert words.index(lead) < words.index("Graphs") and words.count(lead) == 1
    assert "conv 43%, pointwise 30%, reduction 13%, idle 7%, gemm 5%, persistent 2%" in words


def test_a_finding_names_its_kernels_with_their_numbers() -> None:
    words = "".join(page(build.mixnet())[1].words)
    assert "1 at::native elementwise: direct_copy" in words and "10 tensorTransformGeneric" in words


def test_a_headline_that_is_a_finding_is_said_once() -> None:
    words = "".join(page(build.densenet())[1].words)
    assert words.count("inference is launch-bound") == 1


def test_an_empty_run_has_no_tables() -> None:
    _, parsed = page(build.empty())
    assert "table" not in parsed.tags
