"""How the tests are run: on what they may depend, in which order, and in how many processes."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import LOADED, ROOT, SESSION, is_selection, pytest_configure, pytest_ignore_collect, random_place
from late import Late
from surroundings import settle


def test_settings_of_the_user_do_not_reach_the_tests(tmp_path: Path) -> None:
    user = {
        **{"INDUCTOR_BENCH_CACHE": "/mine", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCH_LOGS": "all", "COLUMNS": "40"},
        **{"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "PAGER": "less", "OMP_NUM_THREADS": "1"},
        **{"XDG_CACHE_HOME": "/nowhere", "MPLCONFIGDIR": "/nowhere"},
    }
    kept = {"PATH": "/bin", "LANG": "C", "TZ": "UTC", "ATEN_CPU_CAPABILITY": "default", "INDUCTOR_BENCH_PYTHON": "/py"}
    kept["INDUCTOR_BENCH_FUZZ_SEED"] = "7"  # of .ci/run, which prints it
    variables = {**user, **kept, "HOME": "/nonexistent"}
    settle(variables, str(tmp_path))
    made = {"PATH": f"{Path(sys.executable).parent}:/bin", "HOME": str(tmp_path / "home")}
    assert variables == {**kept, **made} and list((tmp_path / "home").iterdir()) == []


def test_graphs_that_tests_compile_do_not_stay_in_the_users_cache() -> None:
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(SESSION)


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ({"keyword": "roofline"}, True),
        ({"keyword": "not roofline"}, False),
        ({"lf": True}, True),
        ({"args": ["tests/test_units.py"]}, True),
        ({"args": ["tests/test_units.py::test_of_that_name", "tests/test_api.py"]}, True),
        ({"args": ["tests/test_units.py", "tests/cli"]}, False),
        ({"args": ["tests"]}, False),
        ({}, False),
    ],
)
def test_few_tests_are_run_without_further_processes(words: dict[str, Any], is_one: bool) -> None:
    source = pytest.Config.ArgsSource
    config = SimpleNamespace(
        option=SimpleNamespace(keyword=words.get("keyword", ""), lf=words.get("lf", False)),
        args=words.get("args", ["tests"]),
        args_source=source.ARGS if "args" in words else source.TESTPATHS,
        invocation_params=SimpleNamespace(dir=ROOT),
    )
    assert is_selection(config) is is_one  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keyword", "is_read"),
    [
        ("test_of_this_name", True),
        ("test_probes", True),
        ("TEST_of_this", True),
        ("test_of_that", False),
        ("that", True),
    ],
)
def test_files_without_the_one_test_that_is_asked_for_are_not_read(keyword: str, is_read: bool, tmp_path: Path) -> None:
    path = tmp_path / "test_probes.py"
    path.write_text("def test_of_this_name() -> None: ...")
    config: Any = SimpleNamespace(option=SimpleNamespace(keyword=keyword))
    assert (pytest_ignore_collect(path, config) is None) is is_read


def test_a_random_order_is_repeated_by_its_seed_and_keeps_the_tests_of_a_file_together() -> None:
    items: list[Any] = []
    for group, file, test in itertools.product("ab", "12", "xyz"):
        marker = SimpleNamespace(args=(group,))
        path = Path(f"test_{group}{file}.py")
        items.append(SimpleNamespace(path=path, nodeid=f"{path}::{test}", get_closest_marker=lambda _, m=marker: m))

    def order(seed: int) -> list[str]:
        return [item.nodeid for item in sorted(items, key=lambda item: random_place(item, seed))]

    assert order(1) == order(1) and len({tuple(order(seed)) for seed in range(9)}) == 9
    files = [name.split("::")[0] for name in order(3)]
    assert len(list(itertools.groupby(files))) == 4
    assert len(list(itertools.groupby(name[:6] for name in files))) == 2


@pytest.mark.parametrize(("markers", "gpus"), [("gpu", "7"), ("not gpu", "2,3,7")])
def test_each_process_of_the_gpu_tests_has_one_gpu(markers: str, gpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,7")
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=markers), add_cleanup=lambda undo: None)
    pytest_configure(config)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus


def test_collecting_the_tests_imports_nothing_slow(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[LOADED] == []


def test_a_late_module_is_imported_when_a_test_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "imported_late_by_a_test"
    (tmp_path / f"{name}.py").write_text("import warnings\nwarnings.warn('old')\nvalue = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = Late(name)
    assert not isinstance(module, type) and not getattr(module, "__test__", False), "pytest asks that of each name"
    assert name not in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.value == 1
    with monkeypatch.context() as patch:
        patch.setattr(module, "value", 2)
        patch.setattr(module, "other", 3, raising=False)
        assert (sys.modules[name].value, sys.modules[name].other) == (2, 3)
    assert module.value == sys.modules.pop(name).value == 1 and not hasattr(module, "other")
