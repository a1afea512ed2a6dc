"""The menu: which settings may make a program faster, how much each can save at most, and why some are not tried.

A row of ``menu_entries`` is one change that needs no edit of the program. :func:`make_menu` asks a RUN what
each row can save. A row that can save less than :data:`LEAST_SHARE` of the step is not tried, and gives this as its
reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ... import units
from ...records.optimization import (
    ALTERNATING,
    DENIED,
    ENVIRONMENT,
    FUNCTION,
    INDUCTOR,
    NOTHING,
    OWN,
    PINS,
    PRECISION,
    SUGGESTED,
    SUMS,
    UNTRIED,
    MenuRow,
    ProgramSetting,
)
from ...records.run import Prediction
from ..findings.doubts import find_disturbed_step
from ..findings.precision_findings import is_no_faster_in_bfloat16
from .menu_entries import MENU, THREADS, MenuEntry
from .step_facts import EagerFunction, StepFacts

LEAST_SHARE = 0.01
"""A row that can save less than this share of the step is not tried, because it is not worth a line in a program."""

FUNCTIONS = "functions"
"""The group of the rows that compile functions."""

MOST_FUNCTIONS = 3
"""The largest number of a program's functions that are compiled; each is a row."""

BF16 = "bf16"
"""The group of matrix products in bfloat16 on a CPU."""

CHANGES_NUMBERS = "it changes the precision of numbers"
NO_FASTER = "matrix products of the program's shapes were timed by themselves, and are not clearly faster in bfloat16"

ASKED_FOR = tuple(dict.fromkeys(entry.group for entry in MENU if entry.numbers == PRECISION))
"""The groups that are tried only if they are allowed: they change the precision of numbers."""


def make_menu(
    facts: StepFacts,
    allowed: Collection[str] = (),
    denied: Collection[str] = (),
    options: Mapping[str, str] | None = None,
    own: Sequence[ProgramSetting] = (),
    pins: tuple[ProgramSetting, float] | None = None,
) -> tuple[MenuRow, ...]:
    """The menu for a program. A row that is not tried has a reason.

    Args:
        facts: the step of the program.
        allowed: groups of :data:`ASKED_FOR` to try, too.
        denied: groups not to try.
        options: the options of Inductor that this torch has, with their values; ``None`` if they are unknown.
        own: settings that the user adds, a row each.
        pins: the setting that puts the configs of the RUN's retunes into the program, and the seconds of a step that
            they are projected to save; ``None`` without any.
    """
    threads = (ProgramSetting(ENVIRONMENT, "OMP_NUM_THREADS", repr(str(facts.cores))),)
    entries = (*MENU, replace(THREADS, settings=threads))
    rows = [_make_row(entry, facts, allowed, denied, options) for entry in entries]
    rows += [_make_pins_row(facts, *pins, denied)] if pins is not None else []
    rows += _make_compiled_rows(facts, denied)
    rows += [_make_row_of_user(number, setting) for number, setting in enumerate(own, 1)]
    return (*rows, *_list_suggestions(facts))


def _make_row(
    entry: MenuEntry,
    facts: StepFacts,
    allowed: Collection[str],
    denied: Collection[str],
    options: Mapping[str, str] | None,
) -> MenuRow:
    obstacle = entry.obstacle(facts)
    bound = None if obstacle else entry.bound(facts)
    reason = obstacle or _explain_no_effect(entry, options)
    if not reason and entry.group in denied:
        reason = DENIED
    if not reason and bound is not None and bound < LEAST_SHARE:
        reason = f"it can save at most {units.percent(bound)} of the step"
    if not reason and entry.group in ASKED_FOR and entry.group not in allowed:
        is_slow = entry.group == BF16 and is_no_faster_in_bfloat16(facts.run)
        reason = f"{NO_FASTER if is_slow else CHANGES_NUMBERS}; give --allow {entry.group} to try it"
    return MenuRow(
        slug=entry.slug,
        title=entry.title,
        settings=entry.settings,
        group=entry.group,
        numbers=entry.numbers,
        alternates=all(one.kind in ALTERNATING for one in entry.settings),
        why=entry.why,
        bound=bound,
        fails=entry.fails,
        source=entry.source,
        state=UNTRIED,
        reason=reason,
    )


def _explain_no_effect(entry: MenuEntry, options: Mapping[str, str] | None) -> str:
    """Says why a row would change nothing in this version of torch."""
    asked = [one for one in entry.settings if one.kind == INDUCTOR]
    if options is None or not asked:
        return ""
    missing = [one.setting for one in asked if one.setting not in options]
    if missing:
        return f"this torch has no option {missing[0]}"
    return "it is set already" if all(options[one.setting] == one.value for one in asked) else ""


