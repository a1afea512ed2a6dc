"""The base of all requests, and their form on the wire: a JSON object with the name of the request's class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, get_args

from ..errors import InductorBenchError
from ..store.formats import codec

Answer = TypeVar("Answer")
TAG = "do"


class Request(Generic[Answer]):
    """What a worker is asked. A subclass is a dataclass and names the type of its answer: ``Load(Request[Facts])``.

    Attributes:
        answer_type: that type, by which the answer is decoded.
    """

    answer_type: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.answer_type,) = get_args(base)


def encode_request(request: Request[Any]) -> dict[str, Any]:
    """A request as plain JSON data."""
    return {TAG: type(request).__name__, **codec.encode(request)}


def by_name(kinds: Iterable[type[Request[Any]]]) -> dict[str, type[Request[Any]]]:
    """The table that :func:`decode_request` reads."""
    return {kind.__name__: kind for kind in kinds}


def decode_request(data: Any, kinds: Mapping[str, type[Request[Any]]]) -> Request[Any]:
    """The request that :func:`encode_request` encoded.

    Raises:
        InductorBenchError: it is none of ``kinds``, or its fields do not fit.
    """
    name = data.get(TAG) if isinstance(data, dict) else None
    kind = kinds.get(str(name))
    if kind is None:
        raise InductorBenchError(f"the worker knows no request {name}")
    return codec.decode(kind, data)


def decode_answer(request: Request[Answer], data: Any) -> Answer:
    """The answer to a request, from plain JSON data.

    Raises:
        InductorBenchError: it is no such answer.
    """
    answer: Answer = codec.decode(request.answer_type, data)
    return answer
