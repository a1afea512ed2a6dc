"""Finds secrets in text and replaces them with ``***``: those beside a secret's name, and keys of well-known services.

The name before a value decides: ``api_key="VALUE"``, ``"token": "VALUE"``, ``HF_TOKEN=VALUE``, ``--password VALUE``,
``Authorization: Bearer VALUE``, ``scheme://user:VALUE@host``. A name is a secret's if its last words are among
:data:`NAMES`, in any case; ``-``, ``_``, ``.`` or a capital letter separates words, and a number at the end is ignored.
``wandb.api-key`` and ``apiKey2`` are names of secrets; ``tokenizer``, ``max_tokens`` and ``key_dim`` are not. Without a
name only a value with the prefix of a well-known service is masked, such as ``ghp_…``: hashes of kernels look random,
too. This file imports nothing of the package.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

MASK = "***"

NAMES = (
    *("key", "api-key", "apikey", "access-key", "secret-key", "private-key"),
    *("token", "bearer", "auth", "authorization", "cookie", "credential", "credentials", "signature", "sig"),
    *("password", "passwords", "passwd", "pwd", "pass", "passphrase", "passcode", "secret", "secrets"),
)
"""The last words of names of secrets."""

_SURE = re.compile(
    r"(?:password|passwd|passphrase|passcode|secret|apikey|(?:access|auth|secret|private)(?:key|token))s?$"
)
"""Endings that surely name a secret: they also count inside a longer word, as in ``PGPASSWORD``, and if the value is a
number."""

_DOUBTFUL = frozenset({"key", "signature", "sig", "pass", "auth", "bearer"})
"""Last words of names that often hold no secret in source code. After them a literal is masked only if it looks like a
secret."""

_ORDINARY = frozenset(
    {
        *("cache", "kernel", "graph", "hash", "sort", "group", "state", "dict", "pad", "eos", "bos", "unk", "mask"),
        *("sep", "cls", "image", "special", "start", "end", "stop", "next"),
    }
)
"""Words before ``key`` or ``token`` that show that it is a key of a table or a token of a vocabulary."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_SWITCH = re.compile(r"true|false|yes|no|on|off|none|null|auto|", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d_.,]*(?:e[-+]?\d+)?[kmgb]?|<[^<>]*>|\[[^\[\]]*\]", re.IGNORECASE)
"""A number, or a special token of a vocabulary, for example ``<pad>`` or ``[MASK]``."""

_PLACEHOLDER = re.compile(r"(?:\w+ )?\*\*\*|\$?\{[^{}]*\}|%(?:\(\w+\))?[sr]|\.\.\.|\$\w+")
_LIKE_A_KEY = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w+/=.~!@#$%^*:-]{8,}")
_SNAKE = re.compile(r"(?:[A-Za-z]+\d{0,3}|\d{1,4})(?:[_./](?:[A-Za-z]+\d{0,3}|\d{1,4}))+")
"""Words and numbers with an underscore, a dot or a slash between them, as in ``layers.0.attn`` and ``triton_poi_0``."""

_VARIABLE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
"""A variable or an attribute."""

PASSWORD = re.compile(r"""(?P<before>\w://[^\s/:@"'<>]*:)(?P<value>[^\s/"'<>]+)(?=@)""")
_USER = re.compile(r"""(?P<before>\bhttps?://)(?P<value>[^\s/:@"'<>]{16,})(?=@)""", re.IGNORECASE)
"""A token in an address in place of a user name, without a password."""

_QUERY = re.compile(r"""(?P<before>[?&](?P<name>[\w.-]+)=)(?P<value>[^&\s"'<>\\]+)""")
_HEADER = re.compile(
    r"""(?P<before>authorization(?:\\*["'])?\]?\s*(?:[:=]\s*(?:[bfr]{0,2}\\*["'])?(?:(?:bearer|basic|digest|token)\s+)?"""
    r"""|,\s*[bfr]{0,2}\\*["'](?:bearer|basic|digest|token)\s+))(?P<value>[^\s"',;<>()\\]+)"""
    r"""|(?P<bearer>\bbearer\s+)(?=\S*\d)[\w.~+/=-]{8,}""",
    re.IGNORECASE,
)

_SHAPES = (
    r"sk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and many that have their interface
    r"gh[pousr]_[A-Za-z0-9]{36,}",
    r"github_pat_\w{22,}",
    r"glpat-[\w-]{20,}",
    r"(?:hf|api_org)_[A-Za-z]{34,}",
    r"(?:hf|r8)_(?=[A-Za-z]*\d)[A-Za-z0-9]{30,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[\w-]{35}",
    r"ya29\.[\w-]{20,}",
    r"xox[abeoprs]-[\w-]{10,}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"nvapi-[\w-]{40,}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[\w-]{20,}",
    r"dapi[0-9a-f]{32}(?![0-9a-f])",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",
    r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*",  # JSON Web Tokens
)
_SHAPE = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})")
_SHAPE_BEGINS = (
    *("sk-", "sk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "api_org_", "r8_"),
    *("AKIA", "ASIA", "ABIA", "ACCA", "AIza", "ya29.", "xox", "nvapi-", "gsk_", "npm_", "pypi-AgE", "dapi", "SG."),
    "eyJ",
)
_LONG = 100_000
"""In texts with more characters than this, one pattern for each first letter is faster than a search for each
beginning."""

_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)

