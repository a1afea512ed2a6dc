"""A document that has every block, in all formats: what each block looks like, and that no text breaks a format."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from golden import golden
from rich.console import Console
from test_pages import EVIL, Parsed

from inductor_bench.report import document as blocks
from inductor_bench.report import html, markdown, terminal
from inductor_bench.report.document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    WARN,
    Answers,
    Bar,
    Beside,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    FileText,
    FlameGraph,
    Fold,
    Item,
    Items,
    Mark,
    Note,
    Picture,
    Row,
    Section,
    Sentence,
    Series,
    ShownIn,
    SourceFile,
    Sparkline,
    Stretch,
    Table,
    TimelineChart,
    make_kernel_column,
    make_notes,
    make_text_column,
)

WIDTHS = (60, 80, 100, 140)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
NAMES = ("triton_poi_fused_add_relu_0", "triton_red_fused__native_layer_norm_native_layer_norm_backward_12", "gemm")


def every_block(text: str = "", command: str = "inductor-bench report runs/x --sort gain") -> Document:
    """A document of all blocks; ``text`` stands in each place that may hold a text from elsewhere."""
    parts = (Stretch(0.5, "#0072b2", f"conv{text}"), Stretch(0.3, "#e69f00", "idle"), Stretch(0.001, "#111111", "rest"))
    placed = (Stretch(0.25, "bad", f"slower{text}", "+1 ms", 0.5),)
    columns = (
        *(Column("#"), make_kernel_column(f"kernel{text}", 40), Column(f"kind{text}", False, on=ShownIn.PAPER)),
        *(
            Column("calls", spare=2),
            Column("time", hint=f"a hint{text}"),
            Column("share", spare=1),
        ),
        Column("where the time goes", False, spare=3),
    )
    rows = [
        Row(
            (
                Cell(str(number), number),
                Cell(
                    f"{name}{text}",
                    colour="#0072b2",
                    notes=(*make_notes(f"model.py:{number}{text}"), Note(f"look at it{text}", tone=WARN, whole=True)),
                ),
                Cell(f"pointwise{text}"),
                Cell("1,234", 1234.5),
                Cell(f"{number} ms", number / 1000),
                Cell("", None),
                Cell("", bar=Bar(parts)),
            ),
            lambda: (Sentence(f"details{text}"), FileText("kernels/a.py")),
            f"k{number}",
            GOOD if number == 1 else "",
        )
        for number, name in enumerate(NAMES, 1)
    ]
    total = Row((*(Cell(each) for each in ("", "the step", "", "", "6 ms", "")), Cell("", bar=Bar(placed))))
    small = Table((Column("category", False), Column("time")), [Row((Cell(f"conv{text}"), Cell("3 ms", 0.003)))])
    wide = Table(tuple(Column(f"column {n}", False) for n in range(9)), [Row(tuple(Cell("x" * 30) for _ in range(9)))])
    item = Item(
        f"A finding{text}.", WARN, f"do this{text}", (("1 triton", "k1"), (f"gone{text}", "")), 3, "no. 1-3", "log\nend"
    )
    mark = Mark(f"triton{text}", "k1", "#0072b2", "host", ((0.0, 0.25), (0.5, 0.25)))
    series = Series(f"3 timed steps{text}", "muted", ((0.0, 1.0), (0.5, 0.5), (1.0, 0.5)))
    inner: tuple[Block, ...] = (
        Items((item, Item("On paper only.", BAD, on=ShownIn.PAPER))),
        Bar(parts),
        Answers(((f"What is slow{text}?", replace(item, command=command)),)),
        Sparkline(f"Times{text}", (series,), "0", "2 ms", ("step 0", "step 2")),
        FlameGraph(((Stretch(1.0, "#0072b2", "main", "main 100%", 0.0),), (Stretch(0.5, "#e69f00", "f", "", 0.25),))),
        TimelineChart(
            (("host", placed), (f"stream 7{text}", parts[:1])),
            ((0.0, "0 s"), (1.0, "2 ms")),
            (("#0072b2", f"graph{text}"),),
            f"One step{text}",
            (mark,),
            0.002,
        ),
        Table(columns, rows, 1, total, "name", most=2, more=f"in tables/x.csv{text}"),
        Table(
            (make_text_column("part"), Column("time")),
            [Row((Cell("a", fill="█", colour="#0072b2"), Cell("1 ms")))] * 3,
            most=1,
            rest=Row((Cell("and 2 more", fill="-"), Cell("2 ms"))),
        ),
        wide,
        Facts((("Written", f"runs/x/   record.json{text}"), ("faster", "1.25x", GOOD))),
        Beside(((f"forward{text}", small), ("backward", small))),
        Fold(f"Notes{text}", (Sentence("folded"),)),
        Picture(f"a picture{text}", SVG),
        FileText("kernels/a.py"),
        Commands(((command, f"the next thing{text}"),)),
        Section(f"Inner{text}", (Sentence("inside"),)),
    )
    sections = (Section(f"Everything{text}", inner, BAD, "All", f"a note{text}"), Section("Empty", ()))
    lead = (Sentence(f"The answer is `42`{text}.", LEAD), Sentence(f"Why{text}.", NOTE))
    quiet = Section("Quiet", (Sentence("said already"),), quiet=True)
    return Document(
        f"Title{text}", (f"NVIDIA H200{text}",), (*lead, *sections, quiet), {"kernels/a.py": SourceFile("text")}
    )


def test_the_document_has_every_block() -> None:
    def kinds(found: tuple[Block, ...]) -> set[type]:
        inner = {kind for one in found if isinstance(one, Section | Fold) for kind in kinds(one.blocks)}
        return {type(one) for one in found} | inner

    known = {
        one for one in vars(blocks).values() if isinstance(one, type) and issubclass(one, Block) and one is not Block
    }
    assert kinds(every_block().blocks) == known


@pytest.mark.parametrize("width", WIDTHS)
def test_every_block_on_a_terminal(width: int) -> None:
    golden(f"document-{width}.txt", terminal.render_text(every_block(), width))


def test_every_block_in_markdown() -> None:
    golden("document.md", markdown.render_markdown(every_block()))


def test_every_block_on_a_page() -> None:
    text = html.render_page(every_block())
    parsed = Parsed(text)
    shown = parsed.shown
    for words_ in ("The answer is 42.", "A finding. Hint: do this", "and 3 more", "conv 50%, idle 30%", "look at it"):
        assert words_ in shown
    assert {"h1", "h2", "h3", "nav", "table", "tfoot", "dl", "img", "details", "pre"} >= {"h1"} and "Empty" not in shown
    tags = set(parsed.tags)
    assert {"h1", "h2", "h3", "ul", "table", "tfoot", "dl", "img", "details", "pre", "code"} <= tags
    assert [value for name, value in parsed.attributes if name == "data-v"][:3] == ["1", "1234.5", "0.001"]
    assert 'class="bar placed"' in text and "var(--bad)" in text and 'class="lane"' in text and 'id="files"' in text
    assert "What is slow?" in shown and shown.count("inductor-bench report runs/x --sort gain") == 2
    assert 'd="M0 0h0M500 50h0M1000 50h0"' in text and 'aria-label="Times"' in text
    assert '[["triton","k1","#0072b2",[[0.0,0.25],[0.5,0.25]],"#ffffff"]]' in text


def test_a_page_shows_a_thousand_rows_of_a_table_and_counts_the_others() -> None:
    columns = (Column("graph", False), Column("time"))
    rows = [Row((Cell(f"graph-{place}"), Cell("1 s", 1.0))) for place in range(blocks.MOST_ROWS + 7)]
    table = Table(columns, rows, total=Row((Cell("sum"), Cell("1007 s", 1007.0))), more="in tables/graphs.csv")
    text = html.render_page(Document("Graphs", blocks=(table,)))
    shown = Parsed(text).shown
    assert f"graph-{blocks.MOST_ROWS - 1}" in shown and f"graph-{blocks.MOST_ROWS}" not in shown
    assert "and 7 more in tables/graphs.csv" in shown and "1007 s" in shown
    assert "7 more in tables/graphs.csv" in markdown.render_markdown(Document("Graphs", blocks=(table,)))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_makes_a_line_wider_than_the_terminal(width: int) -> None:
    lines = terminal.render_text(every_block(" " + EVIL), width).splitlines()
    assert not set("".join(lines)) & {"\x1b", "\x9b", "\u202e"}
    records = ("  column", "Next", "Written", "  kernel")  # texts that stay in one piece
    assert [line for line in lines if len(line) > width and not line.startswith(records) and "long" not in line] == []


def test_hostile_text_is_text_in_markdown_and_on_a_page() -> None:
    text = markdown.render_markdown(every_block(" " + EVIL)).replace("<br>", "")
    fenced = re.sub(r"^(`{3,})$.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "\x1b" not in text and not re.search(r"(?<!\\)<", fenced)
    parsed = Parsed(html.render_page(every_block(" " + EVIL)))
    assert parsed.tags.count("script") == 3 and "alert(1)" in parsed.shown  # marks of a timeline are data in a script


def test_a_terminal_without_unicode_or_colours_says_the_same() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal.print_document(every_block(), Console(file=stream, width=80, force_terminal=False))
    stream.flush()
    assert b"conv 50% ###" in raw.getvalue() and b"\x1b" not in raw.getvalue()
    colour = io.StringIO()
    terminal.print_document(
        every_block(), Console(file=colour, width=80, force_terminal=True, color_system="truecolor")
    )
    assert "\x1b[" in colour.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colour.getvalue())
    assert plain == terminal.render_text(every_block(), 80)


def test_a_command_stays_in_one_piece() -> None:
    command = "inductor-bench kernel " + "a-long-path/" * 20
    assert command in terminal.render_text(every_block(command=command), 60)
    assert f"```\n{command}\n```" in markdown.render_markdown(every_block(command=command))
