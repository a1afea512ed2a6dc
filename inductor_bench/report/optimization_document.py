"""The document of a search for faster settings."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .. import units
from ..analysis.findings.doubts import DELAYED, describe_load, find_worst_load
from ..analysis.findings.finding import plural
from ..analysis.optimization.search_results import (
    NO_INTERVAL,
    count_processes,
    describe_result,
    format_exact_percent,
    format_interval,
    format_whole_step,
    is_alternating,
    write_program_command,
)
from ..devices.table import find_device
from ..records.code import MachineLoad
from ..records.optimization import (
    DENIED,
    DIFFERS,
    EMPTY_CACHES,
    ENVIRONMENT,
    FAILED,
    GROUPS,
    INDUCTOR,
    KEPT,
    LOST,
    NEEDS_GPU,
    NOTHING,
    OWN,
    REDUNDANT,
    SHARED_CACHES,
    SUGGESTED,
    UNDECIDED,
    UNPROVEN,
    UNTRIED,
    WARMING,
    MeasuredGain,
    MenuRow,
    Optimization,
    OptimizedProgram,
    parse_value,
)
from ..records.request import OptimizeRequest
from ..records.request_fields import list_option_words
from . import palette
from .document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    WARN,
    Bar,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    ShownIn,
    Stretch,
    Table,
    make_table,
    make_text_column,
)
from .formats import View, make_formats, write_csv

STATES = {
    KEPT: "kept",
    REDUNDANT: "adds nothing",
    LOST: "no faster",
    DIFFERS: "numbers differ",
    FAILED: "failed",
    UNDECIDED: "undecided",
    UNPROVEN: "not proven",
    UNTRIED: "not tried",
    SUGGESTED: "suggested",
}
"""The outcomes of rows, in words."""

MISSING = 1.1
"""Time for whole runs, as a multiple of what they are expected to take."""

OTHER_STEP = 1.5
"""If the breakdown's step is longer or shorter than the search's by more than this factor, the report says so."""

SHARES = "share of the step without the setting, in brackets its 99.9% interval"
STEP_COLOUR = palette.GRAPHS[1]


def make_optimization_document(found: Optimization, view: View) -> Document:
    """Makes the answer, the waterfall, each setting's saving, and the settings without success or without a trial."""
    winner = found.winner
    written = (
        f"{view.folder}/   {' · '.join(['report.html', 'optimization.json', *found.files])}" if view.folder else ""
    )
    return Document(
        found.title,
        (describe_machine(found),),
        (
            Sentence(write_headline(found), LEAD),
            *([Section("Step by step", (make_waterfall(found, winner),), quiet=True)] if winner else []),
            Section("What each setting saves", (make_ablation_table(found),), note=SHARES),
            Facts(tuple(list_facts(found))),
            Section("Tried, and not kept", (make_tried_table(found),), note=SHARES),
            Section("Not tried", _make_untried_blocks(found)),
            Section("Only you can do", (Items(tuple(list_suggested_items(found))),)),
            Section("Notes", (Items(tuple(Item(f"{note}.", NOTE) for note in list_notes(found))),)),
            Commands(tuple(list_next_commands(found, view.folder))),
            Facts((("Written", written),) if written else (), on=ShownIn.TERMINAL),
        ),
    )


def describe_machine(found: Optimization) -> str:
    """The device and the version of torch."""
    device = next((trial.device for trial in found.trials if trial.device), "")
    environment = found.environment
    on_host = not environment.device.accelerator or (bool(device) and find_device(device).runs_on_host)
    name = environment.host.cpu if on_host else environment.device.accelerator or ""
    torch = f"torch {environment.versions.torch}" if environment.versions.torch else ""
    return " · ".join(filter(None, (name, torch)))


