"""The entry of the command, ``inductor-bench`` and ``python -m inductor_bench`` alike: what comes before any import."""

import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond to import, in which Ctrl-C may come
import gc
import os
import sys

RARE_COLLECTION = (100_000, 50, 100)
"""Thresholds of the garbage collector: with Python's own it takes a quarter of an analysis, whose records hold no
cycles."""


def main() -> int:
    """Runs the command line of this process and returns the exit code."""
    gc.set_threshold(*RARE_COLLECTION)
    _end_on_interrupt()  # until the command can say what it keeps
    _open_streams()

    from .cli.main import main as run

    try:
        return run()
    finally:
        _end_on_interrupt()


def _end_on_interrupt() -> None:
    """Makes Ctrl-C end this process silently. If Ctrl-C is ignored, as after ``nohup``, it stays ignored."""
    if _signal.getsignal(_signal.SIGINT) != _signal.SIG_IGN:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _leave_current_folder() -> None:
    """Removes the current folder, where ``python -m`` looks first, from the import path, unless this package lies
    there."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path[0] != home and os.path.isdir(sys.path[0]) and os.path.samefile(sys.path[0], "."):
        del sys.path[0]


def _open_streams() -> None:
    """Opens the null device for each closed standard stream, so that no file that is written later gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


if __name__ == "__main__":
    _leave_current_folder()
    sys.exit(main())
