"""What of the user's surroundings no test shall depend on: settings in variables, and what lies in the home folder."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

OURS = (
    *("INDUCTOR_BENCH_GPU_RUN", "INDUCTOR_BENCH_PYTHON", "INDUCTOR_BENCH_BASE_PYTHON"),
    "INDUCTOR_BENCH_FUZZ_SEED",
)
"""The variables that are for the tests and scripts themselves."""

FAMILIES = ("INDUCTOR_BENCH_", "TORCH", "TRITON_", "XDG_", "HF_", "MPL", "OMP_NUM_", "MKL_NUM_", "RAY_", "RICH_")
SETTINGS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "PAGER")


def settle(variables: MutableMapping[str, str], folder: str) -> None:
    """Removes the user's settings of the tool, torch, plots and terminal, and makes an empty folder the home.

    The first ``python`` on ``PATH`` is the one that runs the tests: a command that is shown names any other one.
    What decides how torch computes (``ATEN_CPU_CAPABILITY``), the locale and the time zone stay: the suite has to pass
    under any of them.
    """
    for name in list(variables):
        if name not in OURS and (name in SETTINGS or name.startswith(FAMILIES)):
            del variables[name]
    variables["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), variables.get("PATH", os.defpath)])
    variables["HOME"] = os.path.join(folder, "home")
    os.makedirs(variables["HOME"], exist_ok=True)
