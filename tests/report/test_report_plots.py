"""The plots: which are drawn, that they are pictures, and that no name breaks them."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from typing import Any

import pytest
import run_builder as build
from inline import change
from late import Late

from inductor_bench.records.base import Category
from inductor_bench.records.run import Environment
from inductor_bench.report import palette

image = Late("matplotlib.image")
plots = Late("inductor_bench.report.run.plots")


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("mixnet", {"bandwidth", "headroom"}),
        ("without_peaks", {"bandwidth"}),
        ("cpu", {"bandwidth", "headroom"}),
        ("densenet", {"bandwidth", "headroom"}),
        ("hostile", {"bandwidth", "headroom"}),
        ("empty", set()),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_drawn(name: str, drawn: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "svg", png)
    pictures = plots.draw_plots(getattr(build, name)())
    assert set(pictures) == drawn
    for picture in pictures.values():
        pixels = image.imread(io.BytesIO(picture), format="png")
        assert pixels.shape[1] == 1440 and 200 < pixels.shape[0] < 2400
        for edge in (pixels[:, :8], pixels[:, -8:], pixels[:8], pixels[-8:]):
            assert edge[..., :3].min() == 1, "something is cut off"
        assert pixels[..., :3].min() < 0.3 and (pixels[..., :3] == 1).mean() > 0.3  # ink on white


def png(figure: Any) -> bytes:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160)
    return drawn.getvalue()


@pytest.mark.parametrize(
    ("environment", "about"), [(build.GPU, "one (NVIDIA H200 · torch 2.11.0 · triton 3.6.0)"), (Environment(), "one")]
)
def test_an_unknown_machine_is_not_named(environment: Environment, about: str) -> None:
    run = replace(build.run("one", [build.mixnet().modules[0]]), environment=environment)
    figure, _ = plots.run_figure(run, 3.0, "title", 0.5, 0.5, 0.5)
    assert [text.get_text() for text in figure.texts] == ["title", about]


def test_a_short_logarithmic_axis_has_labels_between_powers_of_ten() -> None:
    ticks = [0.2, 0.30000000000000004, 0.05, 0.002]
    assert [plots.format_minor_percent(tick, (2, 5)) for tick in ticks] == ["20%", "", "5%", "0.2%"]
    assert plots.format_minor_percent(0.2, ()) == ""


def test_the_same_record_gives_the_same_picture() -> None:
    assert plots.draw_plots(build.cpu()) == plots.draw_plots(build.cpu())


def test_many_graphs_and_unknown_times_are_drawn() -> None:
    module = build.mixnet().modules[0]
    many = tuple(change(module, label=f"forward-{i}", slug=f"f{i}", wall_time_s=None, idle=None) for i in range(25))
    assert set(plots.draw_plots(replace(build.mixnet(), modules=many))) == {"bandwidth", "headroom"}


def test_every_category_has_one_colour_of_its_own() -> None:
    assert set(palette.COLOURS) == set(Category)
    assert len(set(palette.COLOURS.values()) | {palette.IDLE}) == len(Category) + 1
    assert palette.choose_ink("#ffffff") == "#000000" and palette.choose_ink("#332288") == "#ffffff"


def test_labels_of_close_points_are_joined() -> None:
    points = [
        plots.Point(0, 0, 1),
        plots.Point(100, 0, 2),
        plots.Point(30, 5, 3),
        plots.Point(60, 0, 4),
        plots.Point(300, 0, 5),
    ]
    groups = [sorted(point.number for point in group) for group in plots.find_neighbours(points, 45, 20)]
    assert sorted(groups) == [[1, 2, 3, 4], [5]]


def test_a_label_goes_where_nothing_is() -> None:
    room, mark = plots.Box(0, 0, 200, 100), plots.Box(90, 40, 110, 60)
    above, right, left, below, *_ = places = plots.list_places_around([mark], 30, 10)
    assert above == plots.Box(85, 64, 115, 74) and right.left == 114 and left.right == 86 and below.top == 36
    assert plots.find_best_place(places, room, [mark]) == above
    assert plots.find_best_place(places, room, [mark, above]) == right
    assert plots.find_best_place(places, room._replace(right=120), [mark, above]) == left, "the right is outside"
    over = plots.Box(60, 0, 140, 100)
    assert plots.find_best_place(places, room, [over, plots.Box(60, 62, 140, 70)]) != above, (
        "if all is taken, the least is covered"
    )
    curve = [(0.0, 0.0), (10.0, 30.0)]
    assert (
        plots.find_best_place(plots.list_places_beside(curve, 30, 10), room, [plots.Box(0, 0, 20, 20)])
        == plots.list_places_beside(curve, 30, 10)[1]
    )


@pytest.mark.parametrize("name", ["mixnet", "cpu", "densenet"])
def test_no_label_lies_on_a_marker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[Any] = []
    marks: list[Any] = []
    place, mark = plots._place, plots.mark_point

    def placed(*words: Any, **style: Any) -> Any:
        labels.append(place(*words, **style))
        return labels[-1]

    def marked(*words: Any) -> Any:
        marks.append(mark(*words))
        return marks[-1]

    monkeypatch.setattr(plots, "_place", placed)
    monkeypatch.setattr(plots, "mark_point", marked)
    plots.draw_plots(getattr(build, name)())
    assert len(labels) > 1 and len(marks) > 2
    assert [label for label in labels for box in marks if label.covered(box)] == []
    assert [pair for pair in itertools.combinations(labels, 2) if pair[0].covered(pair[1])] == []
