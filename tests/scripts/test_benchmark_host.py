"""What the script on the host's ledger makes of a record."""

from __future__ import annotations

from typing import Any

from scripts.benchmark_host import summary, words_of

LINE = {"file": "/app/train.py", "line": 5, "function": "busy_wait", "code": "pass"}
RECORD: dict[str, Any] = {
    "program": {
        "step_time_s": 0.01,
        "parts": [
            {"kind": "graph", "label": "forward", "time_s": 0.004},
            {"kind": "idle", "label": "Python", "time_s": 0.005},
            {"kind": "idle", "label": "between kernels", "time_s": 0.001},
        ],
        "host": {
            "stretches": [
                {"label": "Python", "function": "busy_wait", "time_s": 0.004, "samples": 80, "source": LINE},
                {"label": "Python", "function": "f", "time_s": 0.001, "samples": 20, "source": None},
            ],
            **{"samples": 100, "every": 200, "steps": 60, "cost": 0.004, "cost_low": -0.001, "cost_high": 0.012},
        },
    }
}


def test_the_tied_share_is_of_the_idle_time_in_which_the_host_is_awaited() -> None:
    row = summary("python 5 ms", RECORD)
    assert (round(row["tied"], 9), round(row["idle_ms"], 9), round(row["between_ms"], 9)) == (0.8, 6, 1)
    text = words_of({**row, "own_ms": 5.0, "found_ms": 4.9, "off": -0.02})
    assert "cost +0.40% (-0.10 to +1.20)" in text and "tied 80.0%" in text and "off -2.0%" in text
    assert "busy_wait  train.py:5" in text and text.endswith("no line")


def test_a_program_without_a_record_has_a_row() -> None:
    assert "0 of 0 samples" in words_of(summary("gan", {}))
