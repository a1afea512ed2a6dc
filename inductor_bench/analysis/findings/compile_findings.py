"""Findings about what is compiled, how it was compiled, and what runs without compilation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ... import units
from ...records.code import CompiledFunction, SourceLine
from ...records.run import DISPATCHING, EAGER, GRAPH, GUARDS, LAUNCHING, OPTIMIZER, OTHERS, Part, ProgramChange, Run
from ...source.user_program import FUSED, FUSED_ON_CPU
from ..step_costs import find_graph_use, has_idle_kinds, host_sets_pace, list_parts, runs_on_host, sum_idle_by_label
from .finding import (
    ADVICE,
    CAUTION,
    LEAST_SHARE,
    NOTE,
    Finding,
    RemovedWork,
    Rule,
    RunEvidence,
    join_labels,
    join_words,
    plural,
    shorten_paths,
)
from .program_findings import MANY_CALLS, WRAPPERS, find_small_graphs, find_unused_cuda_graphs, list_idle_parts
from .step_phrases import describe_part_place, format_sampled_share, format_share, has_few_samples

# Says failed guards in plain words.
#
# A record holds them as ``file:line function: guard  # comment``. Torch's comment tells where it first used the value.


SIZE, OBJECT, OTHER = "size", "object", "other"
"""Kinds of guards: on a size of an input, on the object to which the code belongs, on anything else."""

MOST_GUARD = 90  # largest number of characters of a guard for which there are no words
_PLACE = re.compile(r"(?P<place>\S+:\d+(?: \S+)?): (?P<reason>.*)", re.DOTALL)
_ENTRY = re.compile(r"^\d+/\d+: *")
_OF_TORCH = re.compile(r"/(?:site|dist)-packages/torch/")
_COMMENT = re.compile(r"\s+#\s.*$", re.DOTALL)
_WEIGHTS = re.compile(r"_modules\[|\._parameters|\._buffers|_modules\.")
_NAME = r"(?P<name>.+?)"
_MISMATCH = re.compile(
    rf"tensor '{_NAME}' (?P<what>size|stride) mismatch at index (?P<index>\d+)\. "
    r"expected (?P<expected>-?\d+), actual (?P<actual>-?\d+)"
)
_RANK = re.compile(rf"tensor '{_NAME}' rank mismatch\. expected (?P<expected>\d+), actual (?P<actual>\d+)")
_DTYPE = re.compile(rf"tensor '{_NAME}' dtype mismatch\. expected (?P<expected>\w+), actual (?P<actual>\w+)")
_GRADIENT = re.compile(rf"tensor '{_NAME}' requires_grad mismatch\. expected requires_grad=(?P<expected>\d)")
_RANGE = re.compile(
    r"(?P<low>\d+) <= (?P<name>[\w.\[\]']+)\.size\(\)\[(?P<index>\d+)\](?: <= (?P<high>\d+))?"
    r"|(?P<name2>[\w.\[\]']+)\.size\(\)\[(?P<index2>\d+)\] == (?P<exact>\d+)"
)
_CHANGED = re.compile(r"\b(?P<name>\S+)\.size\((?P<index>\d+)\) was (?P<expected>\d+), is (?P<actual>\d+)")
_EQUAL = re.compile(r"(?P<name>[\w.\[\]'\"()]+) == (?P<expected>.+)")
_MODE = re.compile(r"GLOBAL_STATE changed: (?P<state>\w+)")
_IDENTITY = re.compile(r"___check_(?:obj_id|type_id)\((?P<name>[^,]+),.*")
_LENGTH = re.compile(r"len\((?P<name>.+?)\) == (?P<expected>\d+)")
_STATES = {
    "grad_mode": "gradients are recorded in one call and not in the other",
    "autocast_state": "autocast differs",
    "default_dtype": "torch's default type differs",
    "num_threads": "the number of threads differs",
    "torch_function": "a torch function mode differs",
    "deterministic_algorithms": "deterministic algorithms are on in one call only",
    "allow_tf32": "the setting of TF32 differs",
}


class Guard(NamedTuple):
    """A failed guard: the function, in words what failed, and its kind."""

    place: str
    words: str
    kind: str = OTHER


def read_guard(text: str) -> Guard:
    """Reads a recompilation's reason from the record, and says it in plain words: ``x has 7 rows instead of …``."""
    found = _PLACE.match(text)
    place, said = (found["place"], found["reason"]) if found else ("", text)
    if found is None and ": " in text and " " not in text.partition(": ")[0]:
        place, _, said = text.partition(": ")
    said = _COMMENT.sub("", _ENTRY.sub("", " ".join(said.split())))
    kind = SIZE if _is_of_size(said) else OTHER
    if "is another object than" in said or _WEIGHTS.search(said):
        kind = OBJECT
    return Guard(_shorten_place(place), _describe_guard(said), kind)


