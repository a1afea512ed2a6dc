"""The results of a batch's searches: how many models each setting helps, and how much each model gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from ... import units
from ...analysis.batch_aggregation import ModelSummary
from ...analysis.findings.finding import plural
from ...analysis.optimization.search_results import FEWEST_MODELS, Searches, SettingSummary, compute_mean_saving
from ...records.batch_record import RUNNING, UNOPTIMIZED
from ...records.optimization import UNDECIDED, UNPROVEN, MeasuredGain, Optimization
from ...store.folder import OPTIMIZED, PAGE
from .. import names
from ..document import (
    BAD,
    GOOD,
    WARN,
    Block,
    Cell,
    Column,
    Facts,
    Row,
    Section,
    Table,
    make_notes,
    make_table,
    make_text_column,
)
from ..optimization_document import describe_gain, list_titles

STAGE = "optimize"
"""The stage of a failure of a search."""

MOST_REASONS, MOST_NAMES = 3, 4
"""The largest number of reasons below a setting, and of models that each names."""


def search_words(summaries: Sequence[ModelSummary], searches: Searches) -> str:
    """Returns what the searches found, in a sentence; empty if nothing was searched.

    ``Settings: 4 of 5 models are faster, by 3.1 to 32.6%; all 5 take 9.3% less time in geometric mean.``
    """
    done = [search for _, search in searches if search.is_complete]
    failed = sum(_is_failed(summary) for summary in summaries)
    left = sum(summary.status in (UNOPTIMIZED, RUNNING) and not _is_complete(summary) for summary in summaries)
    rest = [f"{_count_searches(failed)} failed"] * bool(failed) + [f"{_count_searches(left)} left to do"] * bool(left)
    if not done:
        return f"Settings: {', '.join(rest)}." if rest and (searches or failed) else ""
    shares = sorted(search.winner.gain.share for search in done if search.winner is not None)
    said = f"{len(shares)} of {plural(len(done), 'model')} {'is' if len(shares) == 1 else 'are'} faster"
    if shares:
        least, most = _format_hundredths(shares[0]), _format_hundredths(shares[-1])
        said += f", by {most}%" if least == most else f", by {least} to {most}%"
        mean = compute_mean_saving(searches)
        if mean is not None and len(done) > 1:
            said += f"; all {len(done)} take {_format_hundredths(mean)}% less time in geometric mean"
    return f"Settings: {'; '.join([said, *rest])}."


def _count_searches(number: int) -> str:
    return "1 search" if number == 1 else f"{number} searches"


def _is_complete(summary: ModelSummary) -> bool:
    return summary.model.search is not None and summary.model.search.is_complete


def _is_failed(summary: ModelSummary) -> bool:
    failure = summary.model.model.failure
    return failure is not None and failure.stage == STAGE


def make_setting_sections(summaries: Sequence[ModelSummary], settings: Sequence[SettingSummary]) -> Iterator[Section]:
    """The tables of a batch with searches: a row for each setting, and one for each model."""
    few = f"; its interval needs {FEWEST_MODELS} models" if any(one.interval is None for one in settings) else ""
    yield Section(
        "Which settings help",
        (make_settings_table(settings),) if settings else (),
        short="Settings",
        note="a setting helps a model if this setting alone is proven to make the model's step shorter, with a 99.9% "
        f"interval; shares are of the step, and the median is over all models in which the setting was timed{few}",
    )
    shown = [one for one in summaries if one.model.search is not None or _is_failed(one) or one.status == UNOPTIMIZED]
    yield Section(
        "What each model gains",
        (make_models_table(shown),) if shown else (),
        short="Gains",
        note="the steps of the proof; saved: share of the step, with its 99.9% interval",
    )


def make_settings_table(settings: Sequence[SettingSummary]) -> Table:
    """A row for each setting that was tried in any model."""
    return Table(
        (
            make_text_column("setting", least=24),
            Column(
                "helps",
                hint="number of models in which this setting alone is proven to shorten the step, out of the models in "
                "which it ran",
            ),
            Column("kept", hint="models whose final settings include it", spare=4),
            Column("median", hint="the median, over the models in which it was timed, of the share of the step saved"),
            Column("95% interval", hint="95% interval of the median, from the ranks of the models"),
            Column("range", hint="the smallest and the largest saving in these models", spare=3),
            Column("unproven", hint="models in which the time was too short to decide", spare=1),
            Column("failed", hint="models in which it was refused or failed"),
            Column("wrong", hint="models whose outputs or gradients it changed: it is not advised there"),
        ),
        [_make_setting_row(one) for one in settings],
        filter="setting, model" if len(settings) > 1 else "",
    )


def _make_setting_row(one: SettingSummary) -> Row:
    ends = one.interval
    cells = (
        Cell(one.title, notes=make_notes(*_list_reasons(one))),
        Cell(f"{len(one.helps)} of {len(one.tried)}", len(one.helps)),
        Cell(_count(one.kept), one.kept),
        Cell(_format_percent(one.median), one.median),
        Cell(f"{_format_span(*ends)}%" if ends else "too few models" if one.saved else units.MISSING, ends and ends[0]),
        Cell(f"{_format_span(min(one.saved), max(one.saved))}%" if one.saved else units.MISSING),
        Cell(_count(one.unproven), one.unproven),
        Cell(_count(one.failed), one.failed, tone=WARN if one.failed else ""),
        Cell(_count(one.wrong), one.wrong, tone=BAD if one.wrong else ""),
    )
    return Row(cells, lambda: _list_setting_facts(one), tone=GOOD if one.helps else "")


def _count(number: int) -> str:
    return str(number) if number else ""


def _format_percent(share: float | None) -> str:
    return units.MISSING if share is None else f"{_format_hundredths(share)}%"


def _format_span(low: float, high: float) -> str:
    return f"{_format_hundredths(low)} to {_format_hundredths(high)}"


def _format_hundredths(share: float) -> str:
    return f"{round(share * 100, 1) + 0.0:.1f}"  # no -0.0


def _list_reasons(one: SettingSummary) -> Iterator[str]:
    """Yields the most frequent reasons why a setting failed, with some of the models; the CSV file has all reasons."""
    ranked = sorted(one.failures, key=lambda failure: -len(failure.models))
    for failure in ranked[:MOST_REASONS]:
        some, left = failure.models[:MOST_NAMES], len(failure.models) - MOST_NAMES
        more = f" and {left} more" if left > 0 else ""
        what = "numbers differ in" if failure.differs else "failed in"
        yield f"{what} {names.clean(', '.join(some))}{more}: {failure.reason}"
    if len(ranked) > MOST_REASONS:
        yield f"and {plural(len(ranked) - MOST_REASONS, 'more reason')} in settings.csv"


def _list_setting_facts(one: SettingSummary) -> Iterator[Block]:
    rest = [name for name in one.tried if name not in dict(one.helps)]
    facts = [("helps", "\n".join(f"{name}: {describe_gain(gain)}" for name, gain in one.helps))]
    facts += [("also tried in", ", ".join(rest)), ("group", one.group)]
    yield Facts(tuple((title, text) for title, text in facts if text))


def make_models_table(summaries: Sequence[ModelSummary]) -> Table:
    """A row for each model: its step before and after, and the settings that stay."""
    return make_table(
        summaries,
        _list_model_cells,
        lambda one, cells: Row(cells, tone=GOOD if _find_gain(one) is not None else ""),
        filter="model, setting" if len(summaries) > 1 else "",
    )


def _find_gain(summary: ModelSummary) -> MeasuredGain | None:
    search = summary.model.search
    return search.winner.gain if search is not None and search.winner is not None else None


def _list_model_cells(summary: ModelSummary) -> Iterator[tuple[Column, Cell]]:
    search, run, gain = summary.model.search, summary.model.model.run, _find_gain(summary)
    place = f"{quote(run)}/{OPTIMIZED}/{PAGE}" if run and search is not None else ""
    before_s = search.step_s if search is not None else summary.time_s if summary.model.in_step else None
    before_s, after_s, share = (gain.before_s, gain.after_s, gain.share) if gain else (before_s, None, None)
    saved = f"{_format_percent(gain.share)} ({_format_span(gain.low, gain.high)})" if gain is not None else ""
    tried = len(search.tried) if search is not None else 0
    text, tone = _describe_outcome(summary, search)
    yield make_text_column("model", shorten=names.cut_middles), Cell(summary.name, link=place)
    yield Column("step"), Cell(units.seconds(before_s) if before_s else units.MISSING, before_s)
    yield Column("after"), Cell(units.seconds(after_s) if gain is not None else "", after_s)
    yield Column("saved", hint="with its 99.9% interval"), Cell(saved, share)
    yield Column("tried", hint="settings that ran", spare=1), Cell(str(tried) if search is not None else "", tried)
    yield make_text_column("settings that stay", wraps=True, least=24), Cell(text, tone=tone)


def _describe_outcome(summary: ModelSummary, search: Optimization | None) -> tuple[str, str]:
    """The settings that stay, or why there are none."""
    failure = summary.model.model.failure
    if _is_failed(summary) and failure is not None:
        return f"failed: {failure.message}", BAD
    if search is None or not search.is_complete:
        return ("still to be searched" if search is None else "not finished"), WARN
    if search.winner is not None:
        titles = " + ".join(list_titles(search, search.winner.slugs))
        return (f"{titles} ({search.caveat})", WARN) if search.caveat else (titles, "")
    unproven = sum(row.state == UNPROVEN for row in search.tried)
    if unproven:
        return f"no setting is proven to be faster; {plural(unproven, 'setting')} may be", WARN
    undecided = sum(row.state == UNDECIDED for row in search.tried)
    if undecided:
        return f"no setting was measured to be faster; {undecided} undecided because of noise", WARN
    return ("no setting is faster" if search.tried else "nothing was tried"), ""
