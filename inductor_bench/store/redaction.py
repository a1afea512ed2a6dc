"""Finds secrets in commands, environments and output, and replaces them with ``***``.

A RUN is made to be shared, so that none of its files may hold a key, a token or a password of the program. The name
before a value decides: ``--api-key VALUE``, ``--hf_token=VALUE``, ``API_KEY=VALUE``, ``"token": "VALUE"``. A name is a
secret's if its last words are among :data:`NAMES`, in any case; ``-``, ``_``, ``.`` or a capital letter separates
words, and a number at the end is ignored. ``--wandb.api-key`` and ``apiKey2`` are names of secrets; ``--tokenizer``,
``--max-tokens``, ``--key-dim``, ``--author`` and ``--monkey`` are not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from urllib.parse import quote

from ..errors import UsageError
from ..records.base import Failure
from ..records.batch import Batch
from ..records.evidence import CallPlace, Evidence, StepEvidence
from ..records.run import Run

MASK = "***"
OPTION = "--redact"
VARIABLE = "INDUCTOR_BENCH_REDACT"
"""Environment variable: further names of secrets, separated by commas, as with ``--redact``."""

NAMES = (
    *("key", "api-key", "apikey", "access-key", "secret-key", "private-key"),
    *("token", "bearer", "auth", "authorization", "cookie", "credential", "credentials", "signature", "sig"),
    *("password", "passwords", "passwd", "pwd", "pass", "passphrase", "passcode", "secret", "secrets"),
)
"""The last words of names of secrets."""

SHORTEST = 6
"""Minimum length of a value that is searched in text; a shorter value would match ordinary words."""

_SURE = re.compile(
    r"(?:password|passwd|passphrase|passcode|secret|apikey|(?:access|auth|secret|private)(?:key|token))s?$"
)
"""Certain ends of a last word: they count inside a longer word too, as in ``PGPASSWORD``, and for a number as value."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_NAMED = re.compile(r"(?:--?|\+{1,2})?(?P<name>[^\W\d][\w./@-]*)(?:(?:=|:\s+)(?P<value>.*))?", re.DOTALL)
_PAIR = re.compile(r"""(?P<before>(["'])(?P<name>[\w. -]+)\2\s*:\s*(["']))(?P<value>.*?)(?=\4)""", re.DOTALL)
_SWITCH = re.compile(r"true|false|yes|no|on|off|none|null|auto|", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d_.,]*(?:e[-+]?\d+)?[kmgb]?|<[^<>]*>|\[[^\[\]]*\]", re.IGNORECASE)
"""A number, or a special token of a vocabulary, for example ``<pad>`` or ``[MASK]``."""

_PASSWORD = re.compile(r"""(?P<before>\w://[^\s/:@"'<>]*:)(?P<value>[^\s/"'<>]+)(?=@)""")
_USER = re.compile(r"""(?P<before>\bhttps?://)(?P<value>[^\s/:@"'<>]{16,})(?=@)""", re.IGNORECASE)
"""A token in an address in place of a user name, without a password."""