def _shorten_place(place: str) -> str:
    """Returns the short place of a function; empty for functions of torch, such as the wrapper around an object."""
    return "" if _OF_TORCH.search(place) else shorten_paths(place)


def _is_of_size(said: str) -> bool:
    return "stride mismatch" not in said and any(one.search(said) for one in (_MISMATCH, _RANGE, _CHANGED))


def _describe_guard(said: str) -> str:
    if match := _MISMATCH.search(said):
        if match["what"] == "stride":
            return f"the strides of {_name_source(match['name'])} differ from the compiled strides"
        return _describe_size(match["name"], match["index"], match["actual"], match["expected"])
    if match := _CHANGED.search(said):
        return _describe_size(match["name"], match["index"], match["actual"], match["expected"])
    if match := _RANK.search(said):
        return (
            f"{_name_source(match['name'])} has {match['actual']} dimensions instead of the "
            f"compiled {match['expected']}"
        )
    if match := _DTYPE.search(said):
        return f"{_name_source(match['name'])} is {match['actual']} instead of the compiled {match['expected']}"
    if match := _GRADIENT.search(said):
        compiled = match["expected"] != "0"
        return (
            f"{_name_source(match['name'])} has requires_grad={not compiled}, but was compiled with "
            f"requires_grad={compiled}"
        )
    if match := _RANGE.search(said):
        name, index = match["name"] or match["name2"], match["index"] or match["index2"]
        if match["exact"]:
            return f"{_name_dimension(name, index)} was compiled as {match['exact']}, and is another number"
        high = f" to {match['high']}" if match["high"] else " or more"
        return f"{_name_dimension(name, index)} was compiled for {match['low']}{high}, and is another number"
    if match := _MODE.search(said):
        return _STATES.get(match["state"], f"{match['state']} differs")
    if match := _LENGTH.fullmatch(said):
        return f"{_name_source(match['name'])} has another length than {match['expected']}"
    if match := _IDENTITY.fullmatch(said):
        return f"{_name_source(match['name'])} is another object"
    if match := _EQUAL.fullmatch(said):
        return f"{_name_source(match['name'])} is no longer {match['expected']}"
    said = _name_source(said)
    return said if len(said) <= MOST_GUARD else said[:MOST_GUARD] + "…"


def _describe_size(name: str, index: str, actual: str, expected: str) -> str:
    if index == "0":
        rows = "row" if actual == "1" else "rows"
        return f"{_name_source(name)} has {actual} {rows} instead of the compiled {expected}"
    return f"{_name_dimension(name, index)} is {actual} instead of the compiled {expected}"


def _name_dimension(name: str, index: str) -> str:
    return f"{_name_source(name)}.size({index})"


def _name_source(name: str) -> str:
    """Names a source of Dynamo as the program writes it: ``L['self']._modules['fc']`` is ``self.fc``."""
    name = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", name)
    return re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", name)


# Rules about recompilations, their limit, and guards.


STORM = 5  # number of recompilations from which they are many


def recompiles_often(run: Run) -> bool:
    """Whether a program compiles so often that its graphs say little about how it runs."""
    return len(run.capture.recompiles) >= STORM


