"""The commands that read a damaged RUN, module or batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .desk import Desk

RUNS = ("cpu", "gpu")
OBSERVED = "observed"
"""The RUN that has a step, and what was observed of it."""
KEPT_BY_REPORT = ("record.json", "batch.json", "modules", "traces", "kernels", "logs", "models")
KEPT_BY_BREAKDOWN = ("modules", "traces", "logs")
KEPT_OF_OBSERVED = ("modules", "logs", "traces/forward.details.json", "traces/backward.details.json")
"""The trace of the steps, their timeline and the stacks are written again."""


@dataclass(frozen=True)
class Input:
    """A command line on a damaged input.

    Attributes:
        words: the arguments of ``inductor-bench``.
        allowed: what the command is told to write, relative to the folder of the input.
        kept: what of that it has to leave as it is.
        run: a RUN whose record must not get worse.
    """

    words: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    run: str | None = None

    @property
    def may_start(self) -> bool:
        """Whether the command is one that runs what it is given; it is told that no process can be started."""
        return self.words[:1] == ("kernel",)


def of_run(desk: Desk, name: str, verbs: Sequence[str]) -> Input:
    """One of the commands that read a RUN."""
    verb = desk.random.choice(verbs)
    run = (f"cwd/{name}",)
    if verb == "report":
        form = desk.random.choice(((), (), ("--format", "json"), ("--format", "md"), ("--format", "csv")))
        return Input(("report", name, "--no-plots", *form), run, tuple(f"{run[0]}/{item}" for item in KEPT_BY_REPORT))
    if verb == "breakdown":
        kept = tuple(f"{run[0]}/{item}" for item in (KEPT_OF_OBSERVED if name == OBSERVED else KEPT_BY_BREAKDOWN))
        return Input(("breakdown", name, "--no-plots"), run, kept, run[0])
    if verb == "query":
        return Input(("query", name, *desk.random.choice(((), ("FROM kernels",), ("FROM models", "--format", "json")))))
    if verb == "compare":
        form = desk.random.choice(((), (), ("--format", "json"), ("--format", "html"), ("--fail-above", "5%")))
        desk.take(name, "whole")
        return Input(("compare", *desk.random.choice(((name, "whole"), ("whole", name), (name, name))), *form))
    if verb == "kernel":
        return Input(("kernel", f"{name}#{desk.random.choice(('nothing*', '*.none', 'x'))}"), run)
    if verb == "list":
        return Input(("extract", name, "--list", *desk.random.choice(((), ("--format", "json")))))
    recorded = ("--values", "recorded") if verb == "values" or desk.random.random() < 0.4 else ()
    return Input(("extract", name, "-o", "out", *recorded), ("cwd/out",))


def of_module(desk: Desk, name: str) -> Input:
    if desk.random.random() < 0.5:
        out = desk.random.choice((("-o", "out"), ("--list",)))
        return Input(("extract", f"{name}.py", "--static", *out), ("cwd/out",))
    trace = f"{name}.trace.json.gz"
    if not (desk.cwd / trace).exists():
        desk.take(trace)
    return Input(("breakdown", f"{name}.py", "--trace", trace, "-o", "out", "--no-plots"), ("cwd/out",))


def of_batch(desk: Desk) -> Input:
    if desk.random.random() < 0.3:
        return Input(("query", "batch", *desk.random.choice(((), ("FROM kernels",), ("FROM retunes",)))))
    kept = tuple(f"cwd/batch/{item}" for item in KEPT_BY_REPORT)
    form = desk.random.choice(((), (), ("--format", "json"), ("--format", "md"), ("--format", "csv")))
    return Input(("report", "batch", "--no-plots", *form), ("cwd/batch",), kept)
