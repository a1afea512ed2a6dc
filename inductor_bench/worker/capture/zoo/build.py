"""Builds a named model of a library. It downloads nothing: a name that needs a download raises an error."""

from __future__ import annotations

import importlib

from inductor_bench.records.model_sources import LIBRARIES
from inductor_bench.worker.capture.zoo.example import DownloadNeededError, Example


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
