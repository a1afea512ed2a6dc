"""The whole command on programs that are hard to capture: every module is found, named and measured, and the program
notices nothing. On a CPU, with real compilations."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import tempfile
from pathlib import Path
from unittest.mock import Mock

import breakdown_runs as runs
import pytest

from inductor_bench.workflows.modules.compile_environment import capture_environment

pytestmark = pytest.mark.slow

AFTER_BREAK = "Model.forward from line 22"
"""The rest of ``forward`` in ``train_breaks.py``, from its graph break on."""


def test_every_graph_of_a_training_program_is_found_and_named() -> None:
    done = runs.training()
    assert done.code == 0 and done.record["failures"] == []
    labels = {module["label"] for module in done.record["modules"]}
    assert labels == {
        "Model.forward (4 rows)",
        f"{AFTER_BREAK} · forward (4 rows)",
        f"{AFTER_BREAK} · backward (4 rows)",
        "Model.forward (dynamic)",
        f"{AFTER_BREAK} · forward (dynamic)",
        f"{AFTER_BREAK} · backward (dynamic)",
    }
    assert all(module["dynamic"] == ("dynamic" in module["label"]) for module in done.record["modules"])
    assert [module["program_calls"] for module in done.record["modules"]] == [2] * 6


def test_the_programs_file_has_its_digest_in_the_record() -> None:
    record = runs.training().record
    file = Path(record["program_file"])
    assert file.name == "train_breaks.py"
    assert record["program_sha256"] == hashlib.sha256((runs.PROGRAMS / file.name).read_bytes()).hexdigest()


def test_both_ways_of_finding_modules_agree() -> None:
    capture = runs.training().record["capture"]
    assert (capture["printed"], capture["structured"], capture["disagreement"]) == (6, 6, "")
    assert capture["exit_code"] == 0 and capture["time_s"] > 0


def test_graph_breaks_and_recompilations_are_told_with_their_place() -> None:
    capture = runs.training().record["capture"]
    assert len(capture["graph_breaks"]) == 1 and "train_breaks.py:" in capture["graph_breaks"][0]
    assert len(capture["recompiles"]) == 2 and "size mismatch" in capture["recompiles"][0]


def test_integer_inputs_are_profiled_live_and_floats_from_the_file() -> None:
    done = runs.training()
    embedding = done.module("Model.forward (4 rows)")
    assert embedding["method"] == "live" and "int64[4, 5]" in embedding["method_reason"]
    assert done.module(f"{AFTER_BREAK} · forward (4 rows)")["method"] == "-p"
    assert {module["method"] for module in runs.factory().record["modules"]} == {"-p"}


def test_the_program_sees_its_own_arguments_and_folder() -> None:
    seen = json.loads((runs.training().folder / "logs" / "program.log").read_text().split("seen: ")[1].splitlines()[0])
    assert seen["argv"] == [str(runs.PROGRAMS / "train_breaks.py"), "--lr", "0.1", "a b"]
    assert seen["folder"] == str(runs.scratch()) and seen["main"] == "__main__"


def test_what_the_program_prints_goes_to_the_log_and_with_v_to_the_screen() -> None:
    done = runs.training()
    log = (done.folder / "logs" / "program.log").read_text()
    assert "loss is finite: True" in log and "loss is finite: True" in done.stderr
    assert "loss is finite" not in done.stdout
    log = (runs.frozen().folder / "logs" / "program.log").read_text()
    assert log.startswith("the site of the user\n"), "the user's sitecustomize has had its turn"
    assert "the result is right" in log and "the result is right" not in runs.frozen().printed


def test_nothing_of_the_work_is_left_behind() -> None:
    for done in (runs.training(), runs.factory()):
        assert not {".work", "cache", "tmp"} & set(os.listdir(done.folder))
        assert (done.folder / "record.json").is_file() and (done.folder / "report.html").is_file()


def test_what_minus_p_printed_is_kept() -> None:
    folder = runs.factory().folder
    texts = [(folder / "logs" / f"{label}.p.txt").read_text() for label in ("forward", "backward")]
    assert all("aten::" in text and "Self CPU" in text for text in texts) and texts[0] != texts[1]


def test_kernels_name_the_lines_of_the_program() -> None:
    for done, file in ((runs.training(), "train_breaks.py"), (runs.processes(), "two_processes.py")):
        lines = [
            line for module in done.record["modules"] for kernel in module["kernels"] for line in kernel["source_lines"]
        ]
        assert lines and {Path(line["file"]).name for line in lines} == {file}


def test_frozen_weights_are_profiled_live_with_times_that_can_be() -> None:
    (module,) = runs.frozen().record["modules"]
    assert runs.frozen().code == 0 and module["method"] == "live" and "frozen" in module["method_reason"]
    assert module["wall_time_s"] < 0.1, "the module's own harness takes about a second"
    assert {"extern_conv", "extern_gemm"} <= {category["name"] for category in module["categories"]}


def test_a_program_that_profiles_itself_is_left_its_profile() -> None:
    done = runs.frozen()
    assert "the result is right" in (done.folder / "logs" / "program.log").read_text()
    assert done.record["capture"]["exit_code"] == 0 and done.record["modules"][0]["method"] == "live"


def test_every_process_is_captured_and_warm_caches_hide_nothing() -> None:
    done = runs.processes()
    assert [module["label"] for module in done.record["modules"]] == ["<lambda>", "<lambda>-2"]
    kernels = [kernel for module in done.record["modules"] for kernel in module["kernels"]]
    assert len({kernel["kernel_id"] for kernel in kernels}) == 2
    assert {kernel["category"] for kernel in kernels} == {"cpp"}
    assert done.record["capture"]["structured"] == 2 and done.record["capture"]["disagreement"] == ""


def test_a_late_failure_costs_nothing() -> None:
    done = runs.processes()
    assert done.code == 1 and len(done.record["modules"]) == 2
    (failure,) = done.record["failures"]
    assert failure["stage"] == "capture" and failure["kind"] == "exit"
    assert "ValueError: the evaluation failed after the child's 0" in failure["message"]
    assert "is measured" in failure["message"]
    assert "the evaluation failed" in done.stdout


@pytest.mark.parametrize("has_name", [True, False])
def test_headers_that_torch_compiled_in_an_earlier_run_are_found(
    has_name: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    if not has_name:  # as a user of a container may be
        monkeypatch.setattr(getpass, "getuser", Mock(side_effect=KeyError("uid not found: 1234")))
        try:
            default_cache_dir()
        except KeyError:
            pytest.skip("this torch compiles nothing for a user without a name")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "usual"))
    usual = Path(default_cache_dir(), "precompiled_headers")
    monkeypatch.setattr(tempfile, "tempdir", capture_environment(tmp_path / "work")["TMPDIR"])
    assert Path(default_cache_dir(), "precompiled_headers").resolve() == usual and usual.is_dir()


@pytest.mark.parametrize("place", ["{}", "{}/precompiled_headers"])
def test_headers_that_others_could_have_written_are_left_alone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    cache = Path(default_cache_dir()).name
    folder = tmp_path / "usual" / place.format(cache)
    (tmp_path / "planted").mkdir()

    def shared(name: str) -> bool:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "usual"))
        own = Path(capture_environment(tmp_path / name)["TMPDIR"], cache, "precompiled_headers")
        return own.is_symlink()

    assert shared("work-1")
    folder.chmod(0o777)
    assert shared("work-2") and folder.stat().st_mode & 0o777 == 0o755
    folder.rename(tmp_path / "kept")
    folder.symlink_to(tmp_path / "planted")
    assert not shared("work-3") and not any((tmp_path / "planted").iterdir())
    folder.unlink()
    (tmp_path / "kept").rename(folder)
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    assert not shared("work-4")
