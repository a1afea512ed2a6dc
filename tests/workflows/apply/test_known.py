"""The pins of tunings that are known from other RUNs, without a RUN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from inline import change

from inductor_bench.analysis.statistics import summarize
from inductor_bench.errors import UsageError
from inductor_bench.records.retune import (
    AppliedKernel,
    CppPin,
    InputLayout,
    LibraryPin,
    MeasuredKernel,
    TritonPin,
    Tuning,
    TuningOrigin,
    Verification,
)
from inductor_bench.records.run import Environment
from inductor_bench.store.caches import KnownTuning, TuningKey, TuningPlace, save_tuning
from inductor_bench.workflows.apply import delete_dropped_tunings
from inductor_bench.workflows.pins import choose_pins, list_places, pin_known

HERE = change(Environment(), torch="2.11.0", triton="3.6.0", accelerator="NVIDIA H200", cpu="a CPU", threads=4)


def known(name: str, speedup: float, tuned_at: str = "2026-11-01", method: str = "max", **pin: object) -> KnownTuning:
    timing = summarize([1e-4] * 9)
    tuning = Tuning(method, "cold", (), 3, 1e-4, 1e-4 / speedup, speedup, "faster", {"XBLOCK": 8})
    kernel = MeasuredKernel(name, name, "", "triton", "NVIDIA H200", {}, timing, timing, "", tuning=tuning)
    key = TuningKey(list_places(HERE)[0], name, "sizes", method, "cold")
    return KnownTuning(key, kernel, TuningOrigin("run", "a run", tuned_at), **pin)  # type: ignore[arg-type]


def triton_pin(name: str, types: str = "", **config: int) -> TritonPin:
    return TritonPin(name * 64, types, f"triton_{name}", name * 16, config)


def test_a_gpu_and_the_processor_beside_it_have_their_own_places() -> None:
    assert list_places(HERE) == [
        TuningPlace("NVIDIA H200", "2.11.0", "3.6.0"),
        TuningPlace("a CPU 4 threads", "2.11.0", "3.6.0"),
    ]


def test_of_several_tunings_of_a_kernel_the_fastest_is_pinned() -> None:
    slow, fast = triton_pin("a", XBLOCK=8), triton_pin("a", XBLOCK=16)
    other_types = triton_pin("a", "in_ptr0:*fp16", XBLOCK=32)
    text = CppPin("c" * 16, "cpp_fused_0", {"threads": 1}, "void kernel() {}")
    product = LibraryPin(
        "aten_mm_0", "m" * 16, "aten.mm", (), {}, {"backend": "triton", "template": "mm", "BLOCK_M": 64}
    )
    triton, cpp, library = choose_pins(
        [
            known("a", 1.5, triton_pin=fast),
            known("a", 1.2, triton_pin=slow, method="coordesc"),
            known("a", 1.1, triton_pin=other_types),
            known("c", 2.0, cpp_pin=text),
            known("m", 1.1, library_pin=product),
            known("n", 1.05, library_pin=replace(product, kernel_id="n" * 16, config={"backend": "aten"})),
            known("unpinnable", 3.0),
        ]
    )
    assert set(map(id, triton)) == {id(fast), id(other_types)}
    assert (cpp, library) == ((text,), (product,))


def test_equally_fast_tunings_give_the_latest() -> None:
    old, new = triton_pin("a", XBLOCK=8), triton_pin("a", XBLOCK=16)
    found, *_ = choose_pins(
        [known("a", 1.5, "2026-11-02", triton_pin=new), known("a", 1.5, "2026-11-01", triton_pin=old)]
    )
    assert found == (new,)


def test_what_is_stored_for_this_machine_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path))
    assert pin_known(HERE).pins.all == ()
    assert save_tuning(known("a", 1.5, triton_pin=triton_pin("a", XBLOCK=8)))
    found = pin_known(HERE)
    assert [pin.name for pin in found.pins.all] == ["triton_a"]
    assert (found.pins.torch, found.pins.triton, found.predicted_s) == ("2.11.0", "3.6.0", 0.0)
    assert pin_known(change(HERE, torch="2.13.0")).pins.all == (), "of another torch nothing is known"


def test_a_config_that_changes_outputs_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path))
    wrong, other = triton_pin("a", XBLOCK=8), triton_pin("b", XBLOCK=8)
    product = LibraryPin(
        "aten_mm_0", "m" * 16, "aten.mm", (InputLayout.of("float32", (2, 2), (2, 1)),) * 2, {}, {"a": 1}
    )
    assert save_tuning(known("a", 1.5, triton_pin=wrong)) and save_tuning(known("b", 1.5, triton_pin=other))
    assert save_tuning(known("m", 1.5, library_pin=product)) and pin_known(HERE).pins.library_pins == (product,)
    gone = AppliedKernel("aten_mm_0", product.kernel_id, {"a": 1}, "dropped")
    delete_dropped_tunings(Verification("steps", 0.0, kernels=(gone,)), HERE)
    dropped = AppliedKernel("triton_a", wrong.kernel_id, {"XBLOCK": 16}, "dropped")
    delete_dropped_tunings(Verification("steps", 0.0, kernels=(dropped,)), HERE)
    assert len(pin_known(HERE).pins.all) == 2, "another config of the kernel"
    delete_dropped_tunings(Verification("steps", 0.0, kernels=(replace(dropped, config={"XBLOCK": 8}),)), HERE)
    assert pin_known(HERE).pins.all == (other,)
    twin = replace(wrong, kernel_id="t" * 16)
    assert save_tuning(known("a", 1.5, triton_pin=wrong)) and save_tuning(known("t", 1.4, triton_pin=twin))
    delete_dropped_tunings(Verification("steps", 0.0, kernels=(replace(dropped, config={"XBLOCK": 8}),)), HERE)
    assert pin_known(HERE).pins.all == (other,), "a process cannot tell the twin from it"


@pytest.mark.parametrize("words", [(), ("--known",), (".", "--known")])
def test_a_run_or_known_with_a_program(words: tuple[str, ...]) -> None:
    from inductor_bench.cli.apply import command

    with pytest.raises(UsageError, match=r"either a RUN or --known|needs a program"):
        command.main(list(words) or ["-q"], standalone_mode=False)
