"""A run in short: its summary as data, and on a page a reader's questions with their answers, and how it was made."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ... import units
from ...analysis.findings.finding import ADVICE, CAUTION, FINE, Finding, RunEvidence, hash_text, join_words, plural
from ...analysis.findings.first_line import write_first_line
from ...analysis.findings.next_commands import next_commands, write_applying_command, write_trial_command
from ...analysis.findings.product_findings import sum_product_flops
from ...analysis.findings.rule_table import FIRST, find_saving_s, list_findings_beside
from ...analysis.findings.step_phrases import describe_step, name_line
from ...analysis.optimization.search_results import describe_result
from ...analysis.step_costs import (
    compute_weight_s,
    compute_whole_time_s,
    find_graph_use,
    find_pace_setter,
    find_step,
    runs_on_host,
)
from ...errors import InductorBenchError
from ...records.base import Failure
from ...records.code import SourceLine
from ...records.optimization import Optimization
from ...records.run import GRAPH, IDLE, QUEUED, Part, Program, Run
from ...records.summary import Summary, SummaryFailure, SummaryFinding, SummaryKernel, SummaryPart
from ...store.folder import OPTIMIZED, OptimizationFolder
from .. import names
from ..document import BAD, GOOD, NOTE, WARN, Answers, Item, Sentence, ShownIn
from ..document_summary import make_ids_unique, name_commands
from ..formats import View
from ..optimization_document import list_titles
from .layers_document import MISSING, TreeNode, build_tree_by_layer
from .run_tables import name_anchor
from .run_words import (
    RankedKernel,
    describe_finding,
    describe_origin,
    describe_whole,
    format_peak_share,
    rank_kernels,
    write_failure,
    write_sentence,
)
from .step_document import describe_place, label_part, split_timed_steps

MOST_FINDINGS = 6
WORTH_SHOWING = 0.03
"""A finding that saves at least this share of the step is always shown."""

FAILED = "failed"
"""The kind of the first line of a run that measured nothing."""

REFUSED = ("cuda-graphs-refused",)
"""The kinds of findings about what Inductor refused to do, which are always shown."""


def run_summary(run: Run, view: View) -> Summary:
    """What the screen of a run says; of a brief view only the findings that a terminal shows."""
    lead, folder = write_first_line(run), str(view.folder) if view.folder is not None else ""
    found = list_findings_beside(run, lead)
    shown = choose_findings(found, run) if view.brief else found
    places, search = names.name_files(run), load_search_of(view)
    failures = tuple(_summarise_failure(one, run) for one in run.failures)
    headline_id = lead.kind if lead is not None else FAILED if failures else ""
    return Summary(
        headline=write_sentence(lead.text, run) if lead is not None else next((one.text for one in failures), ""),
        headline_id=headline_id,
        folder=folder,
        failures=failures,
        parts=tuple(make_ids_unique(map(_summarise_part, sort_parts(run)))),
        kernels=tuple(
            _summarise_kernel(entry, places) for entry in rank_kernels(run, view.sort)[: view.top] if entry.cost.calls
        ),
        findings=tuple(make_ids_unique(_summarise_finding(one, run, view, search) for one in shown)),
        next_commands=name_commands(list_commands(run, view)),
        left_out={"findings": len(found) - len(shown)} if len(shown) < len(found) else {},
    )


def _summarise_failure(failure: Failure, run: Run) -> SummaryFailure:
    return SummaryFailure(failure.stage, failure.kind, write_sentence(write_failure(failure), run), failure.hint)


class FolderFiles(Container[str]):
    """The files of a RUN by their paths in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, place: object) -> bool:
        return (self._folder / str(place)).is_file()


def list_commands(run: Run, view: View) -> tuple[tuple[str, str], ...]:
    """What to type next, each with its purpose; nothing without a folder."""
    if view.folder is None:
        return ()
    found = next_commands(run, view.folder, view.sort, FolderFiles(view.folder), search=load_search_of(view))
    return tuple((one.command, one.why) for one in found)