def find_recompilations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports recompilations and their reasons.

    The first compilation of the same code for another object does not count. ``dynamic=True`` is advised only for
    sizes. It is not advised if the program sets ``dynamic``, or compiled the function more than once: then the program
    chose the sizes of each compiled function on purpose. It is not advised either if torch itself made a graph for any
    size after each of these sizes: it would save no more than these compilations.
    """
    guards = [read_guard(text) for text in evidence.run.capture.recompiles]
    others = [guard for guard in guards if guard.kind == OBJECT]
    again = [guard for guard in guards if guard.kind != OBJECT]
    if not again:
        if others:
            text = f"the same code was compiled for {plural(len(others), 'more object')}: {_list_reasons(others)}"
            yield Finding("recompiles", f"{text}. These do not count as recompilations", level=NOTE)
        return
    text = f"{plural(len(again), 'recompilation')}: {_list_reasons(again)}"
    if others:
        text += f", besides {plural(len(others), 'first compilation')} of other objects with the same code"
    changes: tuple[ProgramChange, ...] = ()
    serving = [module for module in evidence.run.modules if module.dynamic]
    sizes = [guard for guard in again if guard.kind == SIZE]
    if sizes and serving and _count_repeats(sizes) <= len(serving):
        text += f"; since then {join_labels(serving)} {'takes' if len(serving) == 1 else 'take'} other sizes, too"
    elif any(_may_be_dynamic(evidence, guard.place) for guard in sizes):
        text += "; dynamic=True or torch._dynamo.mark_dynamic compiles once for all sizes"
        changes = (ProgramChange("compile", "dynamic", "True"),)
    yield Finding("recompiles", text, level=CAUTION, changes=changes)


def _list_reasons(guards: list[Guard]) -> str:
    counts = Counter(f"{guard.place}: {guard.words}".removeprefix(": ") for guard in guards)
    return join_words([f"{words} ({count} times)" if count > 1 else words for words, count in counts.items()], 2)


def _count_repeats(guards: list[Guard]) -> int:
    """How often the same dimension of a function's input had another size at most; once if a graph takes any size."""
    return max(Counter((guard.place, re.sub(r"\d+ rows?|\b\d+\b(?!\))", "", guard.words)) for guard in guards).values())


def _may_be_dynamic(evidence: RunEvidence, place: str) -> bool:
    """Whether no evidence says that a function's sizes are already symbols, or fixed on purpose."""
    known = {_shorten_place(one.place): one for one in evidence.run.capture.functions}
    function = known.get(place)
    if function is None:
        return evidence.run.request.dynamic is None
    return function.dynamic is None and function.wrapped <= 1


