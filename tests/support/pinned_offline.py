"""Takes a Triton kernel through a compile worker and back with pins, without a GPU: ``python pinned_offline.py FILE``.

Everything is Inductor's but the launchers, which need a GPU. Prints one JSON line: the configs at each stage.
"""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.store import codec
from inductor_bench.worker.capture import startup
from inductor_bench.worker.capture.pinned import make_pinned_kernels
from inductor_bench.worker.upstream.inductor import list_compiled_kernels
from inductor_bench.worker.upstream.pinning import read_config_values, set_launchers, use_configs
from inductor_bench.worker.upstream.triton_compiler import pretend_gpu


class Launcher:
    def __init__(self, config: Any) -> None:
        self.config = config


class NoDevice:
    @staticmethod
    def exchange_device(index: int) -> int:
        return index

    maybe_exchange_device = exchange_device


def are_final(kernel: Any) -> list[bool]:
    """For each launcher of a kernel, whether Inductor searches no further from its config."""
    return [getattr(launcher.config, "found_by_coordesc", False) for launcher in kernel.launchers]


def main(path: str) -> dict[str, Any]:
    startup.install()
    pretend_gpu(ARCHITECTURES["sm_90"])
    from torch._inductor.runtime import triton_heuristics as heuristics
    from torch._inductor.runtime.compile_tasks import _reload_python_module

    def load() -> Any:
        module = _reload_python_module("kernel", path)
        return next(value for value in vars(module).values() if isinstance(value, heuristics.CachingAutotuner))

    compiled: Any = heuristics.TritonCompileResult
    compiled.make_launcher = lambda self: Launcher(self.config)
    autotuner: Any = heuristics.CachingAutotuner
    autotuner.get_device_interface = lambda self: NoDevice
    autotuner._dynamic_scale_rblock = lambda self: None

    in_worker = load()
    stages: dict[str, Any] = {"configs": [read_config_values(one) for one in in_worker.configs]}
    in_worker.precompile(warm_cache_only=True)
    stages["compiled"] = [read_config_values(result.config) for result in in_worker.compile_results]
    in_worker.prepare_for_pickle()
    kernel = pickle.loads(pickle.dumps(in_worker))
    kernel.restore_after_unpickle(None)
    kernel.precompile(reload_kernel=load)
    stages["launched"] = [read_config_values(launcher.config) for launcher in kernel.launchers]
    stages["launched is final"] = are_final(kernel)
    kernel.launchers = kernel.launchers[:1]  # what Inductor's choice leaves
    first = kernel.launchers
    first[0].config.kwargs["EVEN"] = True  # a user's kernel may have such a constant
    stages["with a flag"] = list_compiled_kernels({"kernel": kernel})["kernel"].config
    del first[0].config.kwargs["EVEN"]
    elsewhere = {**read_config_values(first[0].config), "num_warps": 2}
    use_configs({"kernel": kernel, "other": None}, {"kernel": elsewhere, "gone": {}})
    stages["as elsewhere"] = [read_config_values(launcher.config) for launcher in kernel.launchers]
    set_launchers(kernel, first)
    pinned = make_pinned_kernels()
    for tuned in (True, False):
        pinned.switch_config(tuned)
        stages["tuned" if tuned else "own"] = [read_config_values(launcher.config) for launcher in kernel.launchers]
        stages["tuned is final" if tuned else "own is final"] = are_final(kernel)
        stages["state of tuned" if tuned else "state of own"] = codec.encode(pinned.describe())["states"]
    return stages


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