def find_trial_command(run: Run, finding: Finding, view: View, search: Optimization | None) -> str:
    """The command that tries what a finding says to change, or applies what is proven; empty if no command does."""
    if view.folder is None:
        return write_trial_command(run, finding, "")
    return write_trial_command(run, finding, str(view.folder), FolderFiles(view.folder), search=search)


def load_search_of(view: View) -> Optimization | None:
    """What ``optimize`` has found in a RUN; ``None`` if no search has ended there."""
    if view.folder is None:
        return None
    place = OptimizationFolder(view.folder / OPTIMIZED)
    try:
        found = place.load() if place.exists() else None
    except InductorBenchError:
        return None
    return found if found is not None and found.is_complete else None


def sort_parts(run: Run) -> list[Part]:
    """The parts of the step, the longest first; empty if no step was profiled."""
    program = find_step(run)
    return sorted(program.parts, key=lambda part: -part.time_s) if program else []


def _summarise_part(part: Part) -> SummaryPart:
    name = f"{part.kind}-{hash_text(repr((part.label, *_identify_part(part))))}"
    calls = part.calls if part.kind != IDLE else None
    return SummaryPart(name, part.kind, label_part(part), part.time_s, part.share, calls, describe_place(part))


def _identify_part(part: Part) -> tuple[object, ...]:
    """What tells a part from others of its label. Of idle time it has no line: samples hit another one each time."""
    source = part.source
    if part.kind == IDLE:
        return part.module, part.function, source and (source.file, source.function)
    return part.graph, part.module, source and (source.file, source.line)


def _summarise_kernel(entry: RankedKernel, places: Mapping[str, str]) -> SummaryKernel:
    kernel, cost = entry.kernel, entry.cost
    return SummaryKernel(
        id=kernel.kernel_id,
        number=entry.number,
        name=kernel.name,
        graph=entry.module.slug,
        category=kernel.category,
        calls=cost.calls,
        time_s=cost.time_s,
        share=entry.share,
        bound=kernel.roof.bound,
        peak_share=kernel.roof.peak_share,
        gain_limit_s=cost.gain_limit_s,
        step_saving_s=cost.saving.step_saving_s,
        file=kernel.file,
        origin=describe_origin(kernel, places),
    )


def _summarise_finding(finding: Finding, run: Run, view: View, search: Optimization | None) -> SummaryFinding:
    saved_s = find_saving_s(finding, run)
    return SummaryFinding(
        id=finding.id,
        kind=finding.kind,
        level=finding.level,
        text=describe_finding(finding, run, search),
        saving_s=saved_s if finding.level == ADVICE and saved_s else None,
        graphs=finding.modules,
        kernels=tuple(dict.fromkeys(place.name for place in finding.kernels)),
        changes=finding.changes,
        command=find_trial_command(run, finding, view, search),
    )


def choose_findings(found: Sequence[Finding], run: Run) -> list[Finding]:
    """The findings that a terminal shows: advice with the largest gains first, then cautions, and what is in order.

    At least two cautions are shown: a wrong figure misleads more than a missing advice. One comes before all advice.
    """
    before = [one for one in found if one.kind == FIRST]
    later = [one for one in found if one.kind != FIRST]
    advice, cautions, fine = ([one for one in later if one.level == level] for level in (ADVICE, CAUTION, FINE))
    room = MOST_FINDINGS - len(fine)
    first = advice[: room - min(2, len(cautions))]
    worth = [
        one
        for one in advice
        if one not in first and find_saving_s(one, run) >= WORTH_SHOWING * compute_whole_time_s(run)
    ]
    refused = [one for one in cautions[room - len(first) :] if one.kind in REFUSED]
    return [*before, *first, *worth, *cautions[: room - len(first)], *refused, *fine]


NAME_WIDTH = 64
MOST_PARTS, MOST_SPOTS, MOST_CAUTIONS = 3, 2, 2
MOST_CODE = 100
LEAST_PART = 0.05
"""A part or a class is named if it has at least this share of a layer's time, or of all time."""