def write_headline(found: Optimization) -> str:
    """The first line: the step that the user gets, its proof, and how many settings were tried and kept."""
    winner, tried = found.winner, len(found.tried)
    if winner is not None:
        does = "give a longer --budget" if found.is_complete else "the same command goes on"
        caveat = f", {found.caveat}; {does}" if found.caveat else ""
        return f"{describe_result(found)}. {plural(tried, 'setting')} tried, {len(winner.slugs)} kept{caveat}"
    busy = find_load(found)
    step = f"{describe_load(busy)}: {units.seconds(found.step_s)}" if busy is not None else units.seconds(found.step_s)
    unproven = [row for row in found.rows if row.state == UNPROVEN]
    if not tried:
        return f"{step} a step: {_explain_nothing_timed(found)}"
    if not found.is_complete:
        seen = f"; {plural(len(unproven), 'setting')} may be faster, and nothing is proven yet" if unproven else ""
        return f"{step} a step: not finished, {plural(tried, 'setting')} tried{seen}"
    if unproven:
        return f"{step} a step: of {plural(tried, 'setting')} tried none is proven to be faster"
    undecided, lost = (sum(row.state == state for row in found.rows) for state in (UNDECIDED, LOST))
    if undecided and not lost:
        return f"{step} a step: undecided, because the steps scatter too much ({plural(undecided, 'setting')} tried)"
    if undecided:
        return (
            f"{step} a step: of {plural(tried, 'setting')} tried none was measured to be faster; {undecided} undecided"
        )
    return f"{step} a step: of {plural(tried, 'setting')} tried none is faster"


def _explain_nothing_timed(found: Optimization) -> str:
    """Says that no setting was timed, and why."""
    if not found.is_complete:
        return "nothing was tried yet"
    if any(trial.late for trial in found.trials):
        took = f"{units.duration(found.spent_s)} of {units.duration(found.budget_s)}"
        return (
            f"nothing could be measured, because the time of the search ({took}) was over before enough steps were "
            "timed"
        )
    if found.before_s and any(row.needs_time for row in found.rows):
        took = f"{units.duration(found.before_s)} of {units.duration(found.budget_s)}"
        return f"nothing was tried, because the breakdown took {took}"
    return "nothing was tried"


def find_load(found: Optimization) -> MachineLoad | None:
    """The largest load of the machine while steps were timed, if it delayed them; else ``None``."""
    worst = find_worst_load(trial.load for trial in found.trials)
    return worst if worst is not None and worst.delayed_share >= DELAYED else None


def make_waterfall(found: Optimization, winner: OptimizedProgram) -> Table:
    """The step as it is, and after each setting."""
    longest = max([winner.gain.before_s, *(time_s for _, time_s in winner.steps)]) or 1.0
    rows = [_make_waterfall_row("as it is", winner.gain.before_s, winner.gain.before_s, longest)]
    before_s = winner.gain.before_s
    for title, (_, time_s) in zip(list_titles(found, [slug for slug, _ in winner.steps]), winner.steps, strict=True):
        rows.append(_make_waterfall_row(f"+ {title}", time_s, before_s, longest))
        before_s = time_s
    step = Column("step in turns" if is_alternating(found) else "step")
    return Table((make_text_column("setting"), step, Column("saved")), rows)


def list_titles(found: Optimization, slugs: Iterable[str]) -> list[str]:
    """The titles of rows by their names."""
    titles = {row.slug: row.title for row in found.rows}
    return [titles.get(slug, slug) for slug in slugs]


def _make_waterfall_row(title: str, time_s: float, before_s: float, longest: float) -> Row:
    saved_s = before_s - time_s
    bar = [Stretch(time_s / longest, STEP_COLOUR, "step", units.seconds(time_s), 0.0)]
    if saved_s > 0:
        bar.append(Stretch(saved_s / longest, "good", "saved", units.seconds(saved_s), time_s / longest))
    return Row(
        (
            Cell(title),
            Cell(units.seconds(time_s), time_s, bar=Bar(tuple(bar))),
            Cell(units.seconds(saved_s) if saved_s else "", saved_s),
        )
    )


HINTS = {
    "by itself": "what this setting alone saves of the step, by its proof, with its 99.9% interval",
    "taken out": "how much longer a step takes if only this setting is taken out of the result",
    "numbers": "how it may change the numbers; outputs and gradients were compared",
    "compile": "seconds of the first compilation of its own graphs, with the caches of the search",
    "memory": "the most that torch allocated in its steps",
}
"""What a column means."""


def make_ablation_table(found: Optimization) -> Table:
    """A row for each setting of the result."""
    kept = [row for row in found.rows if row.state == KEPT]
    kept.sort(key=lambda row: -(row.own.share if row.own else 0.0))
    return make_table(kept, _list_kept_cells, lambda row, cells: Row(cells, lambda: _list_details(row), tone=GOOD))


