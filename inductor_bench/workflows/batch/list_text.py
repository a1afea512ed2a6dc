"""Reads a list of models as text, ``name batch`` or ``name,batch``, or as YAML; errors name the lines."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import InductorBenchError, UsageError
from ...records.batches.batch import ModelRequest
from ...records.model_sources import LIBRARIES, bare_library
from ...store.batch import BATCH
from ..modules.targets import find
from .list_options import FILE, FORMS, YAML, Complaints
from .list_yaml import read_yaml

_COMMENT = re.compile(r"(?:^|\s)#.*")
_COMMA, _SPACE = bare_library("comma"), bare_library("space")
"""The sources of bare names: PyTorch's suites write the one list with commas, the other with spaces."""


def read_list(path: Path, source: str | None = None) -> tuple[ModelRequest, ...]:
    """Reads the models of a list, with the options of the list.

    Args:
        path: the list.
        source: the source of names without one; ``None`` to infer it from the form of their lines.

    Raises:
        UsageError: the list is missing, is a folder, or has unreadable lines; the error names all of them.
    """
    text, complaints = _read_text(path), Complaints(path)
    found = read_yaml(text, path, complaints) if path.suffix in YAML else list(_read_lines(text, complaints))
    requests = []
    for request, form in found:
        try:
            requests.append(replace(request, target=_resolve(request.target, source or form, path.parent)))
        except InductorBenchError as error:
            complaints.add(request.line, error.message)
    _find_duplicates(requests, complaints)
    complaints.raise_any()
    if not requests:
        raise UsageError(f"{path} lists no model", FORMS)
    return tuple(_named(requests))


def select(
    requests: Sequence[ModelRequest], filters: Sequence[str], excludes: Sequence[str], shard: tuple[int, int] | None
) -> tuple[ModelRequest, ...]:
    """The requests that match any filter and no exclusion; of these, every n-th where a shard is given.

    Args:
        requests: all requests of the list.
        filters, excludes: globs, or parts of names.
        shard: ``(i, n)``, with ``i`` from 1 to ``n``.

    Raises:
        UsageError: no request is left.
    """
    chosen = [
        request
        for request in requests
        if (not filters or _fits(request, filters)) and not (excludes and _fits(request, excludes))
    ]
    if not chosen:
        raise UsageError(
            f"none of the {len(requests)} models is left by --filter and --exclude", "--list shows their names"
        )
    if shard is not None:
        index, count = shard
        chosen = chosen[index - 1 :: count]
        if not chosen:
            raise UsageError(f"shard {index}/{count} is empty: fewer models than shards", "take fewer shards")
    return tuple(chosen)


def _fits(request: ModelRequest, patterns: Iterable[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(text, pattern if re.search(r"[*?\[]", pattern) else f"*{pattern}*")
        for pattern in patterns
        for text in (request.name, request.target)
    )


def _read_text(path: Path) -> str:
    if find(path) == "folder":
        if find(path / BATCH) == "file":
            raise UsageError(f"{path} is a batch, not a list", f"inductor-bench report {path} shows it")
        inside = sorted(file for end in (".txt", *YAML) for file in path.glob(f"*{end}"))
        hint = f"try: inductor-bench batch {inside[0]}" if inside else "give a file with a model on each line"
        raise UsageError(f"{path} is a folder, not a list", hint)
    try:
        # A pipe without a writer ends at once; a pipe with a writer, such as `<(…)`, is read to its end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, encoding="utf-8-sig") as stream:
            text = stream.read()
    except FileNotFoundError:
        raise UsageError(f"the list {path} does not exist", "give a file with a model on each line") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{path} is not a list of models, but binary data", FORMS)
    return text


def _read_lines(text: str, complaints: Complaints) -> Iterator[tuple[ModelRequest, str]]:
    """The request of each line, with the source of its name if that has none of its own."""
    for number, line in enumerate(text.splitlines(), 1):
        content = _COMMENT.sub("", line).strip()
        if not content:
            continue
        comma = "," in content
        target, *rest = [word.strip() for word in content.split(",")] if comma else content.split()
        if not target or len(rest) > 1:
            complaints.add(number, f"{content!r} is not a name and a batch size")
        elif rest and not (rest[0].isascii() and rest[0].isdigit() and int(rest[0][:10]) and len(rest[0]) < 10):
            complaints.add(number, f"the batch size of {target} is {rest[0]!r}, not a whole number of 1 or more")
        else:
            size = int(rest[0]) if rest else None
            yield ModelRequest("", target, number, batch_size=size), _COMMA if comma else _SPACE


def _resolve(target: str, form: str, folder: Path) -> str:
    """The target as ``breakdown`` takes it: a source with a name, or an absolute path.

    Raises:
        UsageError: the file or the source is unknown.
    """
    source, colon, name = target.partition(":")
    if colon and source in LIBRARIES:
        if not name:
            raise UsageError(f"{target} needs a model name")
        return target
    file, colon, function = (
        target.rpartition(":") if not target.endswith(".py") and FILE.search(target) else (target, "", "")
    )
    if file.endswith(".py"):
        path = next((path for path in (folder / file, Path(file)) if find(path) == "file"), None)
        if path is None:
            raise UsageError(f"{file} does not exist")
        return f"{path.resolve()}{colon}{function}"
    if ":" in target:
        raise UsageError(f"{source}: is no source of models; there are {', '.join(f'{one}:' for one in LIBRARIES)}")
    return f"{form}:{target}"


def _find_duplicates(requests: Sequence[ModelRequest], complaints: Complaints) -> None:
    seen: dict[ModelRequest, int] = {}
    for request in requests:
        bare = replace(request, line=0)
        if bare in seen:
            complaints.add(request.line, f"{request.target} stands on line {seen[bare]} already")
        else:
            seen[bare] = request.line


def _named(requests: Iterable[ModelRequest]) -> Iterator[ModelRequest]:
    """The requests with unique names, which are file names too."""
    taken: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}
    for request in requests:
        stem = plain_name(request.name or request.target)
        candidates = [stem, f"{stem}-batch{request.batch_size}" if request.batch_size else stem]
        more = (f"{stem}-{number}" for number in numbers.setdefault(stem.lower(), itertools.count(2)))
        name = next(name for name in itertools.chain(candidates, more) if name.lower() not in taken)
        taken.add(name.lower())
        yield replace(request, name=name)


def plain_name(target: str) -> str:
    """A file name for a target: the name of its model, or its file name with its factory."""
    source, colon, name = target.partition(":")
    if not (colon and source in LIBRARIES):
        file, colon, function = target.rpartition(":") if ".py:" in target else (target, "", "")
        name = Path(file).name.removesuffix(".py") + (f"-{function}" if function else "")
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).strip("-.")[:80] or "model"
