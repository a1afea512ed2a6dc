"""A model with its inputs, and what all libraries of models share."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inductor_bench.errors import InductorBenchError

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


def library(name: str) -> Any:
    """A library of models, or a module of it.

    Raises:
        InductorBenchError: the library is not installed, or its import fails.
    """
    root = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(root, error) from error
    except BROKEN as error:
        raise broken(root, error) from error


def _missing(library: str, error: ModuleNotFoundError) -> InductorBenchError:
    if error.name != library:
        return broken(library, error)
    extra = "torchvision" if library == "torchvision" else f"'inductor-bench[{library}]'"
    return InductorBenchError(f"{library} is not installed", f"pip install {extra}")


def broken(library: str, error: BaseException) -> InductorBenchError:
    """The error of a library that is installed and does not load."""
    first = (str(error).splitlines() or [""])[0]
    hint = (
        "install versions that go together"
        if library == "transformers"
        else "install a torchvision that matches this torch"
    )
    return InductorBenchError(f"{library} is installed but broken: {type(error).__name__}: {first}", hint)
