"""The stacks that a sampler has seen, as a tree of frames with their files, lines and owners."""

from __future__ import annotations

import dis
import itertools
import linecache
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from ..records.evidence import GENERATED, LIBRARY, OWN, PYTHON_LIBRARY, TORCH, SampledFrame, SampledStack

BOUNDARY_FUNCTION = "StepObserver._guarded" if sys.version_info >= (3, 11) else "_guarded"
"""The function that does the work of the observation at a boundary."""


class StackSample(NamedTuple):
    """One look at the thread, or one garbage collection."""

    time_s: float  # the time that it stands for
    waits: bool  # whether the device had nothing to do
    is_collection: bool
    stack: tuple[int, ...]  # innermost first: the id of a code object and the place of the instruction, in turn


class StackTree:
    """The stacks of samples as a tree, from the outermost frame.

    Args:
        codes: the code objects by their ids.
        graphs: the paths of compiled modules, whose frames are those of generated code.
    """

    def __init__(self, codes: dict[int, CodeType], graphs: Collection[str]) -> None:
        self.frames: list[SampledFrame] = []
        self.parents: list[int] = []
        self.frame_of: list[int] = []
        self.stacks: dict[tuple[int, bool], SampledStack] = {}
        self._codes, self._owners = codes, CodeOwners(graphs)
        self._frames: dict[SampledFrame, int] = {}
        self._by_place: dict[tuple[int, int], int] = {}
        self._nodes: dict[tuple[int, int], int] = {}

    def add(self, samples: Iterable[StackSample]) -> None:
        """Adds the stacks of samples."""
        for one in samples:
            places = range(len(one.stack) - 2, -1, -2)
            frames = [self._frame(one.stack[place], one.stack[place + 1]) for place in places]
            own = [self._owners.is_observation(self.frames[frame].file) for frame in frames]
            if own and (own[-1] or any(self.frames[frame].function == BOUNDARY_FUNCTION for frame in frames)):
                continue  # the observation's own work
            frames = [frame for frame, is_own in zip(frames, own, strict=True) if not is_own]
            node = -1
            for frame in frames:
                node = self._node(node, frame)
            key = node, one.is_collection
            known = self.stacks.get(key, SampledStack(node, is_collection=one.is_collection))
            self.stacks[key] = SampledStack(
                node,
                known.waiting_s + one.time_s * one.waits,
                known.working_s + one.time_s * (not one.waits),
                known.waiting + one.waits,
                known.working + (not one.waits),
                one.is_collection,
            )

    def _node(self, parent: int, frame: int) -> int:
        key = parent, frame
        if key not in self._nodes:
            self._nodes[key] = len(self.parents)
            self.parents.append(parent)
            self.frame_of.append(frame)
        return self._nodes[key]

    def _frame(self, code: int, instruction: int) -> int:
        place = code, instruction
        if place not in self._by_place:
            frame = describe(self._codes[code], instruction, self._owners)
            if frame not in self._frames:
                self._frames[frame] = len(self.frames)
                self.frames.append(frame)
            self._by_place[place] = self._frames[frame]
        return self._by_place[place]


CALLING = ("BINARY", "COMPARE", "FOR_ITER", "BEFORE_WITH", "SETUP_WITH")
"""Instructions other than calls that may call code that is not Python. For example, a ``with`` enters a lock."""


def describe(code: CodeType, instruction: int, owners: CodeOwners) -> SampledFrame:
    """The frame of a code object at the place of an instruction, in bytes."""
    instruction = max(instruction, 0)
    line, span = _place(code, instruction)
    text = code.co_code
    operation = dis.opname[text[instruction]] if instruction < len(text) else ""
    return SampledFrame(
        file=owners.path(code.co_filename),
        function=getattr(code, "co_qualname", code.co_name),
        line=line,
        owner=owners.owner(code.co_filename),
        is_call="CALL" in operation or operation.startswith(CALLING),
        span=span,
    )


def _place(code: CodeType, instruction: int) -> tuple[int, tuple[int, ...]]:
    positions: Any = getattr(code, "co_positions", None)  # Python 3.11
    if positions is not None:
        span: tuple[int | None, ...] = next(itertools.islice(positions(), instruction // 2, None), ())
        known = tuple(number for number in span if number is not None)
        if len(known) == 4:
            return known[0], known
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end and line is not None)
    return next(lines, code.co_firstlineno), ()


CELLS = ("<ipython-input-", "<python-input-", "<command-")
"""The beginnings of the names of cells that are no paths: of IPython and Colab, of Python's own console, of Databricks.
Only if ``linecache`` has its text is it a cell: many libraries give code that they write a name in ``<…>``."""


class CodeOwners:
    """Tells whose code a file holds. ``graphs`` are the paths of the compiled modules."""

    def __init__(self, graphs: Collection[str]) -> None:
        self._graphs = frozenset(os.path.realpath(path) for path in graphs if path)
        own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._observation = _list_folders([own])
        loaded = [getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "triton")]
        self._torch = _list_folders([own, *(os.path.dirname(file) for file in loaded if file)])
        paths = sysconfig.get_paths()
        self._packages = _list_folders([paths["purelib"], paths["platlib"]])
        self._python = _list_folders([paths["stdlib"], paths["platstdlib"]])

    def path(self, file: str) -> str:
        """The path of a code object's file; the name of generated code as it is."""
        return file if not file or file.startswith("<") else os.path.abspath(file)

    def is_observation(self, path: str) -> bool:
        """Whether a path is a file of this tool."""
        return path.startswith(self._observation)

    def is_library(self, file: str) -> bool:
        """Whether a code object's file is surely torch's, a package's, Python's or generated; asks no file system."""
        return file.startswith(("<frozen", "<string>", *self._torch, *self._packages, *self._python))

    def owner(self, file: str) -> str:
        """One of the words of ``SampledFrame.owner``."""
        path = self.path(file)
        if path.startswith("<frozen"):
            return PYTHON_LIBRARY
        if path.startswith(CELLS) and path in linecache.cache:
            return OWN
        if not path or path.startswith("<") or os.path.realpath(path) in self._graphs:
            return GENERATED
        if not os.path.exists(path):
            return OWN if file in linecache.cache else GENERATED  # a cell of a notebook has no file
        if path.startswith(self._torch):
            return TORCH
        if path.startswith(self._packages) or f"{os.sep}site-packages{os.sep}" in path:
            return LIBRARY
        if f"{os.sep}dist-packages{os.sep}" in path:
            return LIBRARY
        return PYTHON_LIBRARY if path.startswith(self._python) else OWN


def _list_folders(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(path.rstrip(os.sep) + os.sep for path in paths)
