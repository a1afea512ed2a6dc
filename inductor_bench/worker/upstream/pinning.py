"""Puts configurations into Inductor's kernels through private names of torch.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...records.retune import Config
from ...source.calls import lookup_key, types_text

COMPILE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
Adjust = Callable[[Any], None]
Precompile = Callable[[Any, Callable[[], None]], None]
CppCompile = Callable[[Any, list[str], str], Any]


def adjust_autotuners(made: Adjust, precompile: Precompile) -> None:
    """Calls ``made`` with each new ``CachingAutotuner``, and ``precompile`` instead of its compilation.

    ``precompile`` gets the autotuner and the original. It is not called in a compile worker, whose results have no
    launchers; there a failure of the adjusted configurations is repeated with ``autotuner.configs`` as ``made`` left
    them in ``fallback_configs``. (2.11, 2.13)
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    create: Callable[..., None] = CachingAutotuner.__init__
    compile_here: Callable[..., None] = CachingAutotuner.precompile
    compile_all: Callable[..., None] = CachingAutotuner._precompile_worker

    @functools.wraps(create)
    def initialise(self: Any, *arguments: Any, **keywords: Any) -> None:
        create(self, *arguments, **keywords)
        made(self)

    @functools.wraps(compile_here)
    def compile_and_launch(self: Any, warm_cache_only: bool = False, *arguments: Any, **keywords: Any) -> None:
        def original() -> None:
            compile_here(self, warm_cache_only, *arguments, **keywords)

        if warm_cache_only:
            original()
        else:
            precompile(self, original)

    @functools.wraps(compile_all)
    def compile_results(self: Any) -> None:
        spare = vars(self).pop(FALLBACK, None)
        if spare is None or self.compile_results:
            compile_all(self)
            return
        try:
            compile_all(self)
        except RuntimeError:
            self.configs = spare
            compile_all(self)

    setattr(CachingAutotuner, "__init__", initialise)  # noqa: B010
    setattr(CachingAutotuner, "precompile", compile_and_launch)  # noqa: B010
    setattr(CachingAutotuner, "_precompile_worker", compile_results)  # noqa: B010


FALLBACK = "inductor_bench_fallback_configs"
"""Attribute of an autotuner: the configurations to compile if those of ``configs`` do not compile."""


def kernel_key(autotuner: Any) -> tuple[str, str]:
    """The key and the types of a kernel; see ``source.calls``. (2.11, 2.13)"""
    key = lookup_key(str(autotuner.size_hints), autotuner.fn.src)
    return key, types_text({str(name): str(kind) for name, kind in autotuner.triton_meta["signature"].items()})


def values_of(config: Any) -> Config:
    """The constants of a Triton configuration that are numbers or flags, and its numbers of warps and stages."""
    numbers = {name: int(value) for name, value in config.kwargs.items() if isinstance(value, int)}
    return {**numbers, "num_warps": config.num_warps, "num_stages": config.num_stages}


def with_values(config: Any, values: Config) -> Any:
    """A copy of a Triton configuration with other values, from which Inductor searches no further."""
    changed = copy.deepcopy(config)
    launch = {name: values[name] for name in ("num_warps", "num_stages") if name in values}
    changed.kwargs.update({name: value for name, value in values.items() if name not in launch})
    for name, value in launch.items():
        setattr(changed, name, value)
    settle(changed)
    return changed


def settle(config: Any) -> None:
    """Marks a configuration, so that neither coordinate descent nor another search begins from it. (2.11, 2.13)

    A configuration from a compile worker has lost its marks, which its pickled form lacks. (Triton 3.6)
    """
    config.found_by_coordesc = config.found_by_combo_autotune = True


def _searches(autotuner: Any) -> bool:
    """Whether Inductor goes on searching from the kernel's best configuration. (2.11, 2.13)"""
    return any(autotuner.inductor_meta.get(name) for name in ("coordinate_descent_tuning", "combo_tuning_groups"))


def compile_launcher(autotuner: Any, config: Any) -> Any:
    """Compiles a configuration in this process; returns its launcher. (2.11, 2.13)"""
    if autotuner.fn.fn is None:  # it was compiled in another process
        autotuner.fn = autotuner._reload_kernel().fn
    return launcher_of(autotuner, autotuner._precompile_config(config))


def launcher_of(autotuner: Any, result: Any) -> Any:
    """The launcher of a compiled configuration, on the kernel's device. (2.11, 2.13)"""
    from torch._dynamo.device_interface import DeviceGuard

    with DeviceGuard(autotuner.get_device_interface(), autotuner.triton_meta["device"]):
        return result.make_launcher()


