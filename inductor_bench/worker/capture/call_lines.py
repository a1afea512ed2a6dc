"""Notes from which lines of the user's program the compiled graphs are called, while their steps are profiled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType

from ...records.code import RESUMED, SourceLine
from ...records.evidence import OWN, GraphCallers
from ..stack_tree import CodeOwners, describe

Spot = tuple[int, int]
"""The id of a code object, and the place of an instruction in it (``f_lasti``)."""

COMPILED = ("__compiled_fn", "__resume_at")
"""The beginnings of the names of globals that only Dynamo's code has: such code stands for a compiled function, and the
line that calls it is the one to find."""

WAITING = ("torch.autograd.graph", "_engine_run_backward")
"""The function in which a thread waits for autograd's threads."""


class CallLines:
    """The calls of compiled graphs with their lines.

    The line of a call is the innermost one of the user's own code outside of compiled functions. If the
    call comes from a thread of autograd, it is the line of the thread that waits for it.
    """

    def __init__(self) -> None:
        self._owners = CodeOwners(())
        self._known: dict[int, tuple[CodeType, bool]] = {}  # the codes stay alive, so their ids stay theirs
        self._calls: dict[int, list[Spot | None]] = {}

    def note(self, number: int) -> None:
        """Notes the line from which the graph of this number is called now.

        This takes 2 to 16 µs, by the number of library frames above the user's line.
        """
        try:
            spot = self._find_spot(sys._getframe(1)) or self._find_spot(_find_waiting_frame())
        except (AttributeError, OSError, RuntimeError, ValueError):  # the line is unknown, and the program goes on
            spot = None
        self._calls.setdefault(number, []).append(spot)

    def _find_spot(self, frame: FrameType | None) -> Spot | None:
        known = self._known
        while frame is not None:
            code = frame.f_code
            found = known.get(id(code))
            if found is None:
                found = known[id(code)] = code, self._is_users(code)
            if found[1]:
                return id(code), frame.f_lasti
            frame = frame.f_back
        return None

    def _is_users(self, code: CodeType) -> bool:
        if self._owners.is_library(code.co_filename) or self._owners.owner(code.co_filename) != OWN:
            return False
        return not any(name.startswith(COMPILED) for name in code.co_names)

    def list_callers(self) -> tuple[GraphCallers, ...]:
        """The lines of each graph that was called, without their texts."""
        return tuple(self._describe(number, calls) for number, calls in sorted(self._calls.items()))

    def _describe(self, number: int, calls: Sequence[Spot | None]) -> GraphCallers:
        lines: dict[SourceLine, int] = {}
        spots: dict[Spot | None, int] = {None: -1}
        for spot in calls:
            if spot is not None and spot not in spots:
                code = self._known[spot[0]][0]
                frame, resumed = describe(code, spot[1], self._owners), RESUMED.fullmatch(code.co_name)
                line = SourceLine(frame.file, frame.line, resumed["function"] if resumed else code.co_name, "")
                spots[spot] = lines.setdefault(line, len(lines))
        return GraphCallers(number, tuple(lines), tuple(spots[spot] for spot in calls))


def _is_thread_of_python() -> bool:
    """Whether Python started this thread. It starts none of autograd's, and lists a stand-in for some of them."""
    here = threading.get_ident()
    return any(one.ident == here and not isinstance(one, threading._DummyThread) for one in threading.enumerate())


def _find_waiting_frame() -> FrameType | None:
    """Returns the frame of the thread that waits for this one, if this is one of autograd.

    ``None`` if none waits, or several do, or if this is a thread of Python, for which no backward waits.
    """
    if _is_thread_of_python():
        return None
    module, name = WAITING
    code = getattr(getattr(sys.modules.get(module), name, None), "__code__", None)
    found = [frame for frame in sys._current_frames().values() if code is not None and frame.f_code is code]
    return found[0] if len(found) == 1 else None
