"""Finds secrets in commands, environments and output, and replaces them with ``***``.

Users share RUNs, so none of its files may hold a key, a token or a password of the program. The values
of options and variables with a secret's name are secrets, and so are the texts that :mod:`..literals` finds.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import TypeVar
from urllib.parse import quote

from ..errors import UsageError
from ..literals import MASK, PASSWORD, is_secret, mask_literals, mask_pair, split_into_words
from ..records.base import Failure
from ..records.batch_record import Batch
from ..records.code import SourceLine
from ..records.evidence import CallPlace, Evidence, StepEvidence
from ..records.run import Run
from . import codec
from .files import change_each_text

T = TypeVar("T")

OPTION = "--redact"
VARIABLE = "INDUCTOR_BENCH_REDACT"
"""Environment variable: further names of secrets, separated by commas, as with ``--redact``."""

SHORTEST = 6
"""Minimum length of a value that is searched in text; a shorter value would match ordinary words."""

_NAMED = re.compile(r"(?:--?|\+{1,2})?(?P<name>[^\W\d][\w./@-]*)(?:(?:=|:\s+)(?P<value>.*))?", re.DOTALL)
_PAIR = re.compile(r"""(?P<before>(["'])(?P<name>[\w. -]+)\2\s*:\s*(["']))(?P<value>.*?)(?=\4)""", re.DOTALL)


@dataclass(frozen=True)
class Redaction:
    """Replaces secrets with ``***``. A second pass over the same text changes nothing."""

    names: tuple[str, ...] = ()  # names of further secrets, beside those of :data:`NAMES`
    values: tuple[str, ...] = ()  # the known secrets of at least :data:`SHORTEST` characters, the longest first

    @classmethod
    def find(
        cls, commands: Iterable[Sequence[str]], environment: Mapping[str, str], names: Sequence[str] = ()
    ) -> Redaction:
        """The redaction of the secrets in commands and in an environment.

        Args:
            commands: the words of each command.
            environment: environment variables; ``INDUCTOR_BENCH_REDACT`` holds further names.
            names: further names of secrets; every value after such a name is hidden.

        Raises:
            UsageError: a name has no letter.
        """
        for name in names:
            if not split_into_words(name):
                raise UsageError(
                    f"{OPTION} {name!r} names nothing", "give an option's or a variable's name", "bad-word"
                )
        named = (name for name in environment.get(VARIABLE, "").split(",") if split_into_words(name))
        bare = cls(tuple(dict.fromkeys([*names, *named])))
        found = [value for words in commands for value in bare._values_of(words)]
        for name, value in environment.items():
            found += [value] if bare._hides(name, value) else []
            found += [match["value"] for match in PASSWORD.finditer(value)]
        forms = {form for value in found if not _is_path(value) for form in _list_forms(value)}
        return replace(bare, values=tuple(sorted(forms, key=lambda form: (-len(form), form))))

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that give the names to other processes."""
        return {VARIABLE: ",".join(self.names)} if self.names else {}

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words of a command without secrets. Secrets shorter than :data:`SHORTEST` are removed too."""
        return tuple(
            self.text(self._without_pairs(before)) + (MASK if secret else "") for before, secret in self._split(words)
        )

    def text(self, text: str) -> str:
        """The text without the known secrets, and without those that stand in it; see :mod:`..literals`."""
        for value in self.values:
            text = text.replace(value, MASK)
        return mask_literals(text, self.names)

    def failure(self, failure: Failure) -> Failure:
        message, hint, tail = map(self.text, (failure.message, failure.hint, failure.log_tail))
        return replace(failure, message=message, hint=hint, log_tail=tail)

    def run(self, run: Run) -> Run:
        """The record without secrets in the command, the program's messages and the failures."""
        request = replace(
            run.request, target=self.text(run.request.target), arguments=self.words(run.request.arguments)
        )
        breaks, recompiles = (
            tuple(map(self.text, said)) for said in (run.capture.graph_breaks, run.capture.recompiles)
        )
        functions = tuple(replace(one, place=self.text(one.place)) for one in run.capture.functions)
        run = replace(
            run,
            command=self.text(run.command),
            target=self.text(run.target),
            title=self.text(run.title),
            program_file=self.text(run.program_file),
            request=request,
            capture=replace(run.capture, graph_breaks=breaks, recompiles=recompiles, functions=functions),
            modules=tuple(replace(one, notes=tuple(map(self.text, one.notes))) for one in run.modules),
            failures=tuple(map(self.failure, run.failures)),
            retunes=tuple(
                replace(one, failure=self.failure(one.failure)) if one.failure else one for one in run.retunes
            ),
        )
        return self._everywhere(run)

    def evidence(self, evidence: Evidence) -> Evidence:
        """The evidence without secrets in what a process said, and in lines of the program."""
        modules = (replace(one, source_path=self.text(one.source_path)) for one in evidence.modules)
        processes = tuple(map(self._steps, evidence.processes))
        return self._everywhere(replace(evidence, modules=tuple(modules), processes=processes))

    def _everywhere(self, value: T) -> T:
        """Removes recognisable secrets from all texts of a value.

        Known secrets stay, because a path may contain one.
        """
        data = codec.encode(value)
        masked = change_each_text(data, lambda text: mask_literals(text, self.names))
        return value if masked == data else codec.decode(type(value), masked)

    def _steps(self, found: StepEvidence) -> StepEvidence:
        steps = found.steps
        graphs = (replace(one, cuda_graph_refusal=self.text(one.cuda_graph_refusal)) for one in steps.graphs)
        samples = steps.samples
        if samples is not None:
            frames = (replace(one, code=self.text(one.code), called=self.text(one.called)) for one in samples.frames)
            samples = replace(samples, frames=tuple(frames))
        steps = replace(
            steps,
            error=self.text(steps.error),
            notes=tuple(map(self.text, steps.notes)),
            graphs=tuple(graphs),
            callers=tuple(replace(one, lines=tuple(map(self._line, one.lines))) for one in steps.callers),
            samples=samples,
        )
        return replace(found, steps=steps, places=tuple(map(self._call_place, found.places)))

    def _call_place(self, place: CallPlace) -> CallPlace:
        return replace(place, source=self._line(place.source)) if place.source is not None else place

    def _line(self, line: SourceLine) -> SourceLine:
        return replace(line, code=self.text(line.code))

    def batch(self, batch: Batch) -> Batch:
        """The batch without secrets."""
        models = (
            replace(
                model,
                request=replace(model.request, arguments=self.words(model.request.arguments)),
                failure=self.failure(model.failure) if model.failure else None,
                notes=tuple(map(self.text, model.notes)),
            )
            for model in batch.models
        )
        return replace(batch, command=self.text(batch.command), models=tuple(models))

    def _values_of(self, words: Sequence[str]) -> Iterator[str]:
        for before, secret in self._split(words):
            yield from [secret] if secret else []
            yield from (
                match["value"] for match in _PAIR.finditer(before) if self._hides(match["name"], match["value"])
            )
            yield from (match["value"] for match in PASSWORD.finditer(before))

    def _split(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Each word, split before the secret at its end; the second part is mostly empty."""
        option = ""  # the option before the word
        for word in words:
            if option and not word.startswith("-") and self._hides(option, word):
                yield "", word
                option = ""
                continue
            place = self._place(word)
            yield word[:place], word[place:]
            named = _NAMED.fullmatch(word)
            option = named["name"] if named and named["value"] is None and word.startswith("-") else ""

    def _place(self, word: str) -> int:
        """The index of the secret in ``--a=b`` or ``--a=b=c``; the word's length if there is none."""
        begin = 0
        while (named := _NAMED.fullmatch(word, begin)) is not None and named["value"] is not None:
            begin = named.start("value")
            if self._hides(named["name"], named["value"]):
                return begin
        return len(word)

    def _without_pairs(self, word: str) -> str:
        return _PAIR.sub(lambda match: mask_pair(match, self.names), word)

    def _hides(self, name: str, value: str) -> bool:
        """Whether the value after a name is a secret."""
        return is_secret(name, value, self.names)


def list_requested_names(words: Sequence[str]) -> tuple[str, ...]:
    """The names after ``--redact`` in this tool's own command line, before the command line is parsed."""
    own = [part for word in takewhile(lambda word: word != "--", words) for part in word.split("=", 1)]
    return tuple(name for word, name in pairwise(own) if word == OPTION and split_into_words(name))


def _is_path(value: str) -> bool:
    """Whether a value is a file's path, as after ``--key``. A path is no secret, and is frequent in output."""
    return os.sep in value and os.path.exists(value)


def _list_forms(value: str) -> Iterator[str]:
    """The forms in which programs print a secret: plain, quoted, in JSON, in an address, and each of its lines."""
    forms = (value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe=""), *value.splitlines())
    return (form for form in forms if len(form) >= SHORTEST)
