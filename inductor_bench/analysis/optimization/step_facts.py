"""The facts of a RUN about a program's step that the menu needs: upper bounds, as shares of the step."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ...records.base import Category
from ...records.code import RECOMPUTED, SourceLine
from ...records.run import (
    ALLOCATING,
    COPYING,
    DATA_LOADING,
    DISPATCHING,
    EAGER,
    GUARDS,
    LAUNCHING,
    OPTIMIZER,
    OPTIMIZING,
    PYTHON,
    QUEUED,
    Prediction,
    Run,
)
from ..findings.compile_findings import find_differentiated_twice
from ..findings.finding import CostedKernel, RunEvidence, sum_times
from ..findings.product_findings import find_unfused_attention
from ..findings.program_findings import WRAPPERS
from ..step_costs import (
    find_graph_use,
    find_step,
    has_idle_kinds,
    is_uncompiled,
    list_parts,
    replay_limit_s,
    runs_on_host,
    sum_idle_by_label,
)

GENERATED = (
    Category.POINTWISE,
    Category.REDUCTION,
    Category.PERSISTENT_REDUCTION,
    Category.COOPERATIVE_REDUCTION,
    Category.SPLIT_SCAN,
    Category.FOREACH,
    Category.COMBO,
    Category.CPP,
)
REDUCTIONS = GENERATED[1:5]
PRODUCTS = (Category.EXTERN_GEMM, Category.TEMPLATE)

SHORT_S = 20e-6
"""A kernel of at most these seconds is worth launching together with others."""


LOSSES = (
    ("binary_cross_entropy_with_logits", r"binary_cross_entropy_with_logits|BinaryCrossEntropyWithLogits"),
    ("cross_entropy", r"(?<!binary_)cross_entropy(?!_with)|log_softmax|nll_loss|LogSoftmax|NllLoss|CrossEntropyLoss"),
    ("mse_loss", r"mse_loss|MseLoss|MSELoss"),
    ("smooth_l1_loss", r"smooth_l1_loss|SmoothL1Loss"),
    ("l1_loss", r"(?<!smooth_)l1_loss|(?<!Smooth)L1Loss"),
    ("huber_loss", r"huber_loss|HuberLoss"),
    ("kl_div", r"kl_div|KlDiv|KLDivLoss"),
)
"""The losses of ``torch.nn.functional``, with the pattern of each in an operator's label or in the line that calls
it."""


ENTRY = "main"
"""The name of the function with which a program begins."""

_OF_STEPS = re.compile(r"\.(backward|step)\(")
"""The calls by which a line belongs to a training step."""


UNROLLED = 30
"""If a line calls an operator at least this often in a step, its function has a loop of that many rounds, roughly."""


@dataclass(frozen=True)
class EagerFunction:
    """A function of the program that calls eager operators."""

    source: SourceLine  # the line with most of them
    share: float  # of the step: their time, and that in which the device waits for their dispatch
    # whether it compiles for long: it repeats an operator in a loop, which Dynamo unrolls, or it calls a compiled
    # graph, which is compiled with it
    is_costly: bool = False


@dataclass(frozen=True)
class StepFacts:
    """The step of a RUN. A share is ``None`` if the RUN has no profile of the step, so that nothing bounds it."""

    run: Run

    @cached_property
    def is_profiled(self) -> bool:
        return find_step(self.run) is not None

    @cached_property
    def step_s(self) -> float:
        """The step in seconds; 0 if it is unknown."""
        return self.run.program.step_time_s if self.run.program is not None else 0.0

    @cached_property
    def on_host(self) -> bool:
        """Whether the program runs on a CPU."""
        return runs_on_host(self.run)

    @cached_property
    def compiles(self) -> bool:
        """Whether the program compiles anything."""
        return not is_uncompiled(self.run)

    @cached_property
    def _evidence(self) -> RunEvidence:
        return RunEvidence(self.run)

    @property
    def _rows(self) -> list[CostedKernel]:
        return self._evidence.rows

    def share(self, seconds: float) -> float | None:
        """A time as a share of the step, at most 1."""
        return min(1.0, seconds / self.step_s) if self.is_profiled and self.step_s else None

    def idle(self, *labels: str) -> float | None:
        """Returns the share of idle time with these labels."""
        known = sum_idle_by_label(self.run)
        return self.share(sum(known.get(label, 0.0) for label in labels))

    @cached_property
    def launching(self) -> float | None:
        """Returns what fewer launches could save: the device's waits for launches, guards and Python."""
        return self.idle(LAUNCHING, GUARDS, PYTHON, DISPATCHING, QUEUED)

    @cached_property
    def replaying(self) -> float | None:
        """Returns the simulated saving of replays of all graphs; without a simulation, the host's time for launches."""
        predicted, most = self.predicted("cuda-graphs-unused"), self.launching
        if predicted is None or not has_idle_kinds(self.run):
            return most if predicted is None else predicted
        limit = self.share(replay_limit_s(self.run, [module.slug for module in self.run.modules]))
        return predicted if limit is None else min(predicted, limit)

    def kernels(self, categories: Collection[Category], shortest: bool = False) -> float | None:
        """Returns how far kernels of these categories are from their limits; all their time if no limit is known.

        Args:
            categories: the categories.
            shortest: whether only kernels count whose call is shorter than :data:`SHORT_S`, with all of their time.
        """
        total_s = 0.0
        for row in self._rows:
            if row.kernel.category not in categories:
                continue
            if shortest:
                each_s = row.cost.time_s / row.cost.calls if row.cost.calls else 0.0
                total_s += row.cost.time_s if each_s < SHORT_S else 0.0
            else:
                limit_s = row.cost.gain_limit_s
                total_s += row.cost.time_s if limit_s is None else min(limit_s, row.cost.time_s)
        return self.share(total_s)

    @cached_property
    def attention(self) -> float | None:
        """How far kernels of attention are from their limits, and all the time of calls that no such kernel took."""
        unfused = self.share(sum_times(find_unfused_attention(self._evidence)))
        fused = self.kernels((Category.EXTERN_ATTENTION,))
        return None if unfused is None or fused is None else min(1.0, unfused + fused)

    def time(self, *categories: Category) -> float | None:
        """The time of all kernels of these categories."""
        return self.share(sum(row.cost.time_s for row in self._rows if row.kernel.category in categories))

    @cached_property
    def optimizers(self) -> tuple[str, ...]:
        """The names of the eager optimizers."""
        return tuple(dict.fromkeys(part.label for part in list_parts(self.run, OPTIMIZER)))

    @cached_property
    def optimizer_classes(self) -> tuple[str, ...]:
        """The classes of the eager optimizers: those of torch as ``torch.optim.Adam``, others by their bare name."""
        parts = [(part.label, part.defined_in) for part in list_parts(self.run, OPTIMIZER)]
        return tuple(
            dict.fromkeys(f"torch.optim.{name}" if place.startswith("torch.optim.") else name for name, place in parts)
        )

    @cached_property
    def optimizer(self) -> float | None:
        """The time of optimizers that are not fused, with the idle time in which the host ran them."""
        parts = [part for part in list_parts(self.run, OPTIMIZER) if not part.is_fused]
        idle_s = sum_idle_by_label(self.run).get(OPTIMIZING, 0.0) if parts else 0.0
        return self.share(sum(part.time_s for part in parts) + idle_s)

    @cached_property
    def loading(self) -> float | None:
        """The idle time in which the host loads data, or copies it from pageable memory."""
        return self.idle(DATA_LOADING, COPYING)

    @cached_property
    def allocating(self) -> float | None:
        return self.idle(ALLOCATING)

    @cached_property
    def recomputed(self) -> float | None:
        """The time in which the backward computes again what the forward has not kept."""
        rows = self.run.program.layers if self.run.program is not None else ()
        return self.share(sum(row.time_s for row in rows if row.direction == RECOMPUTED))

    @cached_property
    def eager_functions(self) -> tuple[EagerFunction, ...]:
        """The program's functions that call eager operators, the one with most of them first.

        Those that run the backward or the optimizer are the step itself, and do not count. ``main`` does not count
        either: a program calls it once, and it holds the loop.
        """
        every = [part.source for part in list_parts(self.run, EAGER, OPTIMIZER) if part.source is not None]
        steps = {(one.file, one.function) for one in every if _OF_STEPS.search(one.code)}
        steps |= {(one.file, one.function) for one in find_differentiated_twice(self.run)[1]}  # none can be compiled
        parts = [part for part in list_parts(self.run, EAGER) if not WRAPPERS.search(part.label)]
        found = [(part.source, part.time_s) for part in parts]
        host = self.run.program.host if self.run.program is not None else None
        found += [(one.source, one.time_s) for one in (host.stretches if host else ()) if one.label == DISPATCHING]
        lines: dict[tuple[str, str], dict[SourceLine, float]] = {}
        for source, time_s in found:
            if source is None or not source.function.isidentifier() or source.function == ENTRY:
                continue
            if (source.file, source.function) not in steps:
                known = lines.setdefault((source.file, source.function), {})
                known[source] = known.get(source, 0.0) + time_s
        entered = (one for one in (host.stretches if host else ()) if one.label in (GUARDS, LAUNCHING))
        costly = {(one.source.file, one.source.function.rpartition(".")[2]) for one in entered if one.source}
        costly |= {(one.source.file, one.source.function) for one in parts if one.source and one.calls >= UNROLLED}
        functions = [
            EagerFunction(
                max(times, key=lambda line: times[line]), self.share(sum(times.values())) or 0.0, place in costly
            )
            for place, times in lines.items()
        ]
        return tuple(sorted(functions, key=lambda one: -one.share))

    @cached_property
    def eager_losses(self) -> dict[str, float]:
        """The losses that run eagerly, by their names in ``torch.nn.functional``, with the time of their operators."""
        found: dict[str, float] = {}
        for part in list_parts(self.run, EAGER):
            text = f"{part.label} {part.source.code if part.source else ''}"
            name = next((name for name, words in LOSSES if re.search(words, text)), None)
            if name is not None:
                found[name] = found.get(name, 0.0) + part.time_s
        return {name: self.share(time_s) or 0.0 for name, time_s in found.items()}

    @cached_property
    def reached_limit(self) -> bool:
        """Whether Dynamo gave a function up because it had compiled it too often."""
        return any(one.reached_limit for one in self.run.capture.functions)

    @cached_property
    def guards(self) -> float | None:
        return self.idle(GUARDS)

    @cached_property
    def trains(self) -> bool:
        """Whether the program computes gradients."""
        backward = any("backward" in module.label for module in self.run.modules)
        return bool(self.run.request.training) or bool(self.optimizers) or backward

    @cached_property
    def replays(self) -> bool:
        """Whether the step replays CUDA graphs already."""
        return any(find_graph_use(self.run, module).replayed for module in self.run.modules)

    @cached_property
    def dynamic_share(self) -> float | None:
        """The share of the step in graphs for any shape; ``None`` if such graphs exist and no step was profiled."""
        graphs = [module for module in self.run.modules if module.dynamic]
        return self.share(sum(find_graph_use(self.run, module).time_s for module in graphs)) if graphs else 0.0

    @cached_property
    def sizes_change(self) -> bool:
        """Whether something was compiled again for another size."""
        return bool(self.dynamic_share != 0 or any("size mismatch" in one for one in self.run.capture.recompiles))

    @cached_property
    def has_unfused_attention(self) -> bool:
        """Whether the program calls torch's attention, and no fused kernel took its arguments."""
        return bool(find_unfused_attention(self._evidence))

    @cached_property
    def threads(self) -> int | None:
        """The least number of threads that a graph ran on; if that is unknown, what torch has by itself."""
        return min((module.threads for module in self.run.modules if module.threads), default=self.own_threads)

    @property
    def own_threads(self) -> int | None:
        """The number of threads that torch has if the program does not set it."""
        return self.run.environment.host.threads

    @cached_property
    def cores(self) -> int:
        return self.run.environment.host.cpu_count

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """Returns the predicted savings of findings."""
        return self.run.program.predictions if self.run.program is not None else ()

    def predicted(self, kind: str) -> float | None:
        """Returns the largest saving of the findings of a kind; ``None`` if none was simulated."""
        found = [one.saving_s + one.uncertainty_s for one in self.predictions if one.kind == kind]
        return self.share(max(found)) if found else None
