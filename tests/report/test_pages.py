"""The HTML pages as text: whole by themselves, complete, and without harm from what names say."""

from __future__ import annotations

import base64
import gzip
import json
import re
import xml.etree.ElementTree as xml
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import jinja2
import mode_rows
import pytest
import run_builder as build
import step_runs
from compared_runs import changed
from compared_runs import run as compared_run
from printed import run_page

from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.records.run import Run
from inductor_bench.report import comparison_document, modes_document
from inductor_bench.report.document import (
    Cell,
    Column,
    Document,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    SourceFile,
    Table,
    make_notes,
)
from inductor_bench.report.formats import show_as_page
from inductor_bench.report.html import pack, render_page
from inductor_bench.report.run.run_tables import write_source_file

VOID = {"meta", "img", "input", "br", "wbr"}
EVIL = "</style></script><script>alert(1)</script>\" onload='x' {{ 7*7 }} \x1b[31m\u202e" + "long" * 99
"""Markup, quotes, a template, control characters, and a word without a place to break."""


class Parsed(HTMLParser):
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

    @property
    def shown(self) -> str:
        return " ".join("".join(self.words).split())


def drawn(run: Run) -> dict[str, bytes]:
    from inductor_bench.report.run.plots import draw_plots  # loads matplotlib

    return draw_plots(run)


def comparison_page() -> str:
    other = compared_run(changed("triton_poi_fused_relu_2", kernel_id="other"), longer=1.4)
    return show_as_page(comparison_document.FORMATS, compare_runs([compared_run()], [other], ("runs/a", "runs/<b>")))


def modes_page() -> str:
    eager = mode_rows.row("eager", [0.100, 0.101, 0.099, 0.100])
    return show_as_page(
        modes_document.FORMATS,
        mode_rows.comparison(eager, mode_rows.row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0)),
    )


def hostile_page() -> str:
    row = Row((Cell(EVIL, notes=make_notes(EVIL), link="a b"), Cell(EVIL, 1.0)))
    table = Table((Column(EVIL, False), Column(EVIL)), (row,))
    parts = (table, Items((Item(EVIL, places=((EVIL, "k1"),), log=EVIL),)), Sentence(EVIL))
    blocks = (Sentence(EVIL, "lead"), Sentence(EVIL), Section(EVIL, parts))
    return render_page(Document(EVIL, (EVIL,), blocks, {EVIL: SourceFile(EVIL)}))


PAGES: dict[str, Callable[[], str]] = {
    **{name: lambda name=name: run_page(getattr(build, name)()) for name in ("densenet", "cpu", "empty", "hostile")},
    **{name: lambda name=name: run_page(getattr(step_runs, name)()) for name in ("host_paced", "distributed")},
    "without_peaks": lambda: run_page(build.without_peaks()),
    "comparison": comparison_page,
    "modes": modes_page,
    "evil": hostile_page,
}


