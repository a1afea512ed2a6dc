"""The kinds of input: which file of which folder is damaged, and the command line that reads it."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from .damages import replace_item
from .desk import Desk
from .foreign import newer, renamed, zipped
from .fuzz_base import PEAKS
from .fuzz_commands import OBSERVED, RUNS, Input, of_batch, of_module, of_run
from .words import command_line, question


def _record(desk: Desk) -> Input:
    name = desk.random.choice((*RUNS, OBSERVED, "retuned", "hosted"))
    desk.damage_json(desk.take(name) / "record.json")
    verbs = ("report", "report", "report", "breakdown", "query", "compare", "compare", "kernel", "list", "extract")
    return of_run(desk, name, verbs)


def _details(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    (path,) = desk.take(name).glob("traces/*.details.json")
    desk.damage_json(path)
    return of_run(desk, name, ("breakdown", "breakdown", "extract", "list"))


def _evidence(desk: Desk) -> Input:
    name = desk.random.choice((*RUNS, OBSERVED, OBSERVED))
    desk.damage_json(desk.take(name) / "evidence.json")
    return of_run(desk, name, ("breakdown",))


def _observed(desk: Desk) -> Input:
    """What a RUN keeps of its program's step, beside the record and the evidence."""
    run = desk.take(OBSERVED)
    names = ("modules/forward.layers.json", "modules/backward.provenance.json", "traces/step.timeline.json")
    path = run / desk.random.choice((*names, "traces/host.speedscope.json", "traces/step.trace.json.gz"))
    if path.suffix == ".gz":
        desk.damage_packed(path, desk.damage_json)
    else:
        desk.damage_json(path)
    return of_run(desk, OBSERVED, ("breakdown", "breakdown", "report", "extract", "compare"))


