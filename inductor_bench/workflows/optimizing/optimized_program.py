"""Runs any program with the settings that a search found, unchanged."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...analysis.optimization.trial_plans import TrialCandidate, name_of
from ...errors import InductorBenchError
from ...launch.process import run_in_terminal
from ...launch.worker import expose_package, join_paths
from ...messages.observed import CAPTURE_FOLDER, OBSERVE, PROFILES, STEPS, VARIANTS
from ...messages.variant_requests import ProgramVariant, VariantsRequest
from ...store import codec
from ...store.files import write_json
from ...store.program_folders import OptimizationFolder
from ..modules.compile_environment import SITE
from ..pins import make_users_environment
from .optimized_files import list_winning_settings
from .tried_program import REQUEST, list_switches, list_variables, read_tried


@dataclass(frozen=True)
class OptimizedProcess:
    """The end of a program that ran with the settings."""

    exit_code: int
    settings: tuple[str, ...]  # the settings
    applied: tuple[str, ...]  # those with which steps were seen
    refused: tuple[str, ...]  # those that had no effect, each with its reason
    caveat: str = ""  # what the search has not yet done with them; empty if nothing is missing


def run_optimized(folder: Path, command: Sequence[str]) -> OptimizedProcess:
    """Runs a program with the settings of a search, in this terminal.

    Raises:
        InductorBenchError: the search found none, or the program cannot be started.
    """
    found = OptimizationFolder(folder).load()
    settings = list_winning_settings(found)
    if found.winner is None:
        raise InductorBenchError(
            f"{folder} holds no setting that is proven", "`inductor-bench optimize` searches for some", "nothing-proven"
        )
    candidate = TrialCandidate(name_of(found.winner.slugs), settings)
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        switches = list_switches(candidate)
        variant = ProgramVariant(candidate.slug, switches)
        request = VariantsRequest((variant,), alternates=False, timed_s=0.0, least=0, most=0, checks=False)
        write_json(work / REQUEST, codec.encode(request))
        environment = make_users_environment()
        environment |= {
            CAPTURE_FOLDER: str(work.resolve()),
            OBSERVE: STEPS,
            PROFILES: "0",
            VARIANTS: str((work / REQUEST).resolve()),
            "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
            **list_variables([candidate]),
        }
        code = run_in_terminal(command, environment)
        states = [state for one in read_tried(work) for state in one.variants]
        refused = dict.fromkeys(said for state in states for said in state.refused)
        named = {name for state in states for name in state.applied}
        words = tuple(setting.words for setting in settings)
        applied = tuple(
            said for said, one in zip(words, switches, strict=True) if f"{one.setting}={one.value}" in named
        )
        return OptimizedProcess(code, words, applied, tuple(refused), found.caveat)
    finally:
        shutil.rmtree(work, ignore_errors=True)
