"""What was tuned in one run is known to the next: to which, what is never kept, and what a broken store costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import run_builder
from inline import change
from printed import run_screen
from retune_fakes import Engine, make_run, retuned

from inductor_bench.cli.presentation import make_request
from inductor_bench.errors import UsageError
from inductor_bench.records.base import NO_CANDIDATES, Failure
from inductor_bench.records.request import BreakdownRequest, RetuneRequest
from inductor_bench.records.request_fields import list_option_words
from inductor_bench.records.retune import MeasuredKernel, Verification
from inductor_bench.records.run import Environment, Run
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.kernels.kernel_timing import list_busy_notes
from inductor_bench.workflows.kernels.retuning import digest_launch
from inductor_bench.workflows.progress import Silent

FILE = """RECORDED = {
    'kernel_id': 'k',
    'launch': {
        'kernel': 'SIZE',
        'storages': [{'size_bytes': 8, 'values': {'kind': 'normal'}}],
        'arguments': [{'kind': 'tensor', 'tensor': {'storage': 0, 'offset': 0, 'shape': [SIZE]}}],
    },
}
"""
SMALL, LARGE = FILE.replace("SIZE", "2"), FILE.replace("SIZE", "3")
TUNED = ["triton_red_1", "triton_poi_2", "aten_mm_0"]


class Listening(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(retuning, "list_visible_gpus", lambda: ("0",))
    return tmp_path / "cache" / "tunings"


def tune(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: Engine | None = None,
    text: str = SMALL,
    environment: Environment = run_builder.GPU,
    **options: bool,
) -> tuple[Run, list[str], list[str]]:
    """A run that is made and retuned: its record, the kernels that the engine tuned, and the notes."""
    folder, engine, progress = RunFolder(place), engine or Engine(), Listening()
    run = make_run(folder, text=text, environment=environment)
    monkeypatch.setattr(retuning, "run_kernel", engine)
    wanted = BreakdownRequest(str(place), retune=RetuneRequest("max", **options))
    run = retuning.autotune_run(run, folder, wanted, progress, folder.save)
    assert folder.load() == run and not run.failures
    return run, engine.begun, progress.notes


def test_what_was_tuned_in_one_run_is_known_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, begun, notes = tune(tmp_path / "first", monkeypatch)
    assert begun == TUNED and notes == []
    second, begun, notes = tune(tmp_path / "second", monkeypatch)
    assert begun == [] and notes == ["3 of 3 kernels are known from retuned"]
    assert [one.row for one in second.retunes] == [one.row for one in first.retunes]
    known = [one.known_from for one in second.retunes]
    assert known[0] is not None and known[0].run_id == first.run_id and known[0].title == "retuned"
    assert known[-1] is None, "a kernel without a file"
    shown = run_screen(second)
    assert f"3 were known from retuned, {known[0].tuned_at[:10]}" in " ".join(shown.split())
    _, begun, _ = tune(tmp_path / "third", monkeypatch, remeasure=True)
    assert begun == TUNED


@pytest.mark.parametrize(
    ("text", "changes"),
    [(LARGE, {}), ("", {}), (SMALL, {"torch": "2.12.0"}), (SMALL, {"triton": "3.7.0"}), (SMALL, {"torch": ""})],
)
def test_what_was_tuned_for_something_else_is_not_known(
    text: str, changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(tmp_path / "first", monkeypatch)
    _, begun, _ = tune(tmp_path / "second", monkeypatch, text=text, environment=change(run_builder.GPU, **changes))
    assert begun == TUNED


def changed(**changes: object) -> Engine:
    """An engine whose kernels, or their tunings, have other fields."""

    def outcome(file: str, method: str) -> MeasuredKernel:
        kernel = retuned(file, method)
        assert kernel.tuning is not None
        if "cut_short" in changes:
            return replace(kernel, tuning=replace(kernel.tuning, **changes))  # type: ignore[arg-type]
        return replace(kernel, **changes)  # type: ignore[arg-type]

    return Engine(outcome)


@pytest.mark.parametrize(
    "changes",
    [
        *({"cut_short": "budget"}, {"cut_short": "gain"}, {"shared_device": "python"}, {"tuning": None}),
        {"cut_short": "", "notes": tuple(list_busy_notes({"threads": (1, 2)}, "wall", 9.0, 2))},
    ],
)
def test_half_a_tuning_and_a_doubtful_one_are_not_taken_over(
    changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(tmp_path / "first", monkeypatch, changed(**changes))
    assert tune(tmp_path / "second", monkeypatch)[1] == TUNED


def test_tunings_are_kept_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(file: str, method: str) -> MeasuredKernel | BaseException:
        return KeyboardInterrupt() if "mm" in file else retuned(file, method)

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "first", monkeypatch, Engine(outcome))
    assert tune(tmp_path / "second", monkeypatch)[1] == ["aten_mm_0"]


def test_an_undecided_tuning_takes_the_place_of_an_earlier_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    tune(tmp_path / "first", monkeypatch)
    assert len(list(cache.glob("*/*.json"))) == 3
    undecided = changed(verdict="undecided", cut_short="")
    assert tune(tmp_path / "second", monkeypatch, undecided, remeasure=True)[1] == TUNED
    assert len(list(cache.glob("*/*.json"))) == 3
    third, begun, _ = tune(tmp_path / "third", monkeypatch)
    assert begun == [] and {one.row.verdict for one in third.retunes if one.kernel} == {"undecided"}


def test_what_has_nothing_to_choose_from_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str) -> Engine:
        return Engine(lambda file, method: Failure("kernel", kind, "it has no other config", subject=file))

    tune(tmp_path / "first", monkeypatch, refuse("invalid"))
    first, begun, _ = tune(tmp_path / "second", monkeypatch, refuse(NO_CANDIDATES))
    assert begun == TUNED, "what failed for another reason is tried again"
    second, begun, notes = tune(tmp_path / "third", monkeypatch)
    assert begun == [] and notes == ["3 of 3 kernels are known from retuned"]
    assert [one.row for one in second.retunes] == [one.row for one in first.retunes]
    assert {one.row.problem for one in second.retunes if one.file} == {"it has no other config"}


def test_retunes_that_come_later_undo_the_proof_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _, _ = tune(tmp_path / "first", monkeypatch)
    folder, proof = RunFolder(tmp_path / "first"), Verification("steps", 1e-3)
    monkeypatch.setattr(retuning, "run_kernel", Engine())
    for options, kept in ((RetuneRequest("max"), proof), (RetuneRequest("coordesc"), None)):
        wanted = BreakdownRequest(str(folder.path), retune=options)
        again = retuning.autotune_run(replace(run, verification=proof), folder, wanted, Silent(), folder.save)
        assert again.verification == kept, options.method


def test_a_search_that_others_cut_short_counts_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(tmp_path / "first", monkeypatch, changed(cut_short="gain"))
    monkeypatch.setattr(retuning, "find_least", lambda stakes: 1e-9)
    assert tune(tmp_path / "second", monkeypatch)[1] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 0}', '{"format": 1, "key": 5}', "\udcff"])
def test_a_damaged_tuning_is_made_again(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    tune(tmp_path / "first", monkeypatch)
    for file in cache.glob("*/*.json"):
        file.write_bytes(text.encode(errors="surrogateescape"))
    assert tune(tmp_path / "second", monkeypatch)[1] == TUNED
    assert tune(tmp_path / "third", monkeypatch)[1] == [], "the files are written again"


def test_a_tuning_in_the_place_of_another_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    tune(tmp_path / "first", monkeypatch)
    files = sorted(cache.glob("*/*.json"))
    texts = [file.read_text() for file in files]
    for file, text in zip(files, [*texts[1:], texts[0]], strict=True):
        file.write_text(text)
    assert tune(tmp_path / "second", monkeypatch)[1] == TUNED


def test_a_store_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder would be")
    run, begun, notes = tune(tmp_path / "first", monkeypatch)
    assert begun == TUNED and len(run.retunes) == 4
    assert notes == ["the tunings could not be kept for other runs: the cache folder cannot be written"]


def test_an_edited_file_is_not_taken_for_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(tmp_path / "first", monkeypatch)
    monkeypatch.setattr("inductor_bench.workflows.kernels.retuning.is_edited", lambda kernel, folder: True)
    run, begun, _ = tune(tmp_path / "second", monkeypatch)
    assert begun == [] and not any(one.known_from for one in run.retunes)


def test_a_launch_is_told_by_its_sizes() -> None:
    assert digest_launch(SMALL) != digest_launch(LARGE)
    moved = SMALL.replace("'offset': 0", "'offset': 64").replace("'size_bytes': 8", "'size_bytes': 80")
    assert digest_launch(moved) == digest_launch(SMALL), "where a tensor lies says nothing of its kernel"
    positive = SMALL.replace("'kind': 'normal'", "'kind': 'positive'")
    assert positive != SMALL and digest_launch(positive) != digest_launch(SMALL), "other values take other times"
    for text in ("", "RECORDED = {}\n", "RECORDED = {\n}\n", "RECORDED = {\n    'launch': made(),\n}\n"):
        assert digest_launch(text) is None


def test_remeasure_needs_a_retune() -> None:
    with pytest.raises(UsageError, match="--remeasure is for a retune"):
        make_request(BreakdownRequest, {"method": None, "remeasure": True})
    made = make_request(BreakdownRequest, {"method": "max", "remeasure": True, "top": 3})
    assert list_option_words(made) == ("--autotune", "max", "--top", "3", "--remeasure")
