"""Imports without the garbage collector."""

from __future__ import annotations

import gc

import pytest

from inductor_bench.worker.fast_start import without_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_then_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ImportError), without_collection():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