def find_recompile_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports functions that Dynamo compiled so often that it gave up, so that they run uncompiled.

    The evidence is Dynamo's metrics of the compilation that it refused.
    """
    functions = [one for one in evidence.run.capture.functions if one.reached_limit]
    if not functions:
        return
    names = join_words([f"{shorten_paths(one.place)} (recompiled {one.recompilations} times)" for one in functions], 2)
    guards = [read_guard(text) for text in evidence.run.capture.recompiles]
    places = {_shorten_place(one.place) for one in functions}
    last = next((guard for guard in reversed(guards) if guard.place in places), None)
    run = "runs" if len(functions) == 1 else "run"
    text = (
        f"Dynamo no longer compiles {names}: {'it' if len(functions) == 1 else 'they'} {run} uncompiled in each call "
        f"that fits none of {'its' if len(functions) == 1 else 'their'} graphs"
    )
    if last is not None:
        text += f"; the last reason: {last.words}"
    text += _name_remedy(functions, last)
    yield Finding("recompile-limit", text)


def _name_remedy(functions: list[CompiledFunction], last: Guard | None) -> str:
    if last is not None and last.kind == SIZE and any(one.dynamic is False for one in functions):
        return ". The program compiles with dynamic=False: without it, one graph takes all sizes"
    if last is not None and last.kind == SIZE:
        return ". torch._dynamo.mark_dynamic(tensor, dimension) makes one graph for all sizes"
    return ". Keep that value the same, or pass it as a tensor; torch._dynamo.config.recompile_limit raises the limit"


GUARDS_SHARE = 0.05  # share of the step in guards, while the device waits, from which they are reported


def find_slow_guards(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports guards that the device waits for.

    It holds on a GPU that is idle while the host checks guards. The evidence is samples, a profile that hardly slowed
    the steps, or that guards are most of the time for which the device waits. If launches take more time and CUDA
    graphs would avoid them, CUDA graphs come first. ``small-graphs`` reports graphs that are entered often for little
    work.
    """
    run = evidence.run
    times = sum_idle_by_label(run)
    time_s = times.get(GUARDS, 0.0)
    if runs_on_host(run) or time_s < GUARDS_SHARE * evidence.whole.time_s or any(find_small_graphs(evidence)):
        return
    parts = list_idle_parts(run, GUARDS)
    if has_few_samples(run, parts) or (not has_idle_kinds(run) and 2 * time_s < sum(times.values())):
        return
    spared = any(one.level == ADVICE for one in find_unused_cuda_graphs(evidence)) or _list_refusals(run)
    if times.get(LAUNCHING, 0.0) > time_s and spared:
        return
    most = max(run.capture.functions, key=lambda one: one.guards, default=None)
    many = f"; {shorten_paths(most.place)} has {most.guards:,} guards" if most is not None and most.guards else ""
    backward = {module.slug for module in run.modules if module.role == "backward"}
    checked = {part.graph: part.label for part in list_parts(run, GRAPH) if part.graph and part.graph not in backward}
    calls = sum(part.calls for part in list_parts(run, GRAPH) if part.graph not in backward)
    each = f" of {plural(round(calls), 'call')} of {join_words(list(checked.values()), 2)}" if calls >= 1 else ""
    text = (
        f"the device is idle for {format_sampled_share(run, parts)} of a step while the host checks the guards{each}"
        f"{many}: options={{'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe}} of torch.compile "
        "leaves out the guards on modules, which is safe if the program does not change its modules"
    )
    assumed = RemovedWork(idle=parts)
    yield Finding("slow-guards", text, tuple(checked), gain_s=time_s, assumed=assumed)


# The rule about CUDA graphs that Inductor refuses.


MOST_NAMED = 3
MOST_CODE = 60  # largest number of characters of a line of the program
_REFUSALS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"cpu device \((?P<what>[^)]+)\)"),
        "{what} lies on the CPU{where}; move it to the device before the call",
    ),
    (
        re.compile(r"mutated inputs(?: \((?P<what>\d+) instances?\))?"),
        "the graph writes into its inputs{where}; return new values, or make them buffers or parameters of the module, "
        "which a graph may write",
    ),
    (
        re.compile(r"input storage mutation"),
        "the graph replaces the memory of an input{where} (set_, resize_); make that change outside of the graph",
    ),
    (
        re.compile(r"multiple devices: (?P<what>[^.\n]+)"),
        "the graph has tensors on several devices ({what}); keep all tensors on one device",
    ),
    (
        re.compile(r"dynamic shapes|dynamic shape operators|unbacked|symint", re.IGNORECASE),
        "sizes are symbolic{where}; fix them (dynamic=False, padded batches), or use symbolic sizes only on the host",
    ),
    (
        re.compile(r"incompatible op[s ]*\(?(?P<what>[\w.:]+)?"),
        "CUDA graphs cannot hold {what}{where}; leave it outside of the graph",
    ),
    (
        re.compile(r"deterministic index put|Deterministic index put"),
        "deterministic algorithms are on, and CUDA graphs cannot hold their index_put_",
    ),
    (
        re.compile(r"complex memory overlap"),
        "an input overlaps itself in memory{where} (expand, as_strided); make it contiguous",
    ),
    (
        re.compile(r"control flow|conditional|cond\b|while_loop"),
        "a tensor's values decide which operators of the graph run{where}",
    ),
)
_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in .+\n *(?P<code>.*)')
_GENERATED = re.compile(r"(?:arg|primals|tangents|getitem|buf)_?\d+(?:_\d+)?")


