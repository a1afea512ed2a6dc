"""What counts as the compilation of a graph: backward graphs, too, which torch compiles when they are first called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from inductor_bench.worker.upstream.graph_variants import around_backend, around_compilations  # noqa: E402


def test_a_backward_graph_counts_though_it_is_compiled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    seen: list[str] = []

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        seen.append("begins")
        yield
        seen.append("ends")

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            with around_compilations(noted):
                return original(*arguments, **keywords)

        return call

    kind = torch._TorchCompileInductorWrapper
    monkeypatch.setattr(kind, "__call__", kind.__call__)  # is put back afterwards
    around_backend(watched)
    values = torch.randn(64, requires_grad=True)
    with config.patch(force_disable_caches=True):
        loss = torch.compile(lambda values: (values.sin() * values).sum())(values)
        assert seen == ["begins", "ends"]
        loss.backward()
    assert seen == ["begins", "ends"] * 2
