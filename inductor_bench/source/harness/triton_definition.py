"""The text above the kernel in a standalone Triton file: checks for a GPU, and retargets the kernel to it.

It uses the parts of Inductor that generated kernels use, and Inductor's cache of tuning results. The cache is closed
while the kernel is defined: its key is the name of the file, so that it could replace the configuration unnoticed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def refuse(name: str, why: str) -> None:
    """Ends the process with one line if the file is run, and raises if it is imported."""
    message = f"{name}: {why}"
    if name == "__main__":
        sys.exit(message.replace("__main__", sys.argv[0], 1))
    raise RuntimeError(message)


def require_gpu(name: str) -> None:
    """Refuses without torch, triton or a GPU."""
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            refuse(name, f"this Triton kernel needs {package}, which is not installed")
    import torch

    if not torch.cuda.is_available():
        refuse(name, "this Triton kernel needs a GPU, and torch sees none")


def use_inductors_assembler() -> None:
    """Lets Triton assemble with the ``ptxas`` in torch's package, if there is one, as Inductor's compilers do.

    torch 2.11 holds that of CUDA 13.0, and Triton 3.6 that of CUDA 12.8. Triton's cache tells their binaries apart.
    """
    import torch

    path = os.path.join(os.path.dirname(torch.__file__), "bin", "ptxas")
    if os.path.isfile(path) and os.access(path, os.X_OK):
        os.environ.setdefault("TRITON_PTXAS_PATH", path)


def this_device(recorded: Any) -> Any:
    """The properties of the current device in place of the recorded ones, unless ``--as-recorded`` was given."""
    import torch

    index = torch.cuda.current_device()
    if "--as-recorded" in sys.argv[1:]:
        return recorded._replace(index=index)
    return type(recorded).create(torch.device("cuda", index))


def close_tuning_cache() -> Any:
    """Shuts Inductor's cache of tuning results; gives what :func:`open_tuning_cache` takes."""
    from torch._inductor.runtime import triton_heuristics

    cache = vars(triton_heuristics)["AutotuneCache"]
    closed = type("ClosedCache", (), {"create": staticmethod(lambda *_, **__: None)})
    vars(triton_heuristics)["AutotuneCache"] = closed
    return cache


def open_tuning_cache(cache: Any) -> None:
    """Opens it again."""
    from torch._inductor.runtime import triton_heuristics

    vars(triton_heuristics)["AutotuneCache"] = cache


def choose_config(kernel: Any, recorded: dict[str, Any]) -> None:
    """Leaves the kernel the one configuration that the model ran, if it is recorded."""
    kernel.save_cache_hook = None
    wanted = recorded.get("config")
    if not wanted:
        return
    candidates = list(kernel.configs)
    known = {*kernel.fn.arg_names, *candidates[0].kwargs, *LAUNCH_OPTIONS}
    wanted = {key: value for key, value in wanted.items() if key in known}  # XBLOCK may be a constant of the kernel
    same_device = recorded.get("multiprocessors") in (None, kernel.device_props.multi_processor_count)
    split = candidates[0].kwargs.get("RSPLIT")
    if not same_device and split is not None and "RSPLIT" in wanted:
        wanted["RSPLIT"] = split  # all blocks must be resident at once, so it goes with the size of the device
    chosen = next((config for config in candidates if describe_config(config, wanted) == wanted), None)
    if chosen is None:
        import triton

        launch = {key: wanted.pop(key) for key in LAUNCH_OPTIONS if key in wanted}
        chosen = triton.Config(wanted, **launch)
    chosen.found_by_coordesc = chosen.found_by_combo_autotune = True  # nothing is left to search
    kernel.configs = [chosen]
    kernel.inductor_meta["dynamic_scale_rblock"] = False


def describe_config(config: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """A configuration as a flat dictionary: its block sizes, and what ``wanted`` has besides."""
    facts = dict(config.kwargs)
    facts.update({key: getattr(config, key) for key in wanted if key not in facts and hasattr(config, key)})
    return facts