MAJORITY = 0.5
"""If a layer inside another has at least this share of the outer layer's time, the inner layer is the answer."""


def describe_making(run: Run) -> Sentence:
    """Says when the run was made, its batch size, and its command."""
    batch = f"batch {run.request.batch_size}" if run.request.batch_size is not None else ""
    day = run.created.replace("T", " ")[:16]
    known = [day, batch if batch not in run.title else "", f"`{names.clean(run.command)}`" if run.command else ""]
    return Sentence(" · ".join(filter(None, known)), NOTE, on=ShownIn.PAGE)


MOST_SHAPES, MOST_GRAPHS = 6, 3
MIDDLE = "middle half"
IDLE_MEANS = "In idle time the device waits for the host; the words after the colon say what the host does."


def describe_product_type(run: Run) -> str:
    """The types in which matrix products run: ``bfloat16 97%, float32 3%``; empty if that is unknown."""
    flops = sum_product_flops(RunEvidence(run))
    whole, largest = sum(flops.values()), sorted(flops.items(), key=lambda pair: -pair[1])
    if len(largest) == 1:
        return largest[0][0]
    return ", ".join(f"{dtype} {units.percent(amount / whole)}" for dtype, amount in largest)


def _describe_inputs(run: Run) -> Iterator[str]:
    """The inputs of the graphs with which a step begins, and the types of matrix products."""
    if run.request.batch_size is not None:
        yield f"Batch {run.request.batch_size}."
    called = [one for one in run.modules if one.inputs and one.role != "backward"]
    if find_step(run) is not None:
        called = [one for one in called if find_graph_use(run, one).calls]
    for one in sorted(called, key=lambda one: -compute_weight_s(run, one))[:MOST_GRAPHS]:
        sizes = "; its sizes are dynamic, and these are the sizes for which it was compiled" if one.dynamic else ""
        yield (
            f"Inputs of {names.clean(one.label)}, weights among them: "
            f"{names.describe_inputs(one.inputs, MOST_SHAPES)}{sizes}."
        )
    if more := len(called[MOST_GRAPHS:]):
        yield f"And {plural(more, 'more graph')}, below."
    if products := describe_product_type(run):
        yield f"Matrix products in {products}" + (" of their FLOPs." if "%" in products else ".")


def describe_proven_settings(run: Run, view: View) -> Item | None:
    """What a search for faster settings has proven, with the command that applies it; ``None`` if there is nothing."""
    search = load_search_of(view)
    if search is None or search.winner is None:
        return None
    titles = join_words(list_titles(search, search.winner.slugs), len(search.winner.slugs))
    text = write_sentence(f"{titles}: {describe_result(search)}", run)
    return Item(text, GOOD, command=write_applying_command(run, str(view.folder), search))


def list_answers(
    run: Run, entries: Sequence[RankedKernel], found: Sequence[Item], proven: Item | None = None
) -> Answers:
    """The questions to which the record has an answer.

    Args:
        run: the record.
        entries: its kernels, those that take most time first.
        found: the findings in their order.
        proven: what a search for faster settings has proven.
    """
    program = find_step(run)
    rows: list[tuple[str, Item]] = []
    if program is not None:
        waits = IDLE_MEANS if program.parts and not runs_on_host(run) and _is_idle_at_start(program) else ""
        rows += [("What is slow?", Item(" ".join(filter(None, (_describe_parts(program), waits)))))]
    called = [entry for entry in entries if entry.cost.calls]
    if called:
        rows += [("Which kernel?", _describe_kernel(run, max(called, key=lambda entry: entry.cost.time_s)))]
    if program is not None:
        whose = "the time in operators" if runs_on_host(run) else "the device's time"
        places = [*_describe_layer(program, whose), *_describe_line(program, whose)]
        rows += [(question, Item(text)) for question, text in places or [("Which layer, which line?", MISSING)]]
    if proven is not None:
        rows += [("What is proven?", proven)]
    tried = [item for item in found if item.tone == WARN]
    if tried:
        first = next((item for item in tried if item.command), None)
        rows += [("What to try first?" if proven is None else "What to try next?", tried[0])]
        rows += [("What can be tried by a command?", first)] if first not in (None, tried[0]) else []
    if data := " ".join(_describe_inputs(run)):
        rows += [("On which data?", Item(data))]
    if program is not None or called:
        cautions = [item for item in found if item.tone == BAD]
        rows += [("Is it certain?", Item(" ".join(_describe_certainty(run, cautions))))]
    return Answers(tuple(rows))