def describe_refusal(reason: str) -> str:
    """Says in plain words why Inductor uses no CUDA graphs, and what to change; an unknown reason stays as it is."""
    lines = [match for match in _LINE.finditer(reason) if not _OF_TORCH.search(match["file"])]
    where = _describe_place(lines[-1]) if lines else ""
    for pattern, words in _REFUSALS:
        if match := pattern.search(reason):
            what = match.groupdict().get("what") or ""
            what = "an input or a constant" if _GENERATED.fullmatch(what) else what or "an operator of it"
            return words.format(what=what, where=where)
    first = reason.strip().partition("\n")[0].removeprefix("skipping cudagraphs due to ")
    return f"{first}{where}"


def _describe_place(line: re.Match[str]) -> str:
    """Returns the program's line that the reason names: `` (app/unet.py:12: t = x + t)``."""
    code = line["code"].strip()
    shown = code if len(code) <= MOST_CODE else code[:MOST_CODE] + "…"
    return f" ({shorten_paths(line['file'] + ':' + line['line'])}{': ' + shown if shown else ''})"


def find_refused_cuda_graphs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs for which Inductor uses no CUDA graphs, with its reason and what to change.

    It holds if CUDA graphs were asked for and Inductor gave a reason, on a GPU. It is advice if the step is host-bound,
    because then a replay makes the step shorter.
    """
    run = evidence.run
    if runs_on_host(run):
        return
    paced, launching_s = host_sets_pace(run), sum_idle_by_label(run).get(LAUNCHING, 0.0)
    for reason, parts in _list_refusals(run).items():
        who = join_words([part.label for part in parts], MOST_NAMED)
        text = f"Inductor uses no CUDA graphs for {who} although they were asked for: {describe_refusal(reason)}"
        found = tuple(dict.fromkeys(part.graph for part in parts if part.graph))
        if not paced:
            yield Finding("cuda-graphs-refused", text, found, level=CAUTION, about=reason)
            continue
        assumed = RemovedWork(graphs=found)
        yield Finding("cuda-graphs-refused", text, found, gain_s=launching_s, assumed=assumed, about=reason)


def _list_refusals(run: Run) -> dict[str, list[Part]]:
    """The graphs for which Inductor refuses CUDA graphs, by its reason."""
    groups: dict[str, list[Part]] = {}
    for part in list_parts(run, GRAPH):
        if part.refusal:
            groups.setdefault(part.refusal, []).append(part)
    return groups


WORTH_COMPILING = 0.05
"""Share of the step from which an eager region is worth compiling."""

MOST_OPERATORS = 3
_STAY_EAGER = re.compile(r"aten::(rand|normal|bernoulli|uniform_|lstm|gru|rnn_|quantized_)")
"""Operators that make random data in place of a program's input, and recurrent networks, which Dynamo does not compile
unless ``torch._dynamo.config.allow_rnn`` is set."""

_LOSS = re.compile(r"loss|cross_entropy|log_softmax|Loss|LogSoftmax")
_CALL_OF_LOSS = re.compile(rf"({_LOSS.pattern})\w*\(")


def find_eager_optimizer(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports an optimizer that runs eagerly and is not fused. A fused optimizer moves as few bytes as a compiled one.

    ``fused=True`` is advised only for torch's own classes: another class of the same name may not accept it. The record
    says whether a class is torch's; older records do not.
    """
    run = evidence.run
    parts = [part for part in list_parts(run, OPTIMIZER) if not part.is_fused]
    time_s = sum(part.time_s for part in parts)
    if time_s < WORTH_COMPILING * evidence.whole.time_s:
        return
    names = join_words(list(dict.fromkeys(part.label for part in parts)), 2)
    launches = sum(part.launches for part in parts)
    many = f" in {units.count(launches)} launches" if launches else ""
    labels = {part.label for part in parts}
    own = all(part.defined_in.startswith("torch.optim.") for part in parts)
    runs, its = ("runs eagerly and takes", "its") if len(labels) == 1 else ("run eagerly and take", "their")
    have_fused = FUSED_ON_CPU if runs_on_host(run) else FUSED
    fused = ", or pass fused=True" if own and labels <= have_fused else ""
    text = (
        f"{names} {runs} {format_share(run, time_s)} of a step{many}: compile {its} step "
        f"(torch.compile(optimizer.step)){fused}"
    )
    changes = tuple(ProgramChange("argument", f"{name}.fused", "True") for name in sorted(labels) if fused)
    yield Finding("eager-optimizer", text, gain_s=time_s, assumed=RemovedWork(joined=tuple(parts)), changes=changes)


