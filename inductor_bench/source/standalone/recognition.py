"""Recognises a standalone kernel file by its text, without running it."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import InductorBenchError

_RECORDED = re.compile(r"^RECORDED = ", re.MULTILINE)
_MODULE = re.compile(r"^(?:def call\(|class Runner\b|call = runner\.call)", re.MULTILINE)
_INDUCTOR = re.compile(r"torch\._inductor|triton_heuristics")


def holds_triton_kernel(path: Path) -> bool:
    """Whether the text of a file mentions Inductor's Triton launcher; ``False`` where it cannot be read."""
    try:
        return "triton_heuristics" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def require_standalone(path: Path) -> None:
    """Checks that a file is the standalone file of one kernel.

    Raises:
        InductorBenchError: it is not; the message says what it is, the hint how to get a standalone file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InductorBenchError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InductorBenchError(f"{path} is not a Python file", "give a file that extract wrote") from None
    kernels = len(_RECORDED.findall(text))
    if kernels > 1:
        raise InductorBenchError(f"{path} holds {kernels} kernels", "give each of them a file of its own")
    if kernels == 1:
        return
    if _INDUCTOR.search(text) and _MODULE.search(text):
        hint = f"inductor-bench extract {path} -o DIR writes a file for each of its kernels"
        if "def get_args" in text and "async_compile" not in text:
            hint = "inductor-bench extract MODULE -o DIR writes one, from the compiled module that calls it"
        raise InductorBenchError(f"{path} is Inductor's own code, without the arguments that kernels had", hint)
    raise InductorBenchError(
        f"{path} is not a standalone kernel file", "inductor-bench extract SOURCE -o DIR writes standalone files"
    )
