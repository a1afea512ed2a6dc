"""A program of two ranks, whose variants change at the same steps on both."""

from __future__ import annotations

import json
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest

from inductor_bench.messages.observed import TRIED, VARIANTS, ProgramVariant, VariantsRequest, VariantSwitch
from inductor_bench.records.evidence import DONE
from inductor_bench.records.optimization import INDUCTOR, OPTIMIZER
from inductor_bench.store import codec
from inductor_bench.workflows.optimizing.tried_program import describe_disagreement, read_trial_results

pytestmark = pytest.mark.slow

VARIED = (
    ProgramVariant("placebo", is_placebo=True),
    ProgramVariant("unfused", (VariantSwitch(INDUCTOR, "max_fusion_size", 1),)),
    ProgramVariant("foreach", (VariantSwitch(OPTIMIZER, "foreach", True),)),
)


def test_ranks_change_their_variants_at_the_same_steps(tmp_path: Path) -> None:
    request = VariantsRequest(VARIED, alternates=True, timed_s=0.01, least=8, most=8)
    (tmp_path / "request.json").write_text(json.dumps(codec.encode(request)))
    forking_python.run_ranks(
        [str(runs.PROGRAMS / "ranks.py"), "160"],
        tmp_path,
        INDUCTOR_BENCH_CAPTURE=tmp_path,
        INDUCTOR_BENCH_OBSERVE="steps",
        TORCHINDUCTOR_CACHE_DIR=str(runs.scratch() / "variants-cache"),
        **{VARIANTS: str(tmp_path / "request.json")},
    )
    assert len(list(tmp_path.glob(f"*{TRIED}"))) == 2
    first, second = read_trial_results(tmp_path)
    assert (first.rank, second.rank, first.state, second.state) == (0, 1, DONE, DONE)
    assert first.ranks == second.ranks == first.world == 2 and first.begin == second.begin
    assert first.collectives == second.collectives and len(first.collectives) == 2
    assert describe_disagreement([first, second]) == ""
    timed: list[dict[int, int]] = [{one.place: one.variant for one in found.samples} for found in (first, second)]
    shared = set(timed[0]) & set(timed[1])
    assert len(shared) >= 16 and all(timed[0][place] == timed[1][place] for place in shared)
    assert all(not check.reason for found in (first, second) for check in found.checks)
