"""Numbers to text: three digits, the right unit at every border, and a dash for what was not measured."""

from __future__ import annotations

import math

import pytest

from inductor_bench import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.23e-6, "1.23 µs"),
        (0.108e-3, "0.108 ms"),
        (15.737e-3, "15.7 ms"),
        (2.31, "2.31 s"),
        (99.94e-6, "99.9 µs"),
        (99.96e-6, "0.100 ms"),  # rounds up over the border, so it takes the unit above it
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
        (41.2e-9, "41.2 ns"),
        (0.4123e-6, "0.412 µs"),
        (3e-10, "0.300 ns"),
        (3723.4, "3723 s"),
        (0.0, "0 s"),
        (-8.47e-22, "0 s"),  # the difference of two equal steps
        (-1.5e-3, "-1.50 ms"),
        (None, units.MISSING),
        (math.nan, units.MISSING),
        (math.inf, units.MISSING),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (512, "512 B"),
        (1, "1 B"),
        (0, "0 B"),
        (999_600, "1.00 MB"),
        (11_344_190_000, "11.3 GB"),
        (2.5e12, "2.50 TB"),
        (None, units.MISSING),
    ],
)
def test_size(value: float | None, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "500 ms"),
        (45.24, "45.2 s"),
        (59.6, "1 min"),
        (200.0, "3 min 20 s"),
        (1200.0, "20 min"),
        (3661.2, "1 h 1 min 1 s"),
        (7200.0, "2 h"),
        (None, units.MISSING),
    ],
)
def test_duration(value: float | None, text: str) -> None:
    assert units.duration(value) == text


def test_rates() -> None:
    assert units.rate(812.4e9) == "812 GB/s"
    assert units.rate(4.02e12) == "4.02 TB/s"
    assert units.flop_rate(18.62e12) == "18.6 TFLOP/s"
    assert units.flops(141.75e9) == "142 GFLOP"
    assert units.rate(None) == units.flop_rate(None) == units.flops(math.nan) == units.MISSING


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.446, "44.6%"),
        (1.0, "100%"),
        (0.9996, "100%"),
        (0.9994, "99.9%"),
        (0.0001, "<0.1%"),
        (0.0, "0%"),
        (None, units.MISSING),
    ],
)
def test_percent(value: float | None, text: str) -> None:
    assert units.percent(value) == text


def test_whole_percent() -> None:
    assert [units.whole_percent(v) for v in (0.446, 0.001, 0.0, None)] == ["45%", "<1%", "0%", units.MISSING]


@pytest.mark.parametrize(
    ("value", "text"), [(11.0, "11"), (1234, "1,234"), (2.5, "2.5"), (1999.96, "2,000"), (None, units.MISSING)]
)
def test_count(value: float | None, text: str) -> None:
    assert units.count(value) == text


def test_what_is_missing_is_a_dash() -> None:
    assert units.MISSING == "\N{EN DASH}"
