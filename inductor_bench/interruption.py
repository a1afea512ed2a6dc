"""Turns Ctrl-C, SIGTERM and SIGHUP into one ``KeyboardInterrupt`` of the main thread, at a place where it does no harm.

A handler of Python's runs between any two bytecodes. An exception that it raises there can lose a lock that was just
taken, or a process that was just started, and Python drops an exception that is raised in a destructor.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

GAP_S = 0.5
"""Seconds within which several signals count as one. ``timeout`` sends a signal to the process and then to its whole
group; the second one would interrupt the code that saves and shows the results."""

AGAIN_S = 0.02
"""Seconds until an interruption that Python lost is raised again."""


class _State:
    """What the handler knows.

    Attributes:
        last_s: when the last signal came, by the monotonic clock.
        holds: the number of blocks that must not be interrupted and that the main thread is in.
        number: the signal of the last interruption.
        is_due: whether an interruption waits for the end of such a block, or was dropped and is to be raised again.
        is_over: whether the command has come to its end, which nothing interrupts.
        sending: held while a dropped interruption is sent again.
        former: the handlers that :func:`install_signal_handlers` replaced, by their signals.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.sending = threading.Lock()
        self.former: dict[int, Any] = {}
        self.last_s = float("-inf")
        self.number: int = signal.SIGINT
        self.holds = 0
        self.is_due = False


_state = _State()


def install_signal_handlers() -> None:
    """Makes each of :data:`SIGNALS` interrupt the main thread, unless the signal is ignored or has a handler of its
    own."""
    _state.is_over = False
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _interrupt)
                _state.former[number] = handler
    except ValueError:  # outside the main thread; the calling program handles the signals
        return
    sys.unraisablehook = _raise_again


def restore_signal_handlers() -> None:
    """Undoes :func:`install_signal_handlers` at the end of the command. No dropped interruption is raised after it."""
    _state.is_over = True
    with _state.sending:
        for number, handler in _state.former.items():
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, handler)
        _state.former.clear()


def was_terminated() -> bool:
    """Whether the last interruption was a SIGTERM."""
    return _state.number == signal.SIGTERM


def _interrupt(number: int, frame: Any) -> None:
    now_s = time.monotonic()
    together, _state.last_s = now_s - _state.last_s < GAP_S, now_s
    if _state.is_over or (together and not _state.is_due):
        return
    if not _state.is_due:
        _state.number = number
    _state.is_due = _state.holds > 0
    if not _state.is_due:
        raise KeyboardInterrupt


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """Interrupts once more after Python dropped an interruption, for example in a destructor."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    number = next((one for one in SIGNALS if signal.getsignal(one) is _interrupt), None)
    if number is not None:
        threading.Thread(target=_signal_again, args=(number,), daemon=True).start()


def _signal_again(number: signal.Signals) -> None:
    time.sleep(AGAIN_S)  # at once it would come while Python still reports the dropped one, and be dropped, too
    with _state.sending:
        if not _state.is_over and signal.getsignal(number) is _interrupt:
            _state.is_due = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)


class uninterrupted:
    """A block that no signal interrupts. If an interruption comes meanwhile, it is raised at the end of the block.

    This holds for the signals of :func:`install_signal_handlers`. The block must last a few seconds at most.
    """

    def __enter__(self) -> None:
        self._counts = threading.current_thread() is threading.main_thread()
        _state.holds += self._counts

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _state.holds -= self._counts
        if self._counts and _state.is_due and not _state.holds:
            _state.is_due = False
            raise KeyboardInterrupt
