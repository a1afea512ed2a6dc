"""Keeps configs out of later programs that changed the outputs of a graph in the program."""

from __future__ import annotations

from dataclasses import replace

from ...records.failure import VERIFY, Failure
from ...records.retunes.verification import DROPPED, Verification
from ...records.run import Environment, Run
from ...store.cache.tunings import forget_tuning, known_tunings
from .known import places_of
from .proof.kernels import CHANGES_OUTPUTS

WRONG = f"{CHANGES_OUTPUTS}: it was dropped when the program was compared"


def with_verification(run: Run, found: Verification) -> Run:
    """The run with a verification. The retunes whose configs it dropped have failed."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    retunes = tuple(
        replace(retune, failure=Failure(VERIFY, "wrong", WRONG, subject=retune.name))
        if retune.tuning is not None and dropped.get(retune.kernel_id) == retune.tuning.best_config
        else retune
        for retune in run.retunes
    )
    return replace(run, retunes=retunes, verification=found)


def forget_dropped(found: Verification, environment: Environment) -> None:
    """Removes the dropped configs of an environment, and those of twins, from the tunings that other runs know."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    if not dropped:
        return
    known = [one for place in places_of(environment) for one in known_tunings(place)]
    pins = [(one.key, one.pin) for one in known if one.pin is not None]
    wrong = [(pin.target, pin.config) for _, pin in pins if dropped.get(pin.kernel_id) == pin.config]
    for key, pin in pins:
        if (pin.target, pin.config) in wrong:
            forget_tuning(key)
