"""Theoretical occupancy against NVIDIA's calculator: the warps are what ``cuda_occupancy.h`` of CUDA 13.0 returns."""

from __future__ import annotations

import pytest

from inductor_bench.devices.nvidia import ARCHITECTURES, LIMITS, compute_theoretical_occupancy

RESIDENT = {
    # (warps, registers, shared memory): the resident warps for each compute capability
    (1, 16, 16): {"7.5": 16, "8.6": 16, "8.9": 24, "9.0": 32, "12.0": 24},  # blocks run out
    (4, 32, 0): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 64, "12.0": 48},  # warps
    (8, 64, 0): {"7.5": 32, "8.6": 32, "8.9": 32, "9.0": 32, "12.0": 32},  # registers
    (16, 33, 0): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 48, "12.0": 48},
    (8, 40, 2048): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 48, "12.0": 48},
    (4, 168, 49152): {"7.5": 4, "8.6": 8, "8.9": 8, "9.0": 12, "12.0": 8},  # registers, or shared memory
    (4, 255, 98304): {"8.6": 4, "8.9": 4, "9.0": 8, "12.0": 4},  # shared memory
    (32, 72, 0): {"7.5": 0, "8.6": 0, "8.9": 0, "9.0": 0, "12.0": 0},  # not one block fits
}


@pytest.mark.parametrize(("block", "resident"), RESIDENT.items(), ids=str)
def test_the_occupancy_is_that_of_the_calculator(block: tuple[int, int, int], resident: dict[str, int]) -> None:
    for capability, warps in resident.items():
        assert compute_theoretical_occupancy(capability, *block) == warps / LIMITS[capability].warps, capability


def test_what_is_not_known_gives_nothing() -> None:
    assert compute_theoretical_occupancy("9.0", 4, 0, 0) == 1
    for unknown in (
        (None, 4, 32, 0),
        ("99.0", 4, 32, 0),
        ("9.0", None, 32, 0),
        ("9.0", 4, None, 0),
        ("9.0", 4, 32, None),
    ):
        assert compute_theoretical_occupancy(*unknown) is None


def test_the_limits_agree_with_what_compilers_are_told() -> None:
    for known in ARCHITECTURES.values():
        limits = LIMITS[f"{known.capability // 10}.{known.capability % 10}"]
        assert limits.warps * 32 == known.threads
        assert limits.shared_bytes - limits.reserved_bytes == known.shared_memory_bytes or known.name == "sm_75"