_LAST_WORDS = tuple(sorted({name.rpartition("-")[2] for name in NAMES}, key=len, reverse=True))
_MARKS = ("=", ":", ",", "--", "earer", "EARER")
"""What stands between a name and its value."""
_QUOTE = r"\\*[\"']|&(?:#34|#39|#x27|quot|apos);"
_TYPE = r"\s*:\s*[A-Za-z_][\w.\[\] |]*?(?=\s+=\s|=[\"'])"
_NAMED = (
    r"(?P<last>{words})[\d_]*(?P<named>{quote})?(?:\s*\])?"
    r"(?P<separator>(?:{type})?\s*(?::=|[=!]=|=>|=|:)\s*|\s*,(?:[^\"'\n]*\bdefault\s*=)?\s*|(?<=\w)[ ]+)"
)
"""The last word of a name, and what stands between it and a value."""

_LITERAL = re.compile(
    rf"(?:\(|\\\n)?\s*[rbfu]{{0,2}}(?P<quote>\"\"\"|\'\'\'|{_QUOTE})(?P<value>(?:\\.|[^\\\n])*?)(?:(?P<end>(?P=quote))|$|(?=\n))",
    re.IGNORECASE,
)
_JOINED, _LISTED = re.compile(r"\s*\+?\s*"), re.compile(r"\s*[+,]?\s*")
_STRING = re.compile(r"""["'](?P<value>[^"'\n]*)["']""")
_BARE = re.compile(r"""[^\s"'<>,;()\[\]{}&|\\]{6,}""")
_NAME_BEFORE = re.compile(r"[\w.-]*\Z")
_NEXT_ARGUMENT = re.compile(r",\s*\w+\s*=|\n")

_LONGEST_NAME = 80
_LONGEST_VALUE = 300
"""The number of characters after a name within which a literal belongs to it, as the default in ``token = get("NAME",
"VALUE")``."""


def split_into_words(name: str) -> list[str]:
    """Returns the words of a name, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def _end_in(words: list[str], name: str) -> bool:
    wanted = split_into_words(name)
    return words[-len(wanted) :] == wanted


def is_secret(name: str, value: str, asked: Sequence[str] = ()) -> bool:
    """Whether the value after a name is a secret. ``asked`` are further names whose values are all secrets."""
    words = split_into_words(name)
    if any(_end_in(words, one) for one in asked):
        return value != ""
    while words and words[-1].isdigit():
        words.pop()
    if not words or _SWITCH.fullmatch(value):
        return False
    sure = _SURE.search(words[-1]) is not None
    return sure or (any(_end_in(words, known) for known in NAMES) and not _NUMBER.fullmatch(value))


def mask_literals(text: str, asked: Sequence[str] = ()) -> str:
    """Returns the text without secrets next to a secret's name, and without keys of well-known services.

    A second pass changes nothing.

    Args:
        text: source lines, output, or a whole file.
        asked: further names of secrets.
    """
    text = mask_keys(text)
    if "?" in text:
        text = _QUERY.sub(lambda match: mask_pair(match, asked), text)
    if not any(mark in text for mark in _MARKS):  # a cheap test, because lines are masked while the program is timed
        return text
    lower = text.lower()
    if "authorization" in lower or "bearer" in lower:
        text = _HEADER.sub(lambda match: f"{match['before'] or match['bearer']}{MASK}", text)
        lower = text.lower()
    last = (*_LAST_WORDS, *(split_into_words(one)[-1] for one in asked)) if asked else _LAST_WORDS
    return _mask_named(text, asked, _find_names(text, lower, last))


def mask_keys(text: str) -> str:
    """Returns the text without keys of well-known services, private keys, and passwords in addresses."""
    if _may_hold_a_key(text):
        text = _SHAPE.sub(MASK, text)
    if "PRIVATE KEY-----" in text:
        text = _PEM.sub(rf"\1{MASK}", text)
    if "://" in text and "@" in text:
        for pattern in (PASSWORD, _USER):
            text = pattern.sub(rf"\g<before>{MASK}", text)
    return text


def _may_hold_a_key(text: str) -> bool:
    """Whether a key of a well-known service may begin in the text: a cheap test, twice as fast by first letter in long
    texts."""
    if len(text) < _LONG:
        return any(begin in text for begin in _SHAPE_BEGINS)
    return any(begins.search(text) for begins in _begins_by_letter())


@functools.cache
def _begins_by_letter() -> list[re.Pattern[str]]:
    rest: dict[str, list[str]] = {}
    for begin in _SHAPE_BEGINS:
        rest.setdefault(begin[0], []).append(re.escape(begin[1:]))
    return [re.compile(f"{letter}(?:{'|'.join(ends)})") for letter, ends in rest.items()]


def mask_pair(match: re.Match[str], asked: Sequence[str]) -> str:
    """Returns the text of a matched name and its ``value``, which is masked if it is a secret; see
    :func:`is_secret`."""
    return match["before"] + (MASK if is_secret(match["name"], match["value"], asked) else match["value"])


@functools.lru_cache(maxsize=8)
def _make_pattern(last: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(map(re.escape, last))
    return re.compile(_NAMED.format(words=words, quote=_QUOTE, type=_TYPE), re.IGNORECASE)


@functools.lru_cache(maxsize=8)
def _list_beginnings(words: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the words that do not begin with another one.

    Every place of another word is also a place of one of these.
    """
    return tuple(one for one in words if not any(one.startswith(other) for other in words if other != one))