def test_templates_are_compiled_once_and_tables_are_numbered_on_each_page(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_one = jinja2.Environment.compile

    def count(self: jinja2.Environment, *given: object, **named: object) -> object:
        compiled.append(given)
        return compile_one(self, *given, **named)  # type: ignore[call-overload]

    first = hostile_page()
    monkeypatch.setattr(jinja2.Environment, "compile", count)
    assert hostile_page() == first
    assert not compiled


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_well_formed_and_loads_nothing(name: str) -> None:
    text = PAGES[name]()
    parsed = Parsed(text)
    for attribute, value in parsed.attributes:
        assert not attribute.startswith("on"), (attribute, value)
        assert attribute != "href" or re.match(r"#\w+$|a b$", str(value))
        assert attribute != "src" or str(value).startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in text and "http://" not in text and "https://" not in text and "url(" not in text
    assert not set(text) & {"\x1b", "\x9b", "\u202e", "\udcff"}
    anchors = {value for attribute, value in parsed.attributes if attribute == "id"}
    assert {str(v)[1:] for a, v in parsed.attributes if a == "href" and str(v).startswith("#k")} <= anchors | {"k1"}


def test_hostile_text_is_text_wherever_it_stands() -> None:
    parsed = Parsed(hostile_page())
    assert parsed.tags.count("script") == 2 and "alert(1)" in parsed.shown and "{{ 7*7 }}" in parsed.shown
    assert parsed.shown.count("<script>alert(1)</script>") >= 9
    styles = re.findall(r"<style>(.*?)</style>", hostile_page(), re.DOTALL)
    assert len(styles) == 3 and not any("<" in style for style in styles)


def test_every_kernel_is_a_row_with_its_name_and_the_exact_numbers_that_it_is_sorted_by() -> None:
    run = build.mixnet()
    parsed = Parsed(run_page(run))
    for module in run.modules:
        assert {kernel.name for kernel in module.kernels} <= set(parsed.words)
    values = {value for attribute, value in parsed.attributes if attribute == "data-v"}
    assert {f"{kernel.time_s:.9g}" for kernel in run.modules[0].kernels} <= values
    assert [value for attribute, value in parsed.attributes if attribute == "id"].count("k641") == 1
    assert parsed.words.count("kernel id") == 641 and 0 < parsed.words.count("launch") <= 200
    assert "the first 200 have all details" in parsed.shown.lower()


def test_findings_failures_and_the_environment_are_there() -> None:
    shown = Parsed(run_page(build.cpu())).shown
    assert "forward spends 31% of 5.90 ms outside kernels" in shown and "run alone in the program's process" in shown
    assert "inductor-bench breakdown step.py" in shown and "memory 38.0 GB/s" in shown
    empty = Parsed(run_page(build.empty()))
    assert "the program compiled nothing" in empty.shown and "table" not in empty.tags


def test_the_answer_comes_first_and_bars_are_also_words() -> None:
    words = [word.strip() for word in Parsed(run_page(build.mixnet())).words]
    lead = next(word for word in words if word.startswith("GPU-bound: library kernels 63% of 61.6 ms"))
    assert words.index(lead) < words.index("Graphs") and words.count(lead) == 1
    assert "conv 43%, pointwise 30%, reduction 13%, idle 7%, gemm 5%, persistent 2%" in words


def test_a_finding_leads_to_its_kernels() -> None:
    text = run_page(build.mixnet())
    assert '<a href="#k1">1 at::native elementwise: direct_copy' in text and 'href="#k10">10 tensorTransform' in text


def test_a_headline_that_is_a_finding_is_said_once() -> None:
    assert Parsed(run_page(build.densenet())).shown.count("inference is launch-bound") == 1


def test_drawings_are_svg_without_scripts_whose_colours_follow_the_theme() -> None:
    from inductor_bench.report.run.plots import PLOTS

    drawings = drawn(build.hostile())
    assert set(drawings) == set(PLOTS)
    for data in drawings.values():
        root = xml.fromstring(data)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert {"svg", "path", "style"} <= tags and "script" not in tags
        assert b"prefers-color-scheme:dark" in data
    text = run_page(build.hostile(), drawings)
    assert text.count('src="data:image/svg+xml;base64,') == len(drawings)


def unpacked(packed: str) -> dict[str, tuple[str, str]]:
    """The files of a page as the browser puts them together: the whole, and what is shown first."""
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    files = {}
    for path, (indices, first, last) in data["files"].items():
        units = "\n\n".join(data["blocks"][index] for index in indices).encode("utf-16-le", "surrogatepass")
        own = units[2 * first : 2 * last]
        files[path] = units.decode("utf-16-le", "surrogatepass"), own.decode("utf-16-le", "surrogatepass")
    return files


def test_files_are_packed_without_loss_and_common_blocks_once() -> None:
    common = "\n\n".join(f"def part_{number}(): ...  # {number * 'x'}" for number in range(300))
    texts = {f"kernels/{n}.py": f'"""one {n}"""\n\n{common}\n\n\n\nlast {n} \U0001d4d0\r\n' for n in range(50)}
    packed = pack({path: SourceFile(text, (0, 3)) for path, text in texts.items()})
    assert {path: whole for path, (whole, _) in unpacked(packed).items()} == texts
    assert len(packed) < len(common), "the common part is there once"
    assert pack({}) == ""


@pytest.mark.parametrize("before", ["", "\U0001d4d0 é\n"])
def test_the_kernel_of_a_standalone_file_is_shown_first(before: str) -> None:
    kernel = "import triton\n\n@triton.jit\ndef k(x):\n    pass"
    marked = f"# The kernel, as it stands in the compiled module.\n\n{kernel}\n\n\nopen_tuning_cache(x)\n"
    text = f"{before}RECORDED = {{}}\n\n{marked}"
    assert unpacked(pack({"k": write_source_file(text)}))["k"] == (text, kernel)
    text = f"{before}SOURCE = r'''\nvoid kernel() {{}}\n'''\n\nimport os\n"
    assert unpacked(pack({"k": write_source_file(text)}))["k"] == (text, "void kernel() {}")
    text = f"{before}no kernel of ours"
    assert unpacked(pack({"k": write_source_file(text)}))["k"] == (text, text)


def test_the_files_of_the_kernels_are_in_the_page_and_those_that_are_gone_are_left_out() -> None:
    run = build.cpu()
    kernels = [replace(kernel, file=f"kernels/{kernel.name}.py") for kernel in run.modules[0].kernels]
    run = replace(run, modules=(replace(run.modules[0], kernels=tuple(kernels)),))
    text = run_page(run, files={str(kernels[0].file): "text of the file"})
    named = [value for attribute, value in Parsed(text).attributes if attribute == "data-file"]
    assert named == [kernels[0].file]
    packed = re.search(r'id="files">([^<]*)<', text)
    assert packed is not None and unpacked(packed[1]) == {kernels[0].file: ("text of the file", "text of the file")}
    assert 'id="files"' not in run_page(run)