_QUERY = re.compile(r"""(?P<before>[?&](?P<name>[\w.-]+)=)(?P<value>[^&\s"'<>]+)""")
_HEADER = re.compile(
    r"""(?P<before>authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|digest|token)\s+)?)(?P<value>[^\s"',;<>]+)"""
    r"""|(?P<bearer>\bbearer\s+)(?=\S*\d)[\w.~+/=-]{8,}""",
    re.IGNORECASE,
)


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
            if not _parts(name):
                raise UsageError(f"{OPTION} {name!r} names nothing", "give an option's or a variable's name")
        named = (name for name in environment.get(VARIABLE, "").split(",") if _parts(name))
        bare = cls(tuple(dict.fromkeys([*names, *named])))
        found = [value for words in commands for value in bare._values_of(words)]
        for name, value in environment.items():
            found += [value] if bare._hides(name, value) else []
            found += [match["value"] for match in _PASSWORD.finditer(value)]
        forms = {form for value in found if not _is_path(value) for form in _forms(value)}
        return replace(bare, values=tuple(sorted(forms, key=lambda form: (-len(form), form))))

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that give the names to other processes."""
        return {VARIABLE: ",".join(self.names)} if self.names else {}

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words of a command without its secrets of any length."""
        return tuple(
            self.text(self._without_pairs(before)) + (MASK if secret else "") for before, secret in self._split(words)
        )

    def text(self, text: str) -> str:
        """The text without the known secrets, passwords in addresses, and secrets in headers."""
        for value in self.values:
            text = text.replace(value, MASK)
        if "://" in text:  # a cheap test before the patterns, because lines are redacted while the program is timed
            for pattern in (_PASSWORD, _USER) if "@" in text else ():
                text = pattern.sub(rf"\g<before>{MASK}", text)
            text = _QUERY.sub(self._masked, text)
        lower = text.lower()
        if "authorization" in lower or "bearer" in lower:
            text = _HEADER.sub(lambda match: f"{match['before'] or match['bearer']}{MASK}", text)
        return text

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
        return replace(
            run,
            command=self.text(run.command),
            target=self.text(run.target),
            title=self.text(run.title),
            request=request,
            capture=replace(run.capture, graph_breaks=breaks, recompiles=recompiles, functions=functions),
            modules=tuple(replace(one, notes=tuple(map(self.text, one.notes))) for one in run.modules),
            failures=tuple(map(self.failure, run.failures)),
            retunes=tuple(
                replace(one, failure=self.failure(one.failure)) if one.failure else one for one in run.retunes
            ),
        )

    def evidence(self, evidence: Evidence) -> Evidence:
        """The evidence without secrets in what a process said, and in lines of the program."""
        modules = (replace(one, source_path=self.text(one.source_path)) for one in evidence.modules)
        return replace(evidence, modules=tuple(modules), processes=tuple(map(self._steps, evidence.processes)))

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
            samples=samples,
        )
        return replace(found, steps=steps, places=tuple(map(self._call_place, found.places)))

    def _call_place(self, place: CallPlace) -> CallPlace:
        if place.source is None:
            return place
        return replace(place, source=replace(place.source, code=self.text(place.source.code)))

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
            yield from (match["value"] for match in _PASSWORD.finditer(before))

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
        return _PAIR.sub(self._masked, word)

    def _masked(self, match: re.Match[str]) -> str:
        return match["before"] + (MASK if self._hides(match["name"], match["value"]) else match["value"])

    def _hides(self, name: str, value: str) -> bool:
        """Whether the value after a name is a secret."""
        parts = _parts(name)
        if any(_end_in(parts, asked) for asked in self.names):
            return value != ""
        while parts and parts[-1].isdigit():
            parts.pop()
        if not parts or _SWITCH.fullmatch(value):
            return False
        sure = _SURE.search(parts[-1]) is not None
        return sure or (any(_end_in(parts, known) for known in NAMES) and not _NUMBER.fullmatch(value))


def _parts(name: str) -> list[str]:
    """The words of a name, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def _end_in(parts: list[str], name: str) -> bool:
    wanted = _parts(name)
    return parts[-len(wanted) :] == wanted


def asked_for(words: Sequence[str]) -> tuple[str, ...]:
    """The names after ``--redact`` in this tool's own command line, before the command line is parsed."""
    own = [part for word in takewhile(lambda word: word != "--", words) for part in word.split("=", 1)]
    return tuple(name for word, name in pairwise(own) if word == OPTION and _parts(name))


def _is_path(value: str) -> bool:
    """Whether a value is the path of a file, as after ``--key``: no secret, and frequent in output."""
    return os.sep in value and os.path.exists(value)


def _forms(value: str) -> Iterator[str]:
    """The forms in which programs print a secret: plain, quoted, in JSON, in an address, and each of its lines."""
    forms = (value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe=""), *value.splitlines())
    return (form for form in forms if len(form) >= SHORTEST)