def find_eager_operators(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports eager operators that together take a large part of the step, with their lines.

    If there are many operators, the time in which the device waits for their dispatch counts as well. Operators that
    are differentiated twice cannot be compiled.
    """
    run = evidence.run
    every = [part for part in list_parts(run, EAGER) if part.label not in CHECKS]
    twice, lines = find_differentiated_twice(run)
    parts = [part for part in every if not WRAPPERS.search(part.label) and not _STAY_EAGER.match(part.label)]
    parts = [part for part in parts if part.label not in twice and part.source not in lines]
    wrapped = [part for part in every if WRAPPERS.search(part.label)]
    time_s, wrapped_s = (sum(part.time_s for part in some) for some in (parts, wrapped))
    whole_s = time_s + wrapped_s
    many = sum(part.calls for part in parts) >= MANY_CALLS and not runs_on_host(run)
    dispatched = [part for part in list_idle_parts(run, DISPATCHING) if part.source not in lines] if many else []
    dispatched_s = sum(part.time_s for part in dispatched)
    if time_s + dispatched_s < WORTH_COMPILING * evidence.whole.time_s:
        yield from _describe_differentiated_twice(evidence, every, twice, lines)
        return
    named = [part for part in parts if part.label != OTHERS] or parts
    words = join_words([describe_operator(part, evidence) for part in named[:MOST_OPERATORS]])
    loss = sum(part.time_s for part in parts if _is_of_loss(part))
    what = "loss together with the model" if 2 * loss >= time_s else "function that calls them"
    text = f"eager operators take {format_share(run, whole_s)} of a step, most of all {words}"
    if dispatched_s >= LEAST_SHARE * evidence.whole.time_s:
        text += f", and the device waits {format_share(run, dispatched_s)} for the host to dispatch them"
    text += f": compile the {what}"
    sources = [part.source for part in named[:MOST_OPERATORS] if part.source]
    if sources and all(source.is_installed for source in sources):
        text += ", which is in an installed package: inductor-bench optimize tries this without changing the package"
    if wrapped_s >= LEAST_SHARE * evidence.whole.time_s:
        largest = wrapped[0].label
        text += (
            f"; {units.seconds(wrapped_s)} of this time gathers gradients or parameters ({largest}), and stays eager"
        )
    changes = tuple(ProgramChange("line", "compile", "", part.source) for part in named[:MOST_OPERATORS] if part.source)
    assumed = RemovedWork(parts=tuple(parts), idle=tuple(dispatched))
    yield Finding("eager-operators", text, gain_s=time_s + dispatched_s, assumed=assumed, changes=changes)


_TWICE = re.compile(r"Backward(Data)?Backward\d+$")
"""The name of an autograd node that differentiates a backward node.

Activations, losses and convolutions have such nodes; the backward of a product, a sum or a sine consists of operators
without such a node.
"""


def find_differentiated_twice(run: Run) -> tuple[set[str], set[SourceLine]]:
    """The labels and the lines of eager operators whose backward is itself differentiated (``create_graph=True``).

    AOTAutograd compiles no backward of a backward. (torch 2.11, 2.13)
    """
    found = [part for part in list_parts(run, EAGER) if _TWICE.search(part.label)]
    return {part.label for part in found}, {part.source for part in found if part.source is not None}


def _describe_differentiated_twice(
    evidence: RunEvidence, parts: Sequence[Part], labels: set[str], lines: set[SourceLine]
) -> Iterator[Finding]:
    of_them = [part for part in parts if part.label in labels or part.source in lines]
    time_s = sum(part.time_s for part in of_them)
    if time_s >= WORTH_COMPILING * evidence.whole.time_s:
        words = join_words([describe_operator(part, evidence) for part in of_them if part.label in labels], 2)
        text = (
            f"eager operators whose gradient is differentiated again take {format_share(evidence.run, time_s)} of a "
            f"step ({words}): torch.compile compiles no backward of a backward"
        )
        yield Finding("eager-operators", text, level=NOTE)


def _is_of_loss(part: Part) -> bool:
    return bool(_LOSS.search(part.label) or (part.source and _CALL_OF_LOSS.search(part.source.code)))


def describe_operator(part: Part, evidence: RunEvidence) -> str:
    """An eager operator with its share of the step and its line: ``aten.embedding 2.0% (app/train.py:23)``."""
    place = describe_part_place(part)
    return f"{part.label.replace('::', '.', 1)} {units.percent(evidence.whole.part(part.time_s))}" + (
        f" ({place})" if place else ""
    )


CHECKS = frozenset({"aten::_is_any_true", "aten::isnan"})
"""The operators with which autograd's anomaly detection looks for NaN in the results of each backward function."""


def find_anomaly_mode(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports autograd's anomaly detection.

    It holds if the step calls the operators with which anomaly detection looks for NaN. One of them has no other
    caller.
    """
    run = evidence.run
    parts = [part for part in list_parts(run, EAGER) if part.label in CHECKS]
    checks = sum(part.calls for part in parts if part.label == "aten::_is_any_true")
    if not checks:
        return
    time_s = sum(part.time_s for part in parts)
    text = (
        f"autograd looks for NaN {units.count(checks)} times a step, and reads each result, as its anomaly detection "
        "does: leave out torch.autograd.set_detect_anomaly(True), also in a trainer's options"
    )
    changes = (ProgramChange("setting", "torch.autograd.set_detect_anomaly", "False"),)
    yield Finding("anomaly-mode", text, gain_s=time_s, assumed=RemovedWork(parts=tuple(parts)), changes=changes)


def find_unused_gradients(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that keep values for a backward in a program that never runs one, such as a service.

    It holds if a graph of the role ``forward`` runs in the step, and neither a compiled backward, nor autograd's eager
    nodes, nor an optimizer ran in the program.
    """
    run = evidence.run
    forwards = [one for one in run.modules if one.role == "forward" and find_graph_use(run, one).calls]
    backwards = [one for one in run.modules if one.role == "backward" and one.program_calls != 0]
    has_nodes = any("Backward" in part.label or part.label == "AccumulateGrad" for part in list_parts(run, EAGER))
    if not forwards or backwards or has_nodes or list_parts(run, OPTIMIZER):
        return
    verb = "keeps" if len(forwards) == 1 else "keep"
    text = (
        f"{join_labels(forwards)} {verb} values for a backward that never runs, and so do eager operators: call the "
        "model in torch.inference_mode() (or torch.no_grad()). What that saves is known once it is tried"
    )
    yield Finding("unused-gradients", text, modules=tuple(one.label for one in forwards))


STEP_RULES = (
    Rule(("unused-gradients",), find_unused_gradients),
    Rule(("slow-guards",), find_slow_guards, names_host_work=True),
    Rule(("cuda-graphs-refused",), find_refused_cuda_graphs, names_host_work=True),
    Rule(("eager-optimizer",), find_eager_optimizer, names_host_work=True),
    Rule(("eager-operators",), find_eager_operators, names_host_work=True),
    Rule(("anomaly-mode",), find_anomaly_mode),
)


RULES = (
    Rule(("recompiles",), find_recompilations),
    Rule(("recompile-limit",), find_recompile_limit),
)
