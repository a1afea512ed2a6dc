"""What is wrong with what a command did: how it ended, what it changed, and where in the code it went wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fuzz_base import SECRET
from .fuzz_trial import HUNG, SIGNAL, SLOW, Ended

OWN = ("tmp", "stdout", "stderr", "stack", "started", "summary", "cache/peaks")
"""What every command may write, in the folder of its input."""

STARTED = "started a process"
_FRAME = re.compile(r'File "[^"]*/inductor_bench/([^"]+)", line (\d+)')
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line end, and those that change the direction of text."""

State = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Fault:
    """One thing that must not happen: what, of which exception or which file, and at which own line."""

    what: str
    kind: str = ""
    frame: str = ""


def take_state(place: Path) -> dict[str, tuple[Any, ...]]:
    """All below the folder, without following links: type, mode, content, and for the victim the time too."""
    found: dict[str, tuple[Any, ...]] = {}
    waiting = [str(place)]
    begin = len(waiting[0]) + 1
    while waiting:
        with _items(waiting.pop()) as items:
            for item in items:
                name = item.path[begin:]
                if name in OWN:
                    continue
                facts = item.stat(follow_symlinks=False)
                changed = facts.st_mtime_ns if name.startswith("victim") else 0
                found[name] = (stat.filemode(facts.st_mode), _content(item.path, facts.st_mode), changed)
                if stat.S_ISDIR(facts.st_mode):
                    waiting.append(item.path)
    return found


def _items(path: str) -> Any:
    try:
        return os.scandir(path)
    except PermissionError:  # nothing can be done to it either
        return contextlib.nullcontext(())


def _content(path: str, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if not stat.S_ISREG(mode):
        return ""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except PermissionError:
        return "unreadable"


def find_faults(
    place: Path, ended: Ended, before: State, after: State, allowed: Sequence[str], kept: Sequence[str]
) -> Iterator[Fault]:
    """The faults of one command.

    Args:
        place: the folder of the input; ``before`` and ``after`` are its states.
        allowed: what the command was told to write, relative to it.
        kept: what of that it must leave as it is.
    """
    yield from _endings(place, ended)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name) or _says_the_same(name, before, after):
            continue
        if not _within(name, allowed) or _within(name, kept):
            change = "new" if name not in before else "gone" if name not in after else "changed"
            yield Fault("changed victim" if name.startswith("victim") else "outside write", f"{change}: {_shown(name)}")
        elif name in after and SECRET.encode() in _bytes(place / name):
            yield Fault("copied victim", f"{Path(name).parent}/*{Path(name).suffix}")
    if started := _text(place / "started"):
        yield Fault(STARTED, started.splitlines()[0][:100])


def _says_the_same(name: str, before: State, after: State) -> bool:
    """Whether a folder's time changed because of an item that is told of by itself."""
    if name not in before or name not in after or not after[name][0].startswith("d"):
        return False
    inner = {one for one in before.keys() ^ after.keys() if os.path.dirname(one) == name}
    return bool(inner) and before[name][:2] == after[name][:2]


def _endings(place: Path, ended: Ended) -> Iterator[Fault]:
    said = _text(place / "stderr")
    if ended.outcome == SLOW:
        yield Fault("over the CPU limit", "", _frame_of_stack(place))
    elif ended.outcome == HUNG:
        yield Fault("hang", "", _frame_of_stack(place))
    elif ended.outcome == SIGNAL:
        yield Fault(f"signal {ended.number}", "", _frame_of_stack(place))
    elif ended.outcome == "3":
        kind = re.search(r"bug in\s+inductor-bench:\s+(\w+)", said)
        details = [_text(path) for path in (place / "tmp").glob("inductor-bench-*.log")]
        yield Fault("exit 3", kind.group(1) if kind else "", _last_frame(details[0] if details else said))
    elif ended.outcome not in ("0", "1", "2", "4", "5"):
        yield Fault(f"exit {ended.outcome}", _last_line(said), _last_frame(said))
    if "Traceback (most recent call last)" in said and ended.outcome != "3":
        yield Fault("traceback", _last_line(said).partition(":")[0], _last_frame(said))
    if found := _STEERING.search(said + _text(place / "stdout")):
        yield Fault("steers the terminal", f"prints {found[0]!a}")
    if ended.outcome not in ("0", SLOW, HUNG, SIGNAL) and not said.strip() and not _text(place / "stdout").strip():
        yield Fault(f"exit {ended.outcome} without a word")


def lost_in_record(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Fault]:
    """What a command took from a record that could be read before."""
    if before is None:
        return
    if after is None:
        yield Fault("lost record", "it could be read before")
        return
    for label, facts in before.items():
        for name, known in facts.items():
            if known and not after.get(label, {}).get(name):
                yield Fault("lost record", name if label in after else "a module")


def _within(name: str, folders: Sequence[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def _shown(name: str) -> str:
    """A name without the parts that are another in each input."""
    name = re.sub(r"[0-9a-f]{8,}|(?<=inductor-bench-)\w+|tmp\w{6,}", "…", name)
    return name if len(name) < 70 else f"{name[:66]}…"


def _frame_of_stack(place: Path) -> str:
    """The innermost own frame of a stack that stands the most recent call first."""
    found = _FRAME.search(_text(place / "stack"))
    return ":".join(found.groups()) if found else ""


def _last_frame(text: str) -> str:
    found = _FRAME.findall(text)
    return ":".join(found[-1]) if found else ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:80] if lines else ""


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    except OSError:
        return b""
