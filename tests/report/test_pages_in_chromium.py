"""The HTML pages in a real browser: no errors, both themes, wide and narrow, mouse and keyboard.

Playwright drives the Chromium of the system. If one of them is missing, these tests say so and are skipped.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import run_builder as build
import step_runs
import test_pages as pages
from conftest import ROOT
from h200 import unpack_batch
from late import Late
from printed import run_page
from recorded_runs import recorded_runs
from test_verification import FOUND
from tried_programs import optimization, two_winners

from inductor_bench.records.run import KernelSpans, Run, Timeline
from inductor_bench.report.batch.batch_document import FORMATS as BATCH_FORMATS
from inductor_bench.report.document import FIRST_ROWS
from inductor_bench.report.formats import show_as_page
from inductor_bench.report.optimization_document import FORMATS as OPTIMIZATION_FORMATS
from inductor_bench.workflows.batch_state import read_view

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")
WIDE, NARROW = 1400, 400
KERNELS = 2000
RECORDED = ROOT / "tests" / "data" / "h200_torch2.11" / "mixnet_l_train" / "forward.py.gz"
MOST_ELEMENTS = 40
"""For each kernel, before one of them is opened. A page with the lines of all files would paint late."""

LIMIT_MS = 600_000
"""How long the browser may take for anything, on a machine that is busy with other work."""

playwright = Late("playwright.sync_api")
pytestmark = [
    pytest.mark.xdist_group("chromium"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed: pip install playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason=f"no browser is installed: none of {', '.join(NAMES)}"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with playwright.sync_playwright() as started:
        playwright.expect.set_options(timeout=LIMIT_MS)
        found = started.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS, *sandbox], timeout=LIMIT_MS)
        yield found
        found.close()


def many_kernels() -> tuple[Run, dict[str, str]]:
    """A run of 2,000 kernels with a file each."""
    run, files, modules, number = build.mixnet(), {}, [], 0
    harness = "\n\n".join(f"def harness_{part}(): ...  # {'x' * 400}" for part in range(100))
    for copy in range(4):
        for module in run.modules:
            kernels = []
            for kernel in module.kernels[: KERNELS - number]:
                number += 1
                place = f"kernels/k{number}.py"
                files[place] = f"# one\n\nSOURCE = r'''\nkernel {number} {'y' * 2000}\n'''\n\n{harness}\n"
                kernels.append(replace(kernel, name=f"{kernel.name}_{number}", kernel_id=f"{number:016x}", file=place))
            modules.append(
                replace(module, label=f"{module.label} {copy}", slug=f"m{len(modules)}", kernels=tuple(kernels))
            )
    return replace(run, modules=tuple(modules)), files


def marked_timeline(run: Run) -> Timeline:
    """The timeline of a step in which two kernels of a graph run several times, and one that the run does not know."""
    graph, lane = run.modules[0], "stream 7"
    first, second = graph.kernels[:2]
    kernels = (
        KernelSpans(graph.slug, first.name, lane, tuple((1.2e-3 + n * 4e-4, 1.5e-3 + n * 4e-4) for n in range(8))),
        KernelSpans(graph.slug, second.name, lane, ((5.4e-3, 9e-3),)),
        KernelSpans(graph.slug, "unknown<b>", lane, ((10e-3, 12e-3),)),
    )
    return replace(step_runs.timeline(), kernels=kernels)


def step_page() -> str:
    run = step_runs.host_paced()
    return run_page(run, pages.drawn(run), marked_timeline(run))


def proof_page() -> str:
    run = replace(step_runs.host_paced(), verification=FOUND)
    return run_page(run)


PAGES: dict[str, Callable[[], str]] = {
    "proof": proof_page,
    "optimization": lambda: show_as_page(OPTIMIZATION_FORMATS, optimization(two_winners())),
    "step": step_page,
    "hostile": lambda: run_page(build.hostile()),
    "failed": lambda: run_page(build.empty()),
    "evil": pages.hostile_page,
    "comparison": pages.comparison_page,
    "modes": pages.modes_page,
}


@contextmanager
def opened(
    browser: Any,
    text: str,
    folder: Path,
    width: int = WIDE,
    scheme: str = "light",
    hash: str = "",
    says_copied: bool = True,
    **options: Any,
) -> Iterator[Any]:
    """A page in the browser. At its end there must have been no error, no warning and no dialog."""
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(LIMIT_MS)
    if says_copied:
        context.add_init_script("window.setTimeout = () => 0")  # what says "Copied" goes on saying it
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto(path.as_uri() + hash)
    yield page
    context.close()
    assert said == []


def shown_both_ways(page: Any) -> Iterator[tuple[int, str]]:
    """Makes an opened page wide and light, then narrow and dark."""
    for width, scheme in ((WIDE, "light"), (NARROW, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        yield width, scheme


@functools.cache
def text_of(name: str) -> str:
    return PAGES[name]()


def column(page: Any, table: str, index: int) -> list[str]:
    return page.eval_on_selector_all(
        f"{table} .row",
        f"rows => rows.filter(r => r.offsetParent).map(r => r.cells[{index}].innerText.split('\\n')[0])",
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_wide_and_narrow_in_both_themes(browser: Any, name: str, tmp_path: Path) -> None:
    backgrounds = set()
    with opened(browser, text_of(name), tmp_path) as page:
        for width, scheme in shown_both_ways(page):
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            broken = "images => images.filter(i => !(i.complete && i.naturalWidth)).length"
            assert page.eval_on_selector_all("img", broken) == 0
    assert len(backgrounds) == 2


def test_no_column_of_a_recorded_run_is_cut_on_a_wide_page(browser: Any, tmp_path: Path) -> None:
    for name in ("bert", "blocks"):
        with opened(browser, run_page(recorded_runs()[name]), tmp_path, WIDE) as page:
            page.eval_on_selector_all("button.all", "buttons => buttons.forEach(b => b.click())")
            cut = "boxes => boxes.filter(b => b.scrollWidth > b.clientWidth).map(b => b.innerText.slice(0, 80))"
            assert page.eval_on_selector_all(".wide", cut) == [], name


LABELS = """spans => spans.filter(one => one.textContent).map(one => {
  const range = document.createRange();
  range.selectNodeContents(one);
  const text = range.getBoundingClientRect(), box = one.getBoundingClientRect();
  const is_seen = text.width > 0 && text.top < box.bottom - 1;
  return [one.textContent, is_seen, is_seen && (text.left < box.left - 1 || text.right > box.right + 1)];
})"""
"""Of each stretch with a label: its text, whether one sees it, and whether it is cut."""


def test_labels_of_bars_are_whole_or_not_there_whatever_the_width(browser: Any, tmp_path: Path) -> None:
    seen = {}
    for text, fits in ((run_page(recorded_runs()["bert"]), "encoder"), (step_page(), "backward")):
        for width in (WIDE, NARROW):
            with opened(browser, text, tmp_path, width) as page:
                labels = page.eval_on_selector_all(".bar.tall span, .lanes .lane span", LABELS)
                assert [name for name, _, is_cut in labels if is_cut] == []
                seen[width] = [name for name, is_seen, _ in labels if is_seen]
        assert {fits} <= {*seen[NARROW]} <= {*seen[WIDE]} and len(seen[NARROW]) < len(seen[WIDE])


def test_a_batch_fits_and_leads_to_its_runs(browser: Any, tmp_path: Path) -> None:
    text = show_as_page(BATCH_FORMATS, read_view(unpack_batch(tmp_path / "batch")))
    for width in (WIDE, NARROW):
        with opened(browser, text, tmp_path, width) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            link = page.get_attribute(".row a", "href")
            assert link.startswith("models/") and link.endswith("/report.html")


def test_a_row_is_a_card_on_a_narrow_page_and_its_values_have_their_titles(browser: Any, tmp_path: Path) -> None:
    titles = "cells => cells.map(c => getComputedStyle(c, '::before').content)"
    display = "row => getComputedStyle(row).display"
    for width, shown in ((WIDE, "table-row"), (NARROW, "flex")):
        with opened(browser, step_page(), tmp_path, width) as page:
            first = page.query_selector("table .row")
            assert first.evaluate(display) == shown
            found = page.eval_on_selector_all("#t1 .row:first-child > td", titles)
            assert found[1:4] == ['"kind"', '"calls"', '"time"']
            visible = first.query_selector("td:nth-child(4)").evaluate("c => getComputedStyle(c, '::before').display")
            assert visible == ("none" if width == WIDE else "inline")


def test_tables_sort_by_mouse_and_keyboard_and_details_stay_with_their_rows(browser: Any, tmp_path: Path) -> None:
    with opened(browser, run_page(build.mixnet()), tmp_path) as page:
        table = page.evaluate("document.getElementById('k1').closest('table').id")
        assert len(column(page, f"#{table}", 0)) == FIRST_ROWS
        page.click(f"button.all[data-table={table}]")
        numbers = [int(text) for text in column(page, f"#{table}", 0)]
        assert numbers == sorted(numbers) and len(numbers) == 641
        head = page.locator(f"#{table} thead button", has_text="gain limit")
        head.click()
        gains = page.eval_on_selector_all(f"#{table} .row td:nth-child(10)", "cells => cells.map(c => c.dataset.v)")
        known = [float(gain) for gain in gains if gain is not None]
        assert known == sorted(known, reverse=True) and gains[len(known) :] == [None] * (len(gains) - len(known))
        head.press("Enter")
        assert page.get_attribute(f"#{table} th[aria-sort]", "aria-sort") == "ascending"
        again = page.eval_on_selector_all(f"#{table} .row td:nth-child(10)", "cells => cells.map(c => c.dataset.v)")
        assert again[: len(known)] == gains[: len(known)][::-1] and again[len(known) :] == gains[len(known) :]
        page.locator("#k7 button.open").press("Enter")
        shown = page.evaluate("document.getElementById('k7').nextElementSibling.innerText")
        name = page.evaluate("document.getElementById('k7').nextElementSibling.querySelector('dd').innerText")
        assert name in shown and page.get_attribute("#k7 button.open", "aria-expanded") == "true"
        page.locator(f"#{table} thead button", has_text="kernel").click()
        assert page.evaluate("document.getElementById('k7').nextElementSibling.innerText") == shown
        texts = [text.lower() for text in column(page, f"#{table}", 1)]
        assert texts == sorted(texts)


def test_a_filter_keeps_the_rows_that_have_all_its_words(browser: Any, tmp_path: Path) -> None:
    with opened(browser, run_page(build.mixnet()), tmp_path) as page:
        table = page.evaluate("document.getElementById('k1').closest('table').id")
        box = page.locator(f"input[data-table={table}]")
        box.fill("TRITON_RED backward")
        shown = column(page, f"#{table}", 1)
        assert 0 < len(shown) < 641 and all("red" in text for text in shown)
        assert page.inner_text(f"[data-count={table}]") == f"{len(shown)} of 641"
        box.fill("")
        assert len(column(page, f"#{table}", 1)) == FIRST_ROWS


def test_a_kernels_file_is_shown_and_copied(browser: Any, tmp_path: Path) -> None:
    run, files = many_kernels()
    place = run.modules[0].kernels[0].file
    assert place is not None
    with opened(browser, run_page(run, {}, None, files), tmp_path) as page:
        elements = page.evaluate("document.getElementsByTagName('*').length")
        assert elements < MOST_ELEMENTS * KERNELS and "harness_9" not in page.evaluate("document.body.innerText")
        box = page.locator(f".code[data-file='{place}']")
        row = box.evaluate("box => box.closest('tbody').querySelector('.row').id")
        width = page.locator(f"#{row}").bounding_box()["width"]
        page.click(f"#{row} button.open")
        own = box.locator("pre")
        playwright.expect(own).to_have_text("kernel 1 " + "y" * 2000)
        assert page.locator(f"#{row}").bounding_box()["width"] == width <= WIDE, "the file widens no column"
        box.locator(".whole").click()
        playwright.expect(own).to_contain_text("harness_99")
        box.locator(".copy").click()
        playwright.expect(box.locator(".copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == files[place]


def test_a_finding_leads_to_its_kernel_which_opens(browser: Any, tmp_path: Path) -> None:
    with opened(browser, run_page(build.mixnet()), tmp_path, hash="#k5") as page:
        assert page.get_attribute("#k5 button.open", "aria-expanded") == "true"
        page.click("li a[href='#k1']")
        page.wait_for_selector("#k1 button.open[aria-expanded=true]")
        assert len(column(page, "table:has(#k1)", 1)) == FIRST_ROWS
        page.evaluate("location.hash = '#k600'")
        page.wait_for_selector("#k600 button.open[aria-expanded=true]")
        assert len(column(page, "table:has(#k1)", 1)) == 641, "a link to a row that is not shown shows all rows"


def test_what_to_type_is_copied(browser: Any, tmp_path: Path) -> None:
    with opened(browser, pages.modes_page(), tmp_path) as page:
        page.click(".code .copy")
        playwright.expect(page.locator(".code .copy").first).to_have_text("Copied")
        assert "torch.compile" in page.evaluate("navigator.clipboard.readText()")


def test_a_timeline_zooms_and_one_click_leads_to_the_kernel(browser: Any, tmp_path: Path) -> None:
    with opened(browser, step_page(), tmp_path) as page:
        box = page.locator(".zoomed").first
        scroller, said, marks = box.locator(".scroller"), box.locator("output"), box.locator(".lane.marked")
        assert marks.locator("a").count() == 9 and marks.locator("i").count() == 1, "an unknown kernel leads nowhere"
        width = marks.bounding_box()["width"]
        box.locator(".tools button", has_text="+").click()
        assert marks.bounding_box()["width"] == pytest.approx(2 * width, rel=0.1)
        assert scroller.evaluate("s => s.scrollLeft") > 0, "the middle stays in the middle"
        scroller.press("0")
        assert marks.bounding_box()["width"] == pytest.approx(width)
        scroller.press("+")
        box.locator(".tools button", has_text="Fit").click()
        first = marks.locator("a").first
        first.hover()
        playwright.expect(said).to_contain_text("0.3 ms")
        target = first.get_attribute("href")
        first.click()
        page.wait_for_selector(f"{target} button.open[aria-expanded=true]")


def test_the_kernels_of_a_timeline_are_reached_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    with opened(browser, step_page(), tmp_path) as page:
        box = page.locator(".zoomed").first
        marks, said = box.locator(".lane.marked"), box.locator("output")
        for _ in range(9):
            marks.press("ArrowRight")
        playwright.expect(said).to_contain_text("3.6 ms (9 of 10)")
        marks.press("Enter")
        target = box.locator(".lane.marked .now").get_attribute("href")
        page.wait_for_selector(f"{target} button.open[aria-expanded=true]")


def test_a_finding_has_its_command_to_copy(browser: Any, tmp_path: Path) -> None:
    with opened(browser, step_page(), tmp_path) as page:
        command = page.locator("#s1 li .try").first
        command.locator(".copy").click()
        playwright.expect(command.locator(".copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()").startswith("inductor-bench ")


def test_a_page_opens_with_questions_and_their_answers(browser: Any, tmp_path: Path) -> None:
    with opened(browser, step_page(), tmp_path) as page:
        questions = page.locator("dl.answers dt").all_inner_texts()
        assert questions[:2] == ["What is slow?", "Which kernel?"] and questions[-1] == "Is it certain?"
        assert page.locator("dl.answers").bounding_box()["y"] < 900, "without scrolling"
        page.click("dl.answers a[href^='#k']")
        page.wait_for_selector(".row button.open[aria-expanded=true]")


def test_a_page_is_whole_without_scripts(browser: Any, tmp_path: Path) -> None:
    text = run_page(build.mixnet(), pages.drawn(build.mixnet()), None)
    with opened(browser, text, tmp_path, java_script_enabled=False) as page:
        assert page.locator(".row:visible", has=page.locator("button.open")).count() == 641
        assert page.locator(".copy:visible, input.filter:visible, .tools:visible").count() == 0
        page.click("a[href='#k2']")
        facts = page.locator("#k2 + .more dl")
        assert facts.is_visible() and not page.locator("#k3 + .more dl").is_visible()


def test_a_page_fits_on_paper_and_prints_in_light_colours(browser: Any, tmp_path: Path) -> None:
    for text in (step_page(), run_page(build.mixnet()), pages.comparison_page()):
        with opened(browser, text, tmp_path, 718, "dark") as page:  # A4 without its margins
            page.emulate_media(media="print", color_scheme="dark")
            assert page.evaluate("document.documentElement.scrollWidth") <= 718
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert page.locator("nav:visible, button.all:visible, .copy:visible, .tools button:visible").count() == 0


def test_a_title_breaks_between_the_parts_of_a_name(browser: Any, tmp_path: Path) -> None:
    run = replace(step_runs.host_paced(), title="train_a_large_feed_forward_network_with_norms.py")
    with opened(browser, run_page(run), tmp_path, NARROW) as page:
        lines = """title => [...title.childNodes].filter(n => n.nodeType === 3).map(n => {
            const range = document.createRange(); range.selectNodeContents(n);
            return new Set([...range.getClientRects()].map(r => r.top)).size })"""
        found = page.locator("h1").evaluate(lines)
        assert len(found) > 5 and set(found) == {1}


def test_five_thousand_kernels_with_names_of_any_kind(browser: Any, tmp_path: Path) -> None:
    run = build.mixnet()
    odd = ("triton_" + "融合归一化" * 60, "<img src=x onerror=alert(1)>" * 12, "triton_poi_fused_" + "add_" * 80)
    kernels = [
        replace(kernel, name=f"{odd[number % 3]}_{number}", kernel_id=f"{number:016x}")
        for number, kernel in enumerate(run.modules[0].kernels * 20)
    ][:5000]
    run = replace(run, modules=(replace(run.modules[0], kernels=tuple(kernels)),))
    with opened(browser, run_page(run), tmp_path) as page:
        for width, _ in shown_both_ways(page):
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert "and 4,000 more in tables/kernels.csv" in page.inner_text("main")
            assert page.locator("img[src=x]").count() == 0


def test_a_page_of_five_hundred_kernels_stays_small() -> None:
    run, kept = build.mixnet(), gzip.decompress(RECORDED.read_bytes()).decode()
    blocks = re.split(r"(?=^# kernel path: )", kept, flags=re.MULTILINE)[1:]
    modules, number = [], 0
    files = {}
    for module in run.modules:
        kernels = []
        for kernel in module.kernels[:250]:
            place = f"kernels/k{number}.py"
            files[place] = f"# {number}\n\n{blocks[number % len(blocks)]}\n\n# {number}"
            kernels.append(replace(kernel, file=place))
            number += 1
        modules.append(replace(module, kernels=tuple(kernels)))
    run = replace(run, modules=tuple(modules))
    text = run_page(run, pages.drawn(run), marked_timeline(run), files)
    assert number == 500 and len(text.encode()) < 1_500_000


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_fault(browser: Any, name: str, tmp_path: Path) -> None:
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install -e .[dev]")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with opened(browser, text_of(name), tmp_path, says_copied=False, bypass_csp=True) as page:
        page.add_script_tag(content=axe)
        for width, scheme in shown_both_ways(page):
            found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            wrong = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
            assert wrong == [], (width, scheme)
