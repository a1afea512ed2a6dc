"""On what the tests may depend."""

from __future__ import annotations

from pathlib import Path

from surroundings import settle


def test_settings_of_the_user_do_not_reach_the_tests(tmp_path: Path) -> None:
    user = {
        **{"INDUCTOR_BENCH_CACHE": "/mine", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCH_LOGS": "all", "COLUMNS": "40"},
        **{"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "PAGER": "less", "OMP_NUM_THREADS": "1"},
        **{"XDG_CACHE_HOME": "/nowhere", "MPLCONFIGDIR": "/nowhere"},
    }
    kept = {"PATH": "/bin", "LANG": "C", "TZ": "UTC", "ATEN_CPU_CAPABILITY": "default", "INDUCTOR_BENCH_PYTHON": "/py"}
    variables = {**user, **kept, "HOME": "/nonexistent"}
    settle(variables, str(tmp_path))
    assert variables == {**kept, "HOME": str(tmp_path / "home")} and list((tmp_path / "home").iterdir()) == []
