"""A model with its inputs, and what all libraries of models share."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....errors import InductorBenchError
from ....records.model_sources import LIBRARIES

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any], Any]

BROKEN = (ImportError, RuntimeError, AttributeError, OSError, TypeError, ValueError, SyntaxError)
"""Exceptions with which a library of another version fails to load."""


class DownloadNeededError(InductorBenchError):
    """The model needs a download, and downloads are forbidden."""


@dataclass
class Example:
    """A model and its inputs. ``loss`` computes a scalar from its output; ``None`` stands for the sum of the means."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None


def cross_entropy(labels: torch.Tensor) -> Loss:
    """The loss of a classifier with these labels."""
    import torch

    def loss(output: Any) -> Any:
        logits = output[0] if isinstance(output, tuple | list) else output
        return torch.nn.functional.cross_entropy(logits.float(), labels.to(logits.device))

    return loss


def unknown(library: str, name: str, known: Iterable[str]) -> InductorBenchError:
    """The error of a name that the library does not have, with near names."""
    near = ", ".join(difflib.get_close_matches(name, list(known), n=5))
    return InductorBenchError(f"{library} has no model {name}", f"near names: {near}" if near else "")


def library(kind: str, module: str = "") -> Any:
    """A library of models, by its kind in ``records.model_sources``, or a module of it.

    Raises:
        InductorBenchError: the library is not installed, or its import fails.
    """
    name = module or kind
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            raise InductorBenchError(f"{kind} is not installed", LIBRARIES[kind].install) from error
        raise broken(kind, error) from error
    except BROKEN as error:
        raise broken(kind, error) from error


def broken(kind: str, error: BaseException) -> InductorBenchError:
    """The error of a library that is installed and fails to load; what it says about the cause leads to the hint."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = (str(error).splitlines() or [""])[0]
    return InductorBenchError(f"{kind} is installed but broken: {type(error).__name__}: {first}")


# Builds a named model of a library. It downloads nothing: a name that needs a download raises an error.


def build_model(source: str, name: str, batch_size: int, training: bool) -> Example:
    """Builds a named model.

    Args:
        source: the library, by its prefix in ``records.model_sources``.
        name: the name of the model in the library.
        batch_size: the batch size of the inputs.
        training: whether the inputs include labels.

    Raises:
        InductorBenchError: the library or the model is missing, the model needs a download, or the kind of its inputs
            is unknown.
    """
    row = LIBRARIES[source]
    if any(mark in name for mark in row.download_marks):
        raise DownloadNeededError(
            f"{name} has to be downloaded, and nothing is fetched", "write a factory that builds it: FILE.py:FACTORY"
        )
    example: Example = importlib.import_module(row.builder).build(name, batch_size, training)
    return example
