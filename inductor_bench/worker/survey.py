"""What only a process with torch can say about the machine and about library calls: the environment, the FLOPs and
bytes of operators, the measured peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inductor_bench.messages.jobs import Surveyed, SurveyMachine
from inductor_bench.store.peaks import load_peaks, peaks_key, save_peaks

from .costs.operators import count_operator_costs
from .device.environment import describe_environment
from .device.sharing import SharedDevice
from .peaks.measure import measure_peaks


def survey(job: SurveyMachine, save: Callable[[Surveyed], None]) -> Surveyed:
    """Surveys the machine.

    Args:
        job: what is asked.
        save: keeps the part that is known should the measurement of the peaks take the process down.
    """
    shared = SharedDevice()
    shared.use()
    environment = describe_environment()
    shared.leave()
    found = Surveyed(environment, tuple(count_operator_costs(job.calls)))
    save(found)
    if job.peaks == "none":
        return found
    key = peaks_key(environment, job.device)
    peaks = load_peaks(key) if job.peaks == "cached" else None
    shared.use()  # also only to end: the GPU has to clear up behind this process
    if peaks is None:
        peaks = measure_peaks(job.device)
        save_peaks(key, peaks)
    return replace(found, peaks=peaks)
