"""A readable name for every compiled module, and a form of it for file names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records.code import CapturedCode
from .generated_text import compute_module_id
from .module_reader import read_header

_UNSAFE = re.compile(r"[^a-z0-9]+")
_TRAINING = ("forward", "backward")
_LONGEST_SLUG = 60


@dataclass(frozen=True)
class ModuleLabel:
    """The names of a module; both are unique in the run. ``slug`` consists of ``[a-z0-9-]``."""

    label: str
    slug: str


@dataclass(frozen=True)
class _Mark:
    """The parts of a label."""

    name: str  # the compiled function; empty if it is unknown, or if it is the same for all
    role: str
    dynamic: bool
    rank: int | None
    # the program's name of the module that was compiled; empty if it is unknown, or for another function
    object: str
    sizes: str  # what distinguishes its graph from others of the same function, in words; empty if no size does
    pair: Hashable  # the same for the forward and the backward of one graph
    frame: Hashable  # includes the role, because an inference graph is no recompilation of a training graph
    frame_compile_id: int | None

    def words(self, number: int) -> str:
        """Returns the name with the role of a training graph, or only the role, with a number from 2 on."""
        suffix = f"-{number}" if number > 1 else ""
        if not self.name:
            return self.role + suffix
        if self.role in _TRAINING:
            return f"{self.name} · {self.role}{suffix}"
        function, space, place = self.name.partition(" ")
        return f"{function}{suffix}{space}{place}"

    @property
    def family(self) -> Hashable:
        """Returns a name that is shared by graphs that only numbers distinguish."""
        return (self.rank, self.name, "training") if self.role in _TRAINING else (self.rank, self.words(1))


def label_modules(modules: Sequence[tuple[str, CapturedCode | None]]) -> tuple[ModuleLabel, ...]:
    """Returns the labels of modules.

    A label is the name of the compiled function, such as ``step`` or ``Block.forward``, and in training also the role:
    ``Block.forward · backward``. Modules of the program whose function is the same have their own names instead, as the
    program calls them: ``D · backward``, ``unet.down_blocks.1``. The label is only the role (``forward``, ``backward``,
    ``inference``, or ``graph`` for a module without a mark) in two cases: if the name is unknown, and if all modules
    are forwards and backwards of one function. Graphs of one function that differ in a size have it in their label:
    ``forward (7 rows)``. A label ends in ``(dynamic)`` if sizes are symbols. Labels that are still equal are numbered
    from the second one on, so that ``backward-2`` is the backward of ``forward-2``, and end in ``(recompile)`` if the
    frame was compiled before in that role. A label begins with the rank if there are several ranks.

    Args:
        modules: text and entry in the structured trace of each module, in the order of compilation.
    """
    marks = _remove_common_name(_add_object_names([_mark(text, code) for text, code in modules]))
    several_ranks = len({mark.rank for mark in marks}) > 1
    first, by_size = _keep_first_compilations(marks), _find_sized_families(marks)
    labels = []
    for mark, number in zip(marks, _number_labels(marks), strict=True):
        words = mark.words(1 if mark.family in by_size else number)
        if mark.family in by_size and not mark.dynamic:
            words += f" ({mark.sizes})"
        if mark.dynamic:
            words += " (dynamic)"
        again = mark.frame_compile_id and mark.frame_compile_id > first.get(mark.frame, mark.frame_compile_id)
        if again and mark.family not in by_size:
            words += " (recompile)"
        if several_ranks:
            words = f"rank {mark.rank} {words}" if mark.rank is not None else f"main {words}"
        labels.append(words)
    slugs = _make_slugs([(label, bool(mark.name)) for label, mark in zip(labels, marks, strict=True)])
    return tuple(map(ModuleLabel, labels, slugs))


def _mark(text: str, code: CapturedCode | None) -> _Mark:
    header = read_header(text)
    role = header.role if header.role != "unknown" or code is None else code.role
    rank = code.rank if code else None
    frame_id, compile_id = (code.frame_id, code.frame_compile_id) if code else (None, None)
    pair: Hashable = header.graph_number
    if pair is None and frame_id is not None:
        pair = ("frame", frame_id, compile_id)
    name, named, sizes = (code.compiled_name, code.object_name, code.sizes) if code else ("", "", "")
    frame = (rank, frame_id, role, named) if frame_id is not None else None
    role = "graph" if role == "unknown" else role
    return _Mark(name, role, header.dynamic, rank, named, sizes, pair, frame, compile_id)


def _add_object_names(marks: list[_Mark]) -> list[_Mark]:
    """Returns the marks. If one function was compiled for several modules, their names are added."""
    objects: dict[Hashable, set[str]] = defaultdict(set)
    for mark in marks:
        objects[mark.rank, mark.name].add(mark.object)
    several = {key for key, names in objects.items() if len(names) > 1 and "" not in names}
    return [replace(mark, name=mark.object) if (mark.rank, mark.name) in several else mark for mark in marks]


def _find_sized_families(marks: Sequence[_Mark]) -> set[Hashable]:
    """Returns the families whose graphs each have another size, or symbols for sizes."""
    families: dict[tuple[Hashable, str], list[_Mark]] = defaultdict(list)
    for mark in marks:
        families[mark.family, mark.role].append(mark)
    clear: dict[Hashable, bool] = {}
    for (family, _), group in families.items():
        words = ["" if mark.dynamic else mark.sizes for mark in group]
        known = all(mark.dynamic or mark.sizes for mark in group) and any(words)
        clear[family] = clear.get(family, True) and known and len(set(words)) == len(words)
    return {family for family, is_clear in clear.items() if is_clear}


def _remove_common_name(marks: list[_Mark]) -> list[_Mark]:
    training_of_one = len({mark.name for mark in marks}) == 1 and all(mark.role in _TRAINING for mark in marks)
    return [replace(mark, name="") for mark in marks] if training_of_one else marks


def _keep_first_compilations(marks: Sequence[_Mark]) -> dict[Hashable, int]:
    first: dict[Hashable, int] = {}
    for mark in marks:
        if mark.frame_compile_id is not None and mark.frame is not None:
            first[mark.frame] = min(mark.frame_compile_id, first.get(mark.frame, mark.frame_compile_id))
    return first


def _number_labels(marks: Sequence[_Mark]) -> list[int]:
    # Backwards are compiled in an order of their own, so that the forwards decide the numbers of both. Another process,
    # or a reset of Dynamo, counts its graphs from 0 again: the second forward 0 belongs to the second backward 0.
    numbers = [0] * len(marks)
    seen: Counter[Hashable] = Counter()
    families: dict[Hashable, dict[Hashable, int]] = {}
    for place in sorted(range(len(marks)), key=lambda place: marks[place].role == "backward"):
        mark = marks[place]
        occurrence = (mark.family, mark.role, mark.pair)
        known = families.setdefault(mark.family, {})
        numbers[place] = known.setdefault((mark.pair, seen[occurrence]), len(known) + 1)
        seen[occurrence] += 1
    return numbers


def _make_slugs(labels: Sequence[tuple[str, bool]]) -> Iterator[str]:
    # Different labels may have equal slugs, such as those of ``step_2`` and of the second ``step``.
    taken: set[str] = set()
    uses: Counter[str] = Counter()
    for label, named in labels:
        base = slug = _make_slug(label, named)
        while slug in taken:
            uses[base] += 1
            slug = f"{base}-{uses[base] + 1}"
        taken.add(slug)
        yield slug


def _make_slug(label: str, named: bool) -> str:
    slug = _UNSAFE.sub("-", label.lower()).strip("-") or "graph"
    if named and "-" not in slug:
        slug += "-graph"  # A file ``random.py`` would be imported in place of Python's own module.
    if len(slug) > _LONGEST_SLUG:
        half = _LONGEST_SLUG // 2
        slug = f"{slug[: half - 1].strip('-')}-{slug[-half:].strip('-')}"
    return slug


# Finds the modules that are the same on several ranks of a distributed program.


def group_ranks(texts: Mapping[str, str], ranks: Mapping[str, Sequence[int | None]]) -> tuple[tuple[str, ...], ...]:
    """Groups the modules, by path, that are equal on different ranks; the lowest rank's comes first.

    Modules that one rank loaded stay apart, even if they differ only in the number of their device.

    Args:
        texts: the text of each module.
        ranks: the ranks that loaded a module; ``None`` outside of a distributed program.
    """
    loaded = {path: frozenset(rank for rank in ranks.get(path, ()) if rank is not None) for path in texts}
    groups: dict[str, tuple[str, ...]] = {path: (path,) for path in texts}
    if len(frozenset().union(*loaded.values())) < 2:
        return tuple(groups.values())
    same: dict[str, list[str]] = defaultdict(list)
    for path in sorted((path for path in texts if loaded[path]), key=lambda path: min(loaded[path])):
        known = same[compute_module_id(texts[path])]
        owner = next((one for one in known if loaded[one].isdisjoint(loaded[path])), None)
        if owner is None:
            known.append(path)
        else:
            groups[owner] += groups.pop(path)
            loaded[owner] |= loaded[path]
    return tuple(groups.values())