def launchers_with(autotuner: Any, values: Config) -> list[Any]:
    """The launchers of a kernel with these values; several differ in other constants. (2.11, 2.13)"""
    return [launcher for launcher in autotuner.launchers if values_of(launcher.config) == values]


def find_launcher(autotuner: Any, values: Config, *, keep: bool) -> Any:
    """The launcher of a configuration, which is compiled if the kernel has none. (2.11, 2.13)

    With ``keep``, Inductor keeps the kernel's own launchers. It may search from one of them, or unload those that it
    does not choose (2.13). Then another launcher is compiled.
    """
    found = launchers_with(autotuner, values)
    if not found or (keep and (_searches(autotuner) or len(autotuner.launchers) > 1)):
        base = (found or autotuner.launchers)[0].config
        return compile_launcher(autotuner, with_values(base, values))
    return found[0]


def use_configs(namespace: Mapping[str, Any], wanted: Mapping[str, Config]) -> None:
    """Makes the Triton kernels of a loaded module run in these configurations, whatever Inductor would choose.

    A kernel in whose configuration it does not compile here keeps its own. If several of its launchers have these
    values, they differ in other constants, and Inductor chooses among them. (2.11, 2.13)

    Args:
        namespace: the variables of the module.
        wanted: configurations by the variables of the kernels.
    """
    for name, values in wanted.items():
        autotuner = namespace.get(name)
        launchers = getattr(autotuner, "launchers", None)
        if not launchers:
            continue
        found = launchers_with(autotuner, values)
        if not found and all(isinstance(one, int) for each in launchers for one in each.config.kwargs.values()):
            with contextlib.suppress(*launcher_errors()):
                found = [compile_launcher(autotuner, with_values(launchers[0].config, values))]
        if len(found) == 1:
            settle(found[0].config)
        if found:
            set_launchers(autotuner, found)


def set_launchers(autotuner: Any, launchers: list[Any]) -> None:
    """Makes a kernel launch these from now on. (2.11, 2.13)"""
    autotuner.launchers = launchers
    if hasattr(autotuner, "_cached_launcher"):
        autotuner._cached_launcher = None


def distinguish_caches(codecache: Any, digest: str) -> None:
    """Makes compiled code with other pins another entry of Inductor's caches; ``codecache`` is torch's module.

    The keys are hashes of all attributes of these details. (2.11, 2.13, 2.15)
    """
    original: Callable[..., None] = codecache.FxGraphHashDetails.__init__

    @functools.wraps(original)
    def initialise(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        self.inductor_bench = digest

    codecache.FxGraphHashDetails.__init__ = initialise


def adjust_cpp_kernels(compile_with: Callable[[CppCompile, Any, list[str], str], Any]) -> None:
    """Calls ``compile_with(original, compiler, types, source)`` instead of each C++ kernel's compilation.

    (2.11, 2.13)
    """
    from torch._inductor.async_compile import AsyncCompile

    original: CppCompile = AsyncCompile.cpp_pybinding

    @functools.wraps(original)
    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        return compile_with(original, self, argtypes, source_code)

    setattr(AsyncCompile, "cpp_pybinding", cpp_pybinding)  # noqa: B010


def later(result: Callable[[], Any]) -> Any:
    """A result of ``AsyncCompile`` that is made when the module is complete. (2.11, 2.13)"""
    from torch._inductor.codecache import LambdaFuture

    return LambdaFuture(result)


def result_of(compiled: Any) -> Any:
    """The kernel of a result of ``AsyncCompile``, which may be one still to come."""
    return compiled.result() if hasattr(compiled, "result") else compiled


@contextlib.contextmanager
def compiled_with(options: Config) -> Iterator[None]:
    """Compiles in the block with other settings of Inductor. (2.11, 2.13)"""
    from torch._inductor import config

    with config.patch(options):
        yield


def launcher_errors() -> tuple[type[Exception], ...]:
    """Exceptions of a configuration that cannot be compiled or launched. (Triton 3.6)"""
    try:
        from triton.errors import TritonError
    except ImportError:
        return COMPILE_ERRORS
    return (*COMPILE_ERRORS, TritonError)


def versions() -> tuple[str, str | None]:
    """The versions of torch and Triton in this process."""
    import torch

    try:
        import triton
    except ImportError:
        return torch.__version__, None
    return torch.__version__, triton.__version__