def _list_kept_cells(row: MenuRow) -> Iterator[tuple[Column, Cell]]:
    compile_s = row.compile_time_s if row.changes_compilation else None
    numbers = "unchanged" if row.numbers == NOTHING else row.numbers
    yield make_text_column("setting"), Cell(row.title)
    yield Column("by itself", hint=HINTS["by itself"]), make_gain_cell(row.proven)
    yield Column("taken out", hint=HINTS["taken out"]), make_gain_cell(row.own)
    yield Column("numbers", right=False, hint=HINTS["numbers"], spare=1), Cell(numbers)
    yield Column("compile", hint=HINTS["compile"], spare=2), Cell(units.seconds(compile_s), compile_s)
    memory = Cell(units.size(row.peak_memory_bytes), row.peak_memory_bytes)
    yield Column("memory", hint=HINTS["memory"], spare=3), memory


def make_gain_cell(gain: MeasuredGain | None) -> Cell:
    """A saving with its interval: ``19.4% (18.6 to 20.1)``."""
    if gain is None:
        return Cell("")
    text = format_exact_percent(gain.share)
    if gain.low > NO_INTERVAL:
        text += f" ({gain.low * 100:.1f} to {gain.high * 100:.1f})"
    return Cell(text, gain.share)


def _list_details(row: MenuRow) -> Iterator[Block]:
    pairs = [("sets", setting.words) for setting in row.settings]
    pairs += [("shortens", row.why)] + [("can fail with", row.fails)] * bool(row.fails)
    for name, gain in (("ranked", row.screened), ("by itself", row.proven), ("taken out", row.own)):
        if gain is not None:
            pairs.append((name, describe_gain(gain)))
    if row.peak_memory_bytes is not None:
        pairs.append(("peak memory", units.size(row.peak_memory_bytes)))
    pairs += [("described in", row.source)] * bool(row.source)
    yield Facts(tuple(pairs))


def describe_gain(gain: MeasuredGain) -> str:
    """Describes a saving with the measurements behind it."""
    return (
        f"{units.seconds(gain.before_s)} → {units.seconds(gain.after_s)} a step, "
        f"{format_exact_percent(gain.share)} saved, "
        f"{format_interval(gain)}, {plural(gain.samples, 'pair')} of turns in {count_processes(gain.processes)}; "
        f"placebo {format_exact_percent(abs(gain.placebo))}; {gain.verdict}"
    )


def list_facts(found: Optimization) -> Iterator[tuple[str, str]]:
    """Yields what the result costs, and what was compared."""
    winner = found.winner
    if winner is not None:
        if winner.alone is not None:
            caches = ", with caches" * (winner.from_start == SHARED_CACHES)
            ran = f"in {count_processes(winner.alone.processes)}, each with the settings or without them"
            yield "new processes", f"{format_whole_step(winner.alone)}, {ran}{caches}"
        if winner.losses:
            yield "training", winner.losses
        ours, theirs = winner.peak_memory_bytes, winner.original_peak_memory_bytes
        if ours is not None and theirs is not None:
            yield "peak memory", f"{units.size(theirs)} → {units.size(ours)}"
        changes = any(row.changes_compilation for row in found.rows if row.slug in winner.slugs)
        times_s = (winner.original_compile_time_s, winner.compile_time_s)
        if changes and winner.from_start == EMPTY_CACHES and None not in times_s:
            before, after = map(units.seconds, times_s)
            pays = "" if not winner.pays_after else f", paid off after {plural(round(winner.pays_after), 'step')}"
            yield "compilation", f"{before} → {after} with empty caches{pays}"
    if found.trials:
        yield "search", list_search_facts(found)


def list_search_facts(found: Optimization) -> str:
    """How long the search took, in how many processes, and how much of their time they compiled.

    The two times are in seconds if the limit was not given in whole minutes.
    """
    gpus = len({trial.gpu for trial in found.trials if trial.gpu})
    on = f" on {gpus} GPUs" if gpus > 1 else ""
    ran_s = sum(trial.time_s for trial in found.trials)
    compiled_s = sum(trial.compile_time_s for trial in found.trials)
    share = f", {units.whole_percent(compiled_s / ran_s)} of their time compiling" if compiled_s and ran_s else ""
    if found.budget_s % 60:
        took = f"{found.spent_s:.0f} s of {found.budget_s:g} s"
    else:
        took = f"{units.duration(found.spent_s)} of {units.duration(found.budget_s)}"
    return f"{took}, {count_processes(len(found.trials))}{on}{share}"