def _provenance(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    (path,) = desk.take(name).glob("modules/*.provenance.json")
    desk.damage_json(path)
    return of_run(desk, name, ("breakdown", "extract", "list"))


def _module(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    if desk.random.random() < 0.5:
        (path,) = desk.take(name).glob("modules/*.py")
        desk.damage_text(path)
        return of_run(desk, name, ("breakdown", "extract", "list"))
    desk.damage_text(desk.take(f"{name}.py"))
    return of_module(desk, name)


def _trace(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    if desk.random.random() < 0.6:
        (path,) = desk.take(name).glob("traces/*.trace.json.gz")
        desk.damage_packed(path, desk.damage_json)
        return of_run(desk, name, ("breakdown", "breakdown", "extract", "list"))
    desk.damage_packed(desk.take(f"{name}.trace.json.gz"), desk.damage_json)
    desk.take(f"{name}.py")
    trace = ("--trace", f"{name}.trace.json.gz")
    return Input(("breakdown", f"{name}.py", *trace, "-o", "out", "--no-plots"), ("cwd/out",))


def _large(desk: Desk) -> Input:
    """A few bytes of a trace of five megabytes, in a RUN of another module: it is read to its end, then refused."""
    name = desk.random.choice(RUNS)
    (path,) = desk.take(name).glob("traces/*.trace.json.gz")
    shutil.copyfile(desk.base / "large.trace.json.gz", path)
    desk.damage_packed(path, desk.damage_bytes, outside=0.6)
    return of_run(desk, name, ("breakdown", "list"))


def _kernels(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    desk.damage_json(desk.take(name) / "kernels" / "kernels.json")
    return of_run(desk, name, ("values", "breakdown", "kernel", "extract"))


def _values(desk: Desk) -> Input:
    """Names of values' files that point elsewhere, in a RUN that was made (or that says it is still being made)."""
    name = desk.random.choice(RUNS)
    run = desk.take(name)
    (path,) = run.glob("traces/*.details.json")
    details = json.loads(path.read_text())
    for launch in details["recorded"]:
        for storage in launch["storages"]:
            storage["values"]["file"] = desk.random.choice((*desk.hostile, "0.safetensors"))
    path.write_text(json.dumps(details))
    index = json.loads((run / "kernels" / "kernels.json").read_text())
    for row in index:
        row["values"] = desk.random.choice((*desk.hostile, row.get("values")))
    (run / "kernels" / "kernels.json").write_text(json.dumps(index))
    if desk.random.random() < 0.5:
        work = run / ".work" / "values" / path.name.removesuffix(".details.json")
        work.mkdir(parents=True)
        (work / "0.safetensors").write_bytes(b"values")
        if desk.random.random() < 0.3:
            replace_item(desk.random, desk.random.choice((work, work.parent, work / "0.safetensors")), desk.victim)
    return of_run(desk, name, ("values", "values", "values", "breakdown", "kernel"))


def _files(desk: Desk) -> Input:
    """Something else in the place of a file or folder."""
    name = desk.random.choice((*RUNS, *RUNS, "retuned", "batch"))
    folder = desk.take(name)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    unwritten = ("tables", "plots", "report.html", ".work", "tables/kernels.csv", "kernels.csv", "summary.csv", ".lock")
    rare = ("models.csv", "report.md", "summary.md", "kernels.parquet", "families.csv", "graphs.csv", "retunes.csv")
    for _ in range(desk.random.choice((1, 1, 1, 2))):
        one = desk.random.choice(desk.random.choice((names, names, (*unwritten, *rare))))
        if desk.random.random() < 0.02:
            one = "."
        _replace(desk, folder / one)
    if name == "batch":
        return of_batch(desk)
    return of_run(desk, name, ("report", "breakdown", "breakdown", "query", "kernel", "list", "extract", "values"))


def _replace(desk: Desk, path: Path) -> None:
    try:
        replace_item(desk.random, path, desk.victim)
    except (OSError, shutil.Error):  # what another replaced leaves no place for it
        return


def _batch(desk: Desk) -> Input:
    folder = desk.take("batch")
    desk.damage_json(folder / "batch.json")
    return of_batch(desk)


def _models(desk: Desk) -> Input:
    folder = desk.take("batch")
    desk.damage_json(folder / "models" / desk.random.choice(("one", "two")) / "record.json")
    return of_batch(desk)


def _peaks(desk: Desk) -> Input:
    path = desk.take("peaks.json")
    desk.damage_json(path)
    target = desk.place / "cache" / PEAKS
    shutil.move(path, target)
    if desk.random.random() < 0.15:
        replace_item(desk.random, target, desk.victim)
    return Input(("doctor", "--device", "cpu"), ("cache",))


def _log(desk: Desk) -> Input:
    for name in ("cpu.py", "gpu.py"):
        desk.take(name)
    desk.damage_text(desk.take("run.log"))
    return Input(("extract", "run.log", "--static", *desk.random.choice((("-o", "out"), ("--list",)))), ("cwd/out",))


def _structured(desk: Desk) -> Input:
    name = desk.random.choice(RUNS)
    (path,) = desk.take(f"{name}.structured").iterdir()
    if desk.random.random() < 0.5:
        desk.damage_packed(path, desk.damage_text)
    else:
        plain = path.with_suffix("")
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
        desk.damage_text(plain)
    out = desk.random.choice((("-o", "out"), ("--list",)))
    return Input(("extract", f"{name}.structured", "--static", *out), ("cwd/out",))


def _list(desk: Desk) -> Input:
    name = desk.random.choice(("list.txt", "list.yaml", "list.yaml"))
    desk.damage_text(desk.take(name))
    for program in ("script.py", "model.py"):
        desk.take(program)
    return Input(("batch", name, "--list"))


def _words(desk: Desk) -> Input:
    for name in ("cpu", "batch", "cpu.py", "cpu.trace.json.gz", "list.txt"):
        desk.take(name)
    words, out = command_line(desk.random, desk.cwd, desk.hostile)
    return Input(words, ("cwd/cpu", "cwd/batch", *((f"cwd/{out}",) if out else ())))


def _query(desk: Desk) -> Input:
    desk.take("batch")
    words = question(desk.random, desk.hostile)
    return Input(("query", "batch", *words))


KINDS: dict[str, tuple[int, Callable[[Desk], Input]]] = {
    "record": (17, _record),
    "details": (10, _details),
    "evidence": (7, _evidence),
    "observed": (7, _observed),
    "provenance": (4, _provenance),
    "module": (12, _module),
    "trace": (12, _trace),
    "large": (2, _large),
    "kernels": (6, _kernels),
    "values": (5, _values),
    "files": (11, _files),
    "batch": (3, _batch),
    "models": (4, _models),
    "peaks": (2, _peaks),
    "log": (2, _log),
    "structured": (4, _structured),
    "list": (4, _list),
    "words": (5, _words),
    "query": (2, _query),
    "newer": (8, newer),
    "renamed": (6, renamed),
    "zipped": (2, zipped),
}
"""Each kind of input with its weight."""


def generator(seed: int, number: int) -> tuple[str, random.Random]:
    """The kind of an input, and the generator that the rest of it is drawn from."""
    drawn = random.Random(f"{seed}:{number}")
    (kind,) = drawn.choices(list(KINDS), [weight for weight, _ in KINDS.values()])
    return kind, drawn


def make_input(seed: int, number: int, place: Path, base: Path) -> tuple[str, Input]:
    """Makes an input in a separate folder; the same again for the same seed and number."""
    kind, drawn = generator(seed, number)
    return kind, KINDS[kind][1](Desk(place, base, drawn))
