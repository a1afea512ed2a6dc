"""Runs a command with this terminal's own input and output."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

from ...errors import InductorBenchError

SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""


def run_in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command to its end, and returns its exit code.

    Ctrl-C reaches the command, which decides what to do; this process waits for it.

    Raises:
        InductorBenchError: the command cannot be started.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(command, env=dict(environment), preexec_fn=lambda: _restore(before))
        code = child.wait()
    except OSError as error:
        raise InductorBenchError(f"cannot start {command[0]}: {error.strerror or error}") from error
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else SIGNALLED - code


def _restore(handler: object) -> None:
    """Gives the command the signal's usual effect, unless this process ignored it, too."""
    if handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
