"""What all forms of lists share: the collection of complaints, and the options that fit a target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ...errors import UsageError
from ...records.batches.batch import ModelRequest
from ...records.model_sources import BY_KIND, LIBRARIES, ModelSource, bare_library

YAML = (".yaml", ".yml")
MOST_COMPLAINTS = 5
FORMS = "a line is `NAME`, `NAME BATCH` or `NAME,BATCH`; # begins a comment"

_DECIDED_BY_SOURCE = ("arguments", "batch_size", "training", "mode", "dynamic", "amp", "device", "seed")

FILE = re.compile(r"\.py(:\w+)?$")


class Complaints:
    """Collects the errors of a list by line, and raises them together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []

    def add(self, line: int, text: str) -> None:
        self._found.append((line, text))

    def raise_any(self) -> None:
        """Raises one error with all complaints.

        Raises:
            UsageError: there is a complaint.
        """
        if not self._found:
            return
        shown = [f"line {line}: {text}" for line, text in sorted(self._found)[:MOST_COMPLAINTS]]
        more = f"; and {len(self._found) - len(shown)} more" if len(self._found) > len(shown) else ""
        hint = "each model is a target, or has a `target:` and options" if self._path.suffix in YAML else FORMS
        raise UsageError(f"{self._path}, {'; '.join(shown)}{more}", hint)


def merge(
    requests: Iterable[ModelRequest], options: Mapping[str, object], defaults: bool = False
) -> list[ModelRequest]:
    """The requests with options of the whole batch, where these fit the target.

    Args:
        requests: the requests of the models.
        options: the options, by the fields of ``ModelRequest``; ``None`` means no option.
        defaults: whether a model's own option takes precedence.
    """
    merged = []
    for request in requests:
        fitting = {
            name: value
            for name, value in options.items()
            if value is not None
            and fits_target(name, request.target)
            and not (defaults and getattr(request, name) is not None)
        }
        merged.append(replace(request, **fitting))  # type: ignore[arg-type]
    return merged


def fits_target(option: str, target: str) -> bool:
    """Whether an option has a meaning for a target; a script decides most options itself."""
    return option not in _DECIDED_BY_SOURCE or option in _source_of(target).takes


def _source_of(target: str) -> ModelSource:
    """The source of a target in a list; a name without a known source is the name of a library's model."""
    if target.endswith(".py"):
        return BY_KIND["script"]
    if FILE.search(target):
        return BY_KIND["factory"]
    return LIBRARIES.get(target.partition(":")[0], BY_KIND[bare_library("space")])
