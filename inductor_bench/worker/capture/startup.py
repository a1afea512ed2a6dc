"""The code that runs at the start of every Python process of a captured program.

It is quick, imports neither torch nor its compiler, and waits until the program imports them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ...messages.observed import CAPTURE_FOLDER, EAGER, MODE, NOTHING, OBSERVE, PINS, PYTHON_STARTED, VARIANTS

CODE_CACHE = "torch._inductor.codecache"
COMPILER = "torch._inductor.async_compile"
AUTOTUNERS = "torch._inductor.runtime.triton_heuristics"
LOWERINGS = "torch._inductor.lowering"
GRAPH_COMPILER = "torch._inductor.compile_fx"
PROVENANCE = "torch._inductor.debug"
TRITON_KERNELS = "torch._inductor.codegen.triton"
EAGER_COMPILER = "torch._dynamo"
"""A module that ``torch.compile`` imports even if it compiles nothing."""

TORCH = "torch"
DYNAMO_CALLBACK = "torch._dynamo.callback"
DYNAMO_CONFIG = "torch._dynamo.config"
LOADERS = "torch.utils.data.dataloader"
VECTORS = "torch._inductor.cpu_vec_isa"

Then = Callable[[ModuleType], None]


def install() -> None:
    """Waits for the import of torch's compiler, and leaves a note that Python ran."""
    folder = os.environ.get(CAPTURE_FOLDER)
    if not folder:
        return
    with contextlib.suppress(OSError):
        open(os.path.join(folder, PYTHON_STARTED), "w").close()
    if sys.dont_write_bytecode and not sys.pycache_prefix:
        with contextlib.suppress(Exception):  # a start without bytecode is only slower
            from ..fast_start import keep_bytecode

            keep_bytecode()
    waiting: dict[str, Then] = {VECTORS: _remember_vectors}
    if os.environ.get(MODE):
        waiting[TORCH] = _set_mode
    if os.environ.get(VARIANTS):
        waiting.update({TORCH: _try_variants, DYNAMO_CONFIG: _change_dynamo, LOADERS: _change_loaders})
    if os.environ.get(PINS):
        waiting.update({COMPILER: _pin_sources, AUTOTUNERS: _pin_triton_kernels})
        waiting.update({LOWERINGS: _pin_calls, GRAPH_COMPILER: _retry_without_pins})
    if os.environ.get(EAGER):
        waiting[EAGER_COMPILER] = _observe_eager
    else:
        waiting[CODE_CACHE] = _watch_code_cache
        if os.environ.get(PINS) or os.environ.get(OBSERVE) != NOTHING:
            waiting.update({PROVENANCE: _note_layers, TRITON_KERNELS: _note_all_nodes})
    if not any(os.environ.get(name) for name in (MODE, PINS, EAGER, OBSERVE, VARIANTS)):
        waiting.update({TORCH: _observe_uncompiled, DYNAMO_CALLBACK: _hear_compilations})
    for name in [name for name in waiting if name in sys.modules]:
        waiting.pop(name)(sys.modules[name])
    if waiting:
        sys.meta_path.insert(0, _AfterImport(waiting))


def _observe_uncompiled(torch: ModuleType) -> None:
    from .uncompiled import observe_uncompiled

    observe_uncompiled(torch)


def _hear_compilations(_: ModuleType) -> None:
    from .uncompiled import hear_compilations

    hear_compilations()


def _set_mode(torch: ModuleType) -> None:
    from .mode_setter import install as install_mode

    install_mode(torch)


def _try_variants(torch: ModuleType) -> None:
    from .variants.process_variants import install as install_variants

    install_variants(torch)


def _change_dynamo(config: ModuleType) -> None:
    from .variants.process_variants import change_dynamo

    change_dynamo(config)


def _change_loaders(module: ModuleType) -> None:
    from .variants.process_variants import change_loaders

    change_loaders(module)


def _remember_vectors(cpu_vec_isa: ModuleType) -> None:
    from ..upstream.inductor import remember_vectors

    with contextlib.suppress(AttributeError, KeyError):  # then torch asks in each process
        remember_vectors(cpu_vec_isa)


def _watch_code_cache(codecache: ModuleType) -> None:
    from ..upstream.graph_variants import key_by_attention

    with contextlib.suppress(AttributeError):  # a torch without these keys
        key_by_attention(codecache)
    if os.environ.get(OBSERVE) != NOTHING:
        from .observation import observe

        observe(codecache)
    if os.environ.get(PINS):
        from .pinned import try_pinning

        try_pinning(lambda pinned: pinned.adjust_caches(codecache))
        try_pinning(lambda pinned: pinned.adjust_modules(codecache))


def _note_layers(debug: ModuleType) -> None:
    from ..upstream.node_layers import note_layers

    note_layers(debug)


def _note_all_nodes(triton: ModuleType) -> None:
    from ..upstream.node_layers import note_all_nodes

    note_all_nodes(triton)


def _observe_eager(_: ModuleType) -> None:
    from .observation import observe_eager

    observe_eager()


def _pin_sources(_: ModuleType) -> None:
    from .pinned import try_pinning

    try_pinning(lambda pinned: pinned.adjust_cpp())
    try_pinning(lambda pinned: pinned.adjust_sources())


def _pin_triton_kernels(_: ModuleType) -> None:
    from .pinned import try_pinning

    try_pinning(lambda pinned: pinned.adjust_triton())


def _pin_calls(_: ModuleType) -> None:
    from .pinned import try_pinning

    try_pinning(lambda pinned: pinned.adjust_calls(importlib.import_module(CODE_CACHE)))


def _retry_without_pins(compile_fx: ModuleType) -> None:
    from .pinned import try_pinning

    try_pinning(lambda pinned: pinned.adjust_compilation(compile_fx))


class _AfterImport:
    """A finder that calls a function after the import of each of these modules. Other finders find the modules."""

    def __init__(self, waiting: dict[str, Then]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        then = self._waiting.pop(name, None)
        if then is None:
            return None
        if not self._waiting:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_go_on(module: ModuleType) -> None:
            execute(module)
            then(module)

        spec.loader.exec_module = execute_and_go_on  # type: ignore[method-assign]
        return spec