def _make_pins_row(facts: StepFacts, setting: ProgramSetting, saving_s: float, denied: Collection[str]) -> MenuRow:
    return MenuRow(
        slug=PINS,
        title="the configs of the RUN's retunes",
        settings=(setting,),
        group=PINS,
        numbers=SUMS,
        alternates=False,
        why="the kernels that were retuned",
        bound=facts.share(2 * saving_s) if saving_s else None,
        fails="another torch, Triton or device",
        source="docs/kernels.md",
        reason=DENIED if PINS in denied else "",
    )


def _make_compiled_rows(facts: StepFacts, denied: Collection[str]) -> Iterator[MenuRow]:
    """A row for each loss that runs eagerly, and for the functions that call most eager operators."""
    for name, share in facts.eager_losses.items():
        if share >= LEAST_SHARE:
            place = f"torch.nn.functional.{name}"
            yield _make_compiled_row(f"compile-loss-{name}", f"the loss {name} compiled", place, share, denied)
    for number, one in enumerate(facts.eager_functions[:MOST_FUNCTIONS], 1):
        if one.share >= LEAST_SHARE:
            name, place = one.source.function, f"{one.source.file}:{one.source.line}:{one.source.function}"
            row = _make_compiled_row(f"compile-{number}-{name}", f"{name}() compiled", place, one.share, denied)
            yield replace(row, is_costly=one.is_costly)


def _make_compiled_row(slug: str, title: str, place: str, share: float, denied: Collection[str]) -> MenuRow:
    return MenuRow(
        slug=slug,
        title=title,
        settings=(ProgramSetting(FUNCTION, place, "True"),),
        group=FUNCTIONS,
        numbers=SUMS,
        alternates=True,
        why="the eager operators that it calls",
        bound=share,
        fails="graph breaks, and arguments for which it is compiled again",
        source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        reason=DENIED if FUNCTIONS in denied else "",
    )


def _is_tried(prediction: Prediction, tried: Collection[EagerFunction]) -> bool:
    """Whether a row of the menu compiles the functions that a prediction names."""
    places = {(one.source.file, one.source.function) for one in tried}
    named = [one.source for one in prediction.changes if one.source]
    return bool(named) and all((one.file, one.function) in places for one in named)


def _make_row_of_user(number: int, setting: ProgramSetting) -> MenuRow:
    alternates = setting.kind in ALTERNATING
    return MenuRow(f"own-{number}", setting.words, (setting,), OWN, SUMS, alternates, "what you asked for")


# Changes that are only suggested: a line of the program, or a promise about it that no tool can check.


LINES = {
    "synchronisations": "read the device's results later",
    "eager-operators": "compile these lines, too",
    "gradient-copies": "gradients as views of the buckets (gradient_as_bucket_view=True)",
    "replay-inputs": "inputs of CUDA graphs with constant addresses",
    "decomposed-attention": "attention in one kernel (torch.nn.functional.scaled_dot_product_attention)",
}
"""What to do for each kind of finding whose change is a line of the program."""


DISTURBED = "other processes disturbed the step from which this share was computed"


def _list_suggestions(facts: StepFacts) -> Iterator[MenuRow]:
    doubt = f"; {DISTURBED}" if find_disturbed_step(facts.run) else ""
    if (facts.guards or 0.0) >= LEAST_SHARE:
        yield MenuRow(
            "skip-guards",
            "guards that are not checked (torch.compiler.skip_guard_on_all_nn_modules_unsafe)",
            (),
            "guards",
            NOTHING,
            False,
            "waits while the host checks guards",
            facts.guards,
            state=SUGGESTED,
            reason=f"only you can promise that the model does not change; it is not tried{doubt}",
            source="https://docs.pytorch.org/docs/stable/torch.compiler_api.html",
        )
    for one in facts.predictions:
        share = facts.share(one.saving_s)
        tried = _is_tried(one, facts.eager_functions[:MOST_FUNCTIONS])
        if one.kind == "decomposed-attention" and facts.has_unfused_attention:
            continue  # the program calls it already: rows of the menu try its backends
        if one.kind in LINES and share is not None and share >= LEAST_SHARE and not tried:
            yield _suggest_line(one, share, doubt)


def _suggest_line(prediction: Prediction, share: float, doubt: str) -> MenuRow:
    lines = dict.fromkeys(f"{one.source.file}:{one.source.line}" for one in prediction.changes if one.source)
    where = f" at {', '.join(list(lines)[:3])}" if lines else ""
    return MenuRow(
        prediction.finding,
        LINES[prediction.kind],
        (),
        "lines",
        NOTHING,
        False,
        f"the finding {prediction.kind}{where}",
        share,
        state=SUGGESTED,
        reason=f"it is a change of the program's text{where}: simulated, not tried{doubt}",
    )