def _find_names(text: str, lower: str, last: tuple[str, ...]) -> Iterator[re.Match[str]]:
    """The ends of names, and what stands between them and their values, in order."""
    pattern = _make_pattern(last)
    if len(lower) != len(text):
        return pattern.finditer(text)
    places = set()  # ten times as fast as a search by the pattern
    for word in _list_beginnings(last):
        place = lower.find(word)
        while place >= 0:
            places.add(place)
            place = lower.find(word, place + 1)
    return filter(None, (pattern.match(text, place) for place in sorted(places)))


def _mask_named(text: str, asked: Sequence[str], names: Iterable[re.Match[str]]) -> str:
    parts, done = [], 0
    for match in names:
        if match.start() >= done:
            for begin, end in _find_secrets_after(text, match, asked):
                parts += [text[done:begin], MASK]
                done = end
    return "".join([*parts, text[done:]])


def _find_secrets_after(text: str, match: re.Match[str], asked: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Returns the places of the secrets next to a name."""
    before = _NAME_BEFORE.search(text, max(0, match.start() - _LONGEST_NAME), match.start())
    name = (before[0] if before else "") + match["last"]
    doubt = _judge_doubt(name, asked)
    if doubt is None:
        return
    separator = match["separator"].strip()
    literal = _LITERAL.match(text, match.end()) if separator else None
    if literal is not None and separator.startswith(","):
        if match["named"] is not None and _is_second(literal["value"], doubt):
            yield literal.span("value")
    elif literal is not None:
        yield from _find_quoted_secret(text, literal, name, doubt, asked)
    elif not separator.startswith(",") and (not doubt or name.startswith("--")):
        yield from _find_unquoted_secret(text, match.end(), name, separator)


def _judge_doubt(name: str, asked: Sequence[str]) -> bool | None:
    """Whether the value after a name must look like a key to be a secret; ``None`` if it is no secret."""
    words = split_into_words(name)
    if any(_end_in(words, one) for one in asked):
        return False
    while words and words[-1].isdigit():
        words.pop()
    if not is_secret(name, "x1") or (len(words) > 1 and words[-2] in _ORDINARY):
        return None
    return words[-1] in _DOUBTFUL and _SURE.search("".join(words[-2:])) is None


def _find_quoted_secret(
    text: str, literal: re.Match[str] | None, name: str, doubt: bool, asked: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Finds the secrets in a literal after ``NAME=``, and in literals that are joined to it or share its brackets."""
    is_tuple = literal is not None and literal[0].startswith("(")
    doubt = doubt and not (is_tuple and split_into_words(name)[-1] == "auth")
    while literal is not None:
        value = literal["value"]
        is_hidden = is_secret(name, value, asked) and not _PLACEHOLDER.fullmatch(value)
        if is_hidden and (not doubt or _is_like_a_key(value)):
            yield literal.span("value")
        joint = (_LISTED if is_tuple else _JOINED).match(text, literal.end())
        literal = _LITERAL.match(text, joint.end()) if literal["end"] and joint else None


def _is_like_a_key(value: str) -> bool:
    return _LIKE_A_KEY.fullmatch(value) is not None and _SNAKE.fullmatch(value) is None


def _is_second(value: str, doubt: bool) -> bool:
    """Whether the second of two literals is the secret that the first one names, as in ``("HF_TOKEN", "VALUE")``."""
    if _is_like_a_key(value):
        return True
    return not doubt and len(value) >= 6 and not re.fullmatch(r"[A-Za-z_-]+", value)


def _find_unquoted_secret(text: str, place: int, name: str, separator: str) -> Iterator[tuple[int, int]]:
    """The secret after ``NAME=``, ``NAME:`` or ``--NAME``, or the literals of the expression there."""
    is_option = name.startswith("--")
    bare = _BARE.match(text, place) if separator or is_option else None
    is_text = is_option or separator == ":" or name.isupper()
    if bare is not None and _LIKE_A_KEY.fullmatch(bare[0]) and (is_text or not _VARIABLE.fullmatch(bare[0])):
        yield bare.span()
        return
    if separator:
        end = min(len(text), place + _LONGEST_VALUE)
        stop = _NEXT_ARGUMENT.search(text, place, end)
        for string in _STRING.finditer(text, place, stop.start() if stop else end):
            if _is_like_a_key(string["value"]):
                yield string.span("value")