def make_tried_table(found: Optimization) -> Table:
    """Makes a table of the rows that ran and are not part of the result."""
    rows = [row for row in found.tried if row.state != KEPT]
    rows.sort(key=lambda row: -_find_shown_share(row))
    return make_table(rows, _list_tried_cells, lambda row, cells: Row(cells, lambda: _list_details(row)))


TONES = {DIFFERS: BAD, FAILED: BAD, UNPROVEN: WARN, UNDECIDED: WARN}


def _list_tried_cells(row: MenuRow) -> Iterator[tuple[Column, Cell]]:
    hint = "of this setting alone; if it was not proven, the saving in the ranking"
    yield make_text_column("setting"), Cell(row.title)
    yield Column("saves", hint=hint), make_gain_cell(row.proven or row.screened)
    yield Column("", right=False), Cell(STATES.get(row.state, row.state), tone=TONES.get(row.state, ""))
    yield make_text_column("why", wraps=True, least=24), Cell(row.reason)


def _find_shown_share(row: MenuRow) -> float:
    gain = row.proven or row.screened
    return gain.share if gain is not None else -10.0


def _make_untried_blocks(found: Optimization) -> tuple[Items, Items]:
    """The rows that were not tried. A screen only counts those that the user left out, or that cannot help here."""
    untried = [row for row in found.rows if row.state == UNTRIED]
    absent = [row for row in untried if row.bound == 0 or row.reason in (DENIED, NEEDS_GPU)]
    listed = [row for row in untried if row not in absent]
    return Items((*list_untried_items(listed), *_count_absent(absent))), Items(
        tuple(list_untried_items(absent)), on=ShownIn.PAPER
    )


def _count_absent(rows: Sequence[MenuRow]) -> Iterator[Item]:
    """How many rows a screen leaves out, and why."""
    gpu, denied = (sum(row.reason == reason for row in rows) for reason in (NEEDS_GPU, DENIED))
    said = [f"{gpu} need{'s' * (gpu == 1)} a GPU"] if gpu else []
    said += [f"{denied} {'is' if denied == 1 else 'are'} left out by --deny or --only"] if denied else []
    if said:
        yield Item(f"{' and '.join(said)}; their names are in report.html", NOTE, on=ShownIn.SCREEN)


def list_untried_items(rows: Iterable[MenuRow]) -> Iterator[Item]:
    """Yields the rows that were not tried, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.title)
    for reason, titles in reasons.items():
        yield Item(f"{reason}: {', '.join(titles)}" if len(titles) > 1 else f"{titles[0]}: {reason}", NOTE)


def list_suggested_items(found: Optimization) -> Iterator[Item]:
    """Yields the changes that are only suggested."""
    for row in found.rows:
        if row.state == SUGGESTED:
            most = f", at most {units.percent(row.bound)} of the step" if row.bound is not None else ""
            yield Item(f"{row.title}{most}: {row.reason}", NOTE, row.source)


def list_notes(found: Optimization) -> Iterator[str]:
    """What limits the figures."""
    yield from _note_other_step(found)
    if found.is_complete and found.winner is None and _open_rows(found):
        yield (
            "with a longer --budget the tool keeps what was measured, and repeats the processes that the time limit "
            "ended; it measures a setting again if it is undecided, and may still be judged; with --force it measures "
            "everything again"
        )
    yield from found.notes
    if found.winner is not None and (busy := find_load(found)) is not None:
        yield describe_load(busy)
    for trial in found.trials:
        if trial.failure is not None and trial.purpose != WARMING:  # it only cost time
            yield f"{trial.name}: {trial.failure.message}"
    compared = [check for trial in found.trials for one in trial.variants for check in one.checks]
    if found.tried and not any(check.is_compared for check in compared):
        yield "no compiled callable could be compared with the original"


def _note_other_step(found: Optimization) -> Iterator[str]:
    """Says if the step here differs from the breakdown's step, from which the bounds of rows come."""
    run_s, here_s = found.step_time_s, found.step_s
    many = max(here_s, run_s) / min(here_s, run_s) if min(here_s, run_s) > 0 else 1.0
    if many > OTHER_STEP:
        how = f"{many:.1f} times {'longer' if run_s > here_s else 'shorter'}"
        yield (
            f"in the breakdown a step took {units.seconds(run_s)}, {how} than here: the most that a setting can save "
            "was computed from that step; on an idle machine, break the program down again, and search again"
        )


