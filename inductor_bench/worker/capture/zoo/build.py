"""The named model of a library. Nothing is fetched: a name that stands for files elsewhere is refused."""

from __future__ import annotations

import importlib

from inductor_bench.records.model_sources import LIBRARIES
from inductor_bench.worker.capture.zoo.example import DownloadNeededError, Example


def build_model(source: str, name: str, batch_size: int, training: bool) -> Example:
    """The named model of a library.

    Raises:
        InductorBenchError: the library or the model is not there, the model has to be downloaded, or its inputs are of
            a kind that is not known here.
    """
    if ":" in name or (source == "transformers" and "/" in name):
        raise DownloadNeededError(
            f"{name} has to be downloaded, and nothing is fetched", "write a factory that builds it: FILE.py:FACTORY"
        )
    example: Example = importlib.import_module(LIBRARIES[source].builder).build(name, batch_size, training)
    return example
