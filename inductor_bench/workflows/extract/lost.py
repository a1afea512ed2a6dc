"""Lists the calls of a module that can have no file: undefined kernels, and library calls without a recorded run."""

from __future__ import annotations

from collections import Counter

from ...analysis.classification import classify_operator
from ...records.category import Category
from ...source.module.identity import operator_id
from ...source.standalone.header import StandaloneHeader
from ...version import __version__
from .candidates import Candidate
from .module import ModuleKernels

NOT_DEFINED = "the module calls it, but does not define it"
NOT_WATCHED = "a library call of which the module's text does not tell all arguments; only a run does"


def list_lost_kernels(module: ModuleKernels) -> list[Candidate]:
    """A candidate with a reason for each such kernel, and for each such operator with all of its calls."""
    found = [_lost(module, name, "", Category.OTHER, calls, NOT_DEFINED) for name, calls in module.source.undefined]
    if module.watched:
        return found
    operators = Counter(call.operator for call in module.source.calls if call.operator and not call.alternatives)
    for launch in module.launches:
        if launch.operator is not None:
            operators[launch.operator.rpartition(".")[0]] -= launch.calls
    return found + [
        _lost(
            module,
            operator.replace(".", "_"),
            operator_id(operator, ""),
            classify_operator(operator.replace(".", "::", 1)),
            calls,
            NOT_WATCHED,
        )
        for operator, calls in operators.items()
        if operator is not None and calls > 0
    ]


def _lost(module: ModuleKernels, name: str, kernel_id: str, category: Category, calls: int, reason: str) -> Candidate:
    header = StandaloneHeader(
        name, kernel_id, category, module=module.label, model=module.title, tool_version=__version__, calls=calls
    )
    return Candidate(header, None, None, {}, reason)