def _find_longest_part(program: Program) -> list[list[Part]]:
    """Returns the parts that take longest. Parts of one name count together."""
    named: dict[str, list[Part]] = defaultdict(list)
    for part in sorted(program.parts, key=lambda part: -part.time_s):
        named[label_part(part)].append(part)
    return sorted(named.values(), key=lambda parts: -_time_s(parts))[:MOST_PARTS]


def _time_s(parts: Iterable[Part]) -> float:
    return sum(part.time_s for part in parts)


def _is_idle_at_start(program: Program) -> bool:
    """Whether one of the longest parts is a wait for the host."""
    return any(parts[0].kind == IDLE and parts[0].label != QUEUED for parts in _find_longest_part(program))


def _describe_parts(program: Program) -> str:
    words = []
    for parts in _find_longest_part(program):
        share = units.percent(sum(part.share for part in parts))
        spots = [(units.seconds(part.time_s), place) for part in parts if (place := describe_place(part))]
        said = [place if len(parts) == 1 else f"{time} {place}" for time, place in spots]
        place = f"{', ' if len(parts) == 1 else ': '}{join_words(said, MOST_SPOTS)}" if said else ""
        words.append(f"{label_part(parts[0])} {units.seconds(_time_s(parts))} ({share}{place})")
    return f"{', then '.join(words)}."


def _describe_kernel(run: Run, entry: RankedKernel) -> Item:
    cost = entry.cost
    share = f", {units.percent(entry.share)} of {describe_whole(run)}" if entry.share is not None else ""
    calls = f"{units.count(cost.calls)} call{'s' * (cost.calls != 1)}"
    peak = f"; it reaches {format_peak_share(entry)}" if entry.kernel.roof.peak_share is not None else ""
    origin = describe_origin(entry.kernel, names.name_files(run))
    text = f"{units.seconds(cost.time_s)} in {calls}{share}{peak}" + (f": {origin}" if origin else "")
    return Item(
        write_sentence(text, run),
        places=((names.shorten(entry.kernel.name, NAME_WIDTH), name_anchor(entry)),),
    )


def _describe_layer(program: Program, whose: str) -> Iterator[tuple[str, str]]:
    """Yields the innermost layer that has most of the device's time."""
    tree = build_tree_by_layer(program.layers, program.layer_classes)
    whole_s = sum(node.whole.time_s for node in tree)
    named = [node for node in tree if node.class_name or node.children]
    if not named or not whole_s:
        return
    path = [max(named, key=lambda node: node.whole.time_s)]
    while (below := _find_largest_node(path[-1])) is not None and below.whole.time_s >= MAJORITY * path[
        -1
    ].whole.time_s:
        path.append(below)
    words = _describe_node(path[-1], ".".join(node.name for node in path), whole_s)
    part, own_s = "", path[-1].own.time_s
    if below is not None and own_s >= below.whole.time_s:
        part = f"; {units.seconds(own_s)} of it in none of the layers below"
    elif below is not None:
        part = f"; its largest {_describe_largest_nodes(path[-1], whole_s)}"
    yield "Which layer?", f"{words} of {whose}{part}{_describe_classes(program, whole_s)}."


def _describe_largest_nodes(node: TreeNode, whole_s: float) -> str:
    """The layers that take most of a layer's time."""
    largest = sorted(node.children, key=lambda one: -one.whole.time_s)[:MOST_PARTS]
    shown = [one for one in largest if one.whole.time_s >= LEAST_PART * node.whole.time_s] or largest[:1]
    words = join_words([_describe_node(one, one.name, whole_s) for one in shown], MOST_PARTS)
    return f"{'part is' if len(shown) == 1 else 'parts are'} {words}"


