"""Where the time of a ``torch.compile``'d model goes, kernel by kernel.

Importing the package is cheap: torch is only ever loaded in the processes that measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records.run import Run

__version__ = "0.1.0"
__all__ = ["__version__", "breakdown"]


def breakdown(target: str | Path | Sequence[str | Path], **options: Any) -> Run:
    """Measures a target and returns the record that ``inductor-bench breakdown`` writes; the RUN folder is written too.

    Args:
        target: what the command takes (``model.py``, ``model.py:factory``, ``timm:NAME``, a compiled module, a log, a
            ``TORCH_TRACE`` folder, an earlier RUN folder), or several compiled modules.
        options: the other fields of ``workflows.options.BreakdownOptions``, such as ``training=True``,
            ``amp="bfloat16"`` or ``output="runs/mine"``.

    Raises:
        TypeError: an option that does not exist.
        InductorBenchError: an expected failure. A module that fails while others succeed raises nothing: it is a row
            of ``Run.failures``.
    """
    from .workflows.breakdown import run_breakdown
    from .workflows.options import BreakdownOptions
    from .workflows.progress import Silent

    targets = (target,) if isinstance(target, str | Path) else tuple(target)
    for name in ("output", "trace"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    request = BreakdownOptions(targets=tuple(str(item) for item in targets), **options)
    return run_breakdown(request, Silent()).run