def list_next_commands(found: Optimization, folder: Path | None) -> Iterator[tuple[str, str]]:
    """What to type next."""
    if folder is None:
        return
    place = shlex.quote(os.path.relpath(folder))
    program = write_program_command(found)
    if found.winner is not None:
        yield f"inductor-bench apply {place} -- {program}", "runs the program with the settings, unchanged"
        if "settings.diff" in found.files:
            yield f"patch {shlex.quote(found.target)} {place}/settings.diff", "writes them into the program"
        else:
            yield f"cat {place}/README.md", "has the lines to paste" if found.files else ""
    late = any(row.needs_time for row in found.rows) or any(trial.late for trial in found.trials)
    run = shlex.quote(os.path.relpath(folder.parent))
    again = " ".join(["inductor-bench optimize", run, *_list_asked_words(found), "--budget"])
    searching = f"{again} {max(1, round(found.budget_s / 60))}m --force"
    busy = find_load(found) is not None
    is_open = found.is_complete and found.winner is None and (busy or bool(_open_rows(found)))
    if is_open and busy:
        yield searching, "on an idle machine: measures everything again"
    if found.caveat and found.is_complete:
        yield (
            f"{again} {_estimate_minutes_until_confirmed(found)}m",
            "checks the result in new processes that start with the settings",
        )
    elif late and found.is_complete:
        yield f"{again} {found.longer_budget}", "tries the settings for which no time was left"
    if is_open and not busy:
        yield searching, "measures everything again"


def _list_asked_words(found: Optimization) -> Iterator[str]:
    """The options with which the user chose what is tried, as words of a command."""
    own = [row.settings[0] for row in found.rows if row.group == OWN]
    is_only = bool(found.allowed) and {*found.denied} == {*GROUPS} - {*found.allowed}
    asked = OptimizeRequest(
        allowed=() if is_only else found.allowed,
        denied=() if is_only else found.denied,
        only=found.allowed if is_only else (),
        max_memory_bytes=found.max_memory_bytes,
        inductor=tuple(f"inductor.{one.setting}={parse_value(one.value)}" for one in own if one.kind == INDUCTOR),
        variables=tuple((one.setting, str(parse_value(one.value))) for one in own if one.kind == ENVIRONMENT),
        devices=found.devices,
    )
    return map(shlex.quote, list_option_words(asked))


def _estimate_minutes_until_confirmed(found: Optimization) -> int:
    """Estimates the minutes that are enough for whole runs of the result, and for little else."""
    missing_s = found.winner.missing_s or 0.0 if found.winner is not None else 0.0
    return math.ceil(max(found.spent_s + MISSING * missing_s, found.budget_s + 1) / 60)


def _open_rows(found: Optimization) -> list[MenuRow]:
    """Returns the rows for which another measurement may have another result."""
    return [row for row in found.rows if row.state in (UNDECIDED, FAILED)]


COLUMNS = (
    *("setting", "state", "saves", "low", "high", "taken_out", "taken_out_low", "taken_out_high", "bound"),
    *("numbers", "compile_time_s", "peak_memory_bytes", "sets", "reason"),
)


def make_optimization_csv(found: Optimization, view: View) -> str:
    """Renders a row for each row of the menu; shares are those of the step."""
    return write_csv(COLUMNS, (_make_csv_row(row) for row in found.rows))


def _make_csv_row(row: MenuRow) -> list[object]:
    return [
        *(
            row.slug,
            row.state,
            *_format_interval_ends(row.proven or row.screened),
            *_format_interval_ends(row.own),
            row.bound,
            row.numbers,
        ),
        *(row.compile_time_s, row.peak_memory_bytes, _format_settings(row), row.reason or None),
    ]


def _format_interval_ends(gain: MeasuredGain | None) -> Sequence[float | None]:
    return (gain.share, gain.low, gain.high) if gain is not None else (None, None, None)


def _format_settings(row: MenuRow) -> str:
    return "; ".join(setting.words for setting in row.settings)


FORMATS = make_formats(
    make_optimization_document,
    csv=make_optimization_csv,
    record="what optimization.json holds",
    rows="a row for each setting",
    of="a search of optimize",
    names_folder=True,
)