def _describe_classes(program: Program, whole_s: float) -> str:
    """Says which classes of layers take most of the time, without the layers inside them."""
    times: dict[str, float] = defaultdict(float)
    for row in program.layers:
        if row.kind == GRAPH and (name := program.layer_classes.get(row.layer, "")):
            times[name] += row.time_s
    shares = [(name, times[name] / whole_s) for name in sorted(times, key=lambda one: -times[one])[:MOST_PARTS]]
    words = [f"{name} {units.percent(share)}" for name, share in shares if share >= LEAST_PART]
    return (
        names.clean(f". By class, each layer without those inside it: {join_words(words, MOST_PARTS)}") if words else ""
    )


def _find_largest_node(node: TreeNode) -> TreeNode | None:
    return max(node.children, key=lambda one: one.whole.time_s, default=None)


def _describe_node(node: TreeNode, name: str, whole_s: float) -> str:
    times = f" ({node.count}x)" if node.count > 1 else ""
    kind = f" [{node.class_name}]" if node.class_name else ""
    time_s = node.whole.time_s
    return names.clean(f"{name}{times}{kind} {units.seconds(time_s)} ({units.percent(time_s / whole_s)})")


def _describe_line(program: Program, whose: str) -> Iterator[tuple[str, str]]:
    """The line of the program that takes most of the device's time."""
    times: dict[SourceLine, float] = defaultdict(float)
    for row in program.lines:
        line = row.called_at or row.source  # as in the tree by line
        if line is not None:
            times[line] += row.time_s
    whole_s = sum(row.time_s for row in program.lines)
    if not times or not whole_s:
        return
    most = max(times, key=lambda one: times[one])
    code = f": `{names.cut_end(names.clean(most.code).replace('`', ''), MOST_CODE)}`" if most.code else ""
    share = units.percent(times[most] / whole_s)
    yield "Which line?", f"{names.clean(name_line(most))} {units.seconds(times[most])} ({share} of {whose}){code}"


def _describe_steps_left_out(program: Program) -> Iterator[str]:
    """Yields the timed steps that the figures leave out, before and after those that count."""
    rank = find_pace_setter(program.ranks) if program.ranks else None
    if rank is None or not rank.step_numbers:
        return
    before, _, after = split_timed_steps(rank)
    for steps in filter(None, (before, after)):
        times_s = [time_s for _, time_s in steps]
        spread = f"{units.seconds(min(times_s))} to {units.seconds(max(times_s))}"
        first, last = steps[0][0], steps[-1][0]
        is_row = last - first + 1 == len(steps)
        which = f"Steps {first} to {last}" if is_row else f"{len(steps)} of the steps {first} to {last}"
        if len(steps) > 1:
            yield f"{which} took {spread} each; the figures leave them out."
        else:
            yield f"Step {steps[0][0]} took {units.seconds(times_s[0])}; the figures leave it out."


def _describe_certainty(run: Run, cautions: Sequence[Item]) -> Iterable[str]:
    """How the figures were made, how they scatter, and what makes them less certain."""
    program = run.program
    if program is not None:
        times = program.step_times_s[slice(*program.level)] or program.step_times_s
        yield write_sentence(describe_step(program), run)
        if len(times) > 1 and not any(MIDDLE in item.text for item in cautions):
            low, _, high = statistics.quantiles(times, n=4)
            yield f"The {MIDDLE} of these steps takes {units.seconds(low)} to {units.seconds(high)}."
        yield from _describe_steps_left_out(program)
    if not cautions:
        yield "Nothing was found that makes the figures doubtful."
        return
    shown = " ".join(item.text for item in cautions[:MOST_CAUTIONS])
    more = len(cautions) - MOST_CAUTIONS
    doubts = f"{plural(len(cautions), 'caution')}: {shown}"
    yield doubts + (f" And {more} more below." if more > 0 else "")
