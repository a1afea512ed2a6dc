"""The base class of all requests, and their encoding: a JSON object with the name of the request's class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, get_args

from ..errors import InductorBenchError
from ..store import codec

Answer = TypeVar("Answer")
TAG = "do"


class WorkerRequest(Generic[Answer]):
    """A request to a worker. A subclass is a dataclass and names the type of its answer: ``Load(Request[Facts])``.

    Attributes:
        answer_type: the type of the answer, which is used to decode it.
    """

    answer_type: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.answer_type,) = get_args(base)


def encode_request(request: WorkerRequest[Any]) -> dict[str, Any]:
    """Encodes a request as plain JSON data."""
    return {TAG: type(request).__name__, **codec.encode(request)}


def by_name(kinds: Iterable[type[WorkerRequest[Any]]]) -> dict[str, type[WorkerRequest[Any]]]:
    """Returns the table of request classes that :func:`decode_request` uses."""
    return {kind.__name__: kind for kind in kinds}


def decode_request(data: Any, kinds: Mapping[str, type[WorkerRequest[Any]]]) -> WorkerRequest[Any]:
    """Decodes the output of :func:`encode_request`.

    Raises:
        InductorBenchError: the request is none of ``kinds``, or its fields are invalid.
    """
    name = data.get(TAG) if isinstance(data, dict) else None
    kind = kinds.get(str(name))
    if kind is None:
        raise InductorBenchError(f"the worker knows no request {name}")
    return codec.decode(kind, data)


def decode_answer(request: WorkerRequest[Answer], data: Any) -> Answer:
    """Decodes the answer to a request from plain JSON data.

    Raises:
        InductorBenchError: the data is no answer to the request.
    """
    answer: Answer = codec.decode(request.answer_type, data)
    return answer
