"""The rules that keep the house in order, checked over the source text: who imports whom, and how large things get.

Every rule is also tried on a planted violation, because a rule that cannot fail says nothing.
"""

from __future__ import annotations

import ast
import functools
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from printed import RESULTS

from inductor_bench.devices.table import DEVICES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "inductor_bench"
FILES = sorted(PACKAGE.rglob("*.py"))

LEAVES = {"errors", "interruption", "literals", "units", "version", "step_marks"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "interruption": set(),
    "literals": set(),
    "units": set(),
    "version": set(),
    "step_marks": set(),
    "records": LEAVES,
    "devices": {"records"} | LEAVES,
    "store": {"records", "devices"} | LEAVES,
    "source": {"records", "devices"} | LEAVES,
    "trace": {"records", "devices"} | LEAVES,
    "analysis": {"records", "devices", "store", "source", "trace"} | LEAVES,
    "messages": {"records", "devices", "store"} | LEAVES,
    "autotune": {"records", "devices", "messages", "source", "analysis", "launch", "store"} | LEAVES,
    "worker": {"records", "devices", "messages", "store", "source"} | LEAVES,
    "launch": {"records", "devices", "messages", "store"} | LEAVES,
    "report": {"records", "devices", "analysis", "store"} | LEAVES,
    "workflows": {"records", "devices", "messages", "store", "source", "trace", "analysis", "autotune", "launch"}
    | LEAVES,
    "cli": {"records", "devices", "store", "report", "workflows", "analysis", "launch"} | LEAVES,
    "__main__": {"cli"},
    "integrations": {"", "records", "report", "workflows"} | LEAVES,
    "": {"workflows", "records", "version", "step_marks", "errors"},
}
"""Each room and the rooms that it may import. The empty name is the package's own ``__init__``."""

INNER: dict[str, set[str]] = {
    "worker/upstream": set(),
    "worker/device": {"upstream"},
    "worker/profile": {"upstream", "device"},
    "worker/capture": {"upstream", "device", "profile"},
    "worker/bench": {"upstream", "device"},
    "workflows/modules": set(),
    "workflows/optimizing": {"modules"},
    "report/run": set(),
    "report/batch": {"run"},
}
"""Rooms within rooms, and the ones beside them that each may import. The files above them are open to all."""

DOORS = {
    ("", "inductor_bench.worker.capture.in_process"),
    ("", "inductor_bench.worker.capture.startup"),
    ("", "inductor_bench.worker.capture.pinned"),
    ("workflows", "inductor_bench.report.run.observed_run"),
    ("workflows", "inductor_bench.report.run.run_document"),
    ("workflows", "inductor_bench.report.batch.batch_document"),
    ("workflows", "inductor_bench.report.batch.batch_tables"),
}
"""Single files that a room may import although the rest of their room is closed to it."""

HOMES: dict[str, re.Pattern[str]] = {
    # The harness is text that is pasted into standalone files; it is imported by workers only.
    "torch": re.compile(r"worker/.*|source/harness/.*"),
    "triton": re.compile(r"worker/.*|source/harness/.*"),
    "click": re.compile(r"cli/.*"),
    "msgspec": re.compile(r"trace/events\.py|store/(?:files|digest)\.py"),
    "rich": re.compile(r"report/terminal\w*\.py|cli/console\.py"),
}
"""Packages that only some files may import."""

ONE_FILE = ("matplotlib", "jinja2", "ray", "duckdb", "mcp", "mcp_types", "anyio", "jsonschema")
"""Packages that a single file may import."""

DEVICE_TYPES = (*DEVICES, "hip", "xpu")
DEVICE_ROOMS = re.compile(r"devices/.*|worker/device/.*|source/harness/.*")
"""The files that may ask which device it is. The harness is pasted into standalone files, which run without this
package, so it asks by itself."""

PRIVATE = re.compile(r"(torch|triton)(\.\w+)*\._\w+(\.\w+)*")
PRIVATE_HOMES = re.compile(
    r"worker/upstream/.*|worker/bench/library_choices\.py|worker/survey\.py"
    r"|worker/profile/recorder\.py|source/harness/.*"
)
"""The files that may import private modules of torch and Triton."""

EDGES: dict[str, tuple[str, ...]] = {
    "click's parsed values, on their way to the fields of options": (
        *(f"cli/{name}.py" for name in ("breakdown", "compare")),
        "cli/presentation.py",
    ),
    "JSON that a client of the server sends and gets, and its schemas": ("cli/mcp.py", "cli/mcp_tools.py"),
    "decoded JSON or YAML, in the file that reads it": (
        *("launch/batch_executors.py", "launch/worker.py", "source/structured_trace.py", "store/digest.py"),
        *("store/codec.py", "trace/events.py", "workflows/model_list.py"),
    ),
    "JSON that is written where it is made": (
        "report/document_summary.py",
        "messages/job_requests.py",
        "worker/profile/module_run.py",
        "worker/__main__.py",
    ),
    "encoded details, which are decoded with the module that they are about": ("messages/observed.py",),
    "a configuration, whose keys are those of Inductor, Triton and cuDNN": ("records/retune.py",),
    "a fingerprint, which only the harness reads": ("records/code.py",),
    "the text of RECORDED, which is a literal for the harness": (
        *("source/standalone_header.py", "source/standalone_writer.py"),
    ),
    "RECORDED of a file, or its part for C++, as the file holds it": (
        *("messages/kernel_requests.py", "autotune/kernel_variants.py"),
    ),
    "a launch, its times and RECORDED in the form of the harness": (
        *(f"worker/device/{name}.py" for name in ("cpu_runtime", "nvidia_runtime", "runtime")),
        *("worker/bench/loaded_kernel.py", "worker/bench/library_kernel.py", "worker/bench/arena.py"),
    ),
    "arguments of a call of torch, Triton or a model": (
        *("worker/capture/mode_setter.py", "worker/capture/programs.py", "worker/upstream/inductor.py"),
        *("worker/survey.py", "worker/profile/recorder.py", "worker/upstream/observing.py"),
        "worker/bench/library_choices.py",
    ),
    "options, flags and arguments, whose names are torch's": (
        "worker/capture/variants/settings.py",
        "worker/upstream/graph_variants.py",
    ),
    "keyword arguments of matplotlib": ("report/run/plots.py",),
}
"""The files that may say ``dict[str, Any]``, by the reason. Everywhere else known fields have a dataclass."""

BROAD_EXCEPT = {
    "worker/__main__.py",
    "cli/main.py",
    "worker/capture/edited_kernels.py",
    "worker/capture/pinned.py",
    "worker/capture/variants/checks.py",
    "worker/capture/variants/turns.py",
    "workflows/observe.py",
}
"""Where a process ends, and where a failure of ours must not end the user's program."""

MOST_LINES = 600
MOST_FUNCTION_LINES = 60

MOST_FILES = 20
"""Source files in one folder, beside its ``__init__.py``."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room_of(name: str) -> str:
    first = name.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


@functools.lru_cache(maxsize=2)
def nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


@functools.cache
def import_nodes_of(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in nodes_of(text) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports_of(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Every import of a file as (line, absolute dotted name), wherever in the file it stands."""
    package = ["inductor_bench", *name.split("/")[:-1]]
    for node in import_nodes_of(text):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "inductor_bench":
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def wrong_imports(name: str, text: str) -> list[str]:
    """The imports of a file that its room may not make."""
    room = room_of(name)
    allowed = ROOMS[room]
    wrong = []
    for line, module in imports_of(name, text):
        top, *rest = module.split(".")
        if top == "inductor_bench":
            other = rest[0] if rest and rest[0] in ROOMS else ""
            if other != room and other not in allowed and (room, module) not in DOORS:
                wrong.append(f"{name}:{line} {room or 'the package'} may not import {other or 'the package itself'}")
        elif top in HOMES and not HOMES[top].fullmatch(name):
            wrong.append(f"{name}:{line} {top} may not be imported here")
        elif PRIVATE.fullmatch(module) and not PRIVATE_HOMES.fullmatch(name):
            wrong.append(f"{name}:{line} {module} is private: import it in worker/upstream")
    return wrong


def broad_excepts(name: str, text: str) -> list[str]:
    """Handlers that swallow everything. One that always raises again swallows nothing."""
    found = []
    for node in nodes_of(text):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {kind.id if isinstance(kind, ast.Name) else None for kind in kinds}
        broad = node.type is None or names & {"Exception", "BaseException"}
        last = node.body[-1]
        if broad and not (isinstance(last, ast.Raise) and last.exc is None):
            found.append(f"{name}:{node.lineno}")
    return found


def long_functions(name: str, text: str) -> list[str]:
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno} {node.name} has {lines} lines")
    return found


def is_device_type(node: ast.AST) -> bool:
    """Whether an expression is one kind of device: its type's literal, or an entry of the table by its name."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_device_type, node.elts))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.partition(":")[0] in DEVICE_TYPES
    return ast.unparse(node).removesuffix(".type") in ("CPU", "NVIDIA")


def device_questions(name: str, text: str) -> list[str]:
    """The places that ask which device it is, and not the device for what they need to know."""
    if DEVICE_ROOMS.fullmatch(name):
        return []
    found = []
    for node in nodes_of(text):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitAnd):
            asked = [side for side in (node.left, node.right) if isinstance(side, ast.Set)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            asked = node.args
        if any(map(is_device_type, asked)):
            found.append(f"{name}:{asked[0].lineno} {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_keeps_to_its_room_is_small_and_catches_what_it_names(path: Path) -> None:
    name, text = name_of(path), path.read_text()
    assert room_of(name) in ROOMS, f"{name} lies in no known room"
    assert wrong_imports(name, text) == []
    assert device_questions(name, text) == [], "ask `find_device` for a fact or a word"
    lines = text.count("\n")
    assert lines <= MOST_LINES, f"{name} has {lines} lines"
    assert long_functions(name, text) == []
    if name not in BROAD_EXCEPT:
        assert broad_excepts(name, text) == []


@pytest.mark.parametrize("package", ONE_FILE)
def test_a_package_has_one_home(package: str) -> None:
    homes = {
        name_of(path)
        for path in FILES
        if package in (text := path.read_text())
        for _, module in imports_of(name_of(path), text)
        if module.split(".")[0] == package
    }
    assert len(homes) <= 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("records/run.py", "from ..store import codec"),
        ("source/calls.py", "from ..trace.reading.reader import read_trace"),
        ("trace/gaps.py", "def f():\n    from inductor_bench.analysis import kernel_aggregation"),
        ("analysis/kernel_aggregation.py", "import torch.utils"),
        ("report/run/run_tables.py", "import inductor_bench.workflows.query"),
        ("report/run/run_document.py", "from rich import box"),
        ("workflows/breakdown.py", "import click"),
        ("workflows/breakdown.py", "from .. import __version__"),
        ("workflows/breakdown.py", "from ..report import terminal"),
        ("workflows/breakdown.py", "from ..worker.upstream import version"),
        ("cli/main.py", "from .. import worker"),
        ("launch/worker.py", "from ..workflows import breakdown"),
        ("worker/profile/module_profile.py", "from ...analysis import kernel_aggregation"),
        ("worker/profile/module_profile.py", "from torch._inductor.runtime import hints"),
        ("worker/bench/loaded_kernel.py", "import torch.utils._pytree"),
        ("autotune/tuner.py", "from ..workflows.kernel import session"),
        ("messages/kernel_requests.py", "import torch"),
        ("messages/kernel_requests.py", "from ..launch.session import WorkerSession"),
    ],
)
def test_a_wrong_import_is_seen(name: str, text: str) -> None:
    assert len(wrong_imports(name, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "module.device == 'cuda'",
        "'cpu' != device.type",
        "device in ('cpu', 'xpu')",
        "device.startswith('cuda:')",
        "devices - {'hip'}",
        "device == CPU.type",
        "find_device(name) is NVIDIA",
        "match device:\n    case 'cpu': pass",
    ],
)
def test_a_question_which_device_it_is_is_seen(text: str) -> None:
    assert len(device_questions("report/run/plots.py", text)) == 1
    for room in ("devices/table.py", "worker/device/nvidia_runtime.py", "source/harness/operator_main.py"):
        assert device_questions(room, text) == []


def test_asking_a_device_is_not_a_comparison_of_its_type() -> None:
    for text in (
        "find_device(kind).runs_on_host == True",
        "ask(device='cpu')",
        "bound == 'memory'",
        "ones(device='cuda')",
    ):
        assert device_questions("report/run/plots.py", text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "worker/profile/module_profile.py",
            "import torch\nfrom ...store.files import read_json\nfrom .upstream import x",
        ),
        ("cli/report.py", "import click\nfrom ..report.terminal import print_lines\nfrom ..version import __version__"),
        ("report/terminal.py", "from rich.table import Table\nfrom ..records.run import Run"),
    ],
)
def test_a_right_import_is_let_through(name: str, text: str) -> None:
    assert wrong_imports(name, text) == []


def test_broad_excepts_and_long_functions_are_seen() -> None:
    handler = "try:\n    pass\nexcept {}:\n    {}\n"
    for kind in ("Exception", "BaseException", "(ValueError, Exception)"):
        assert broad_excepts("x.py", handler.format(kind, "pass")) == ["x.py:3"]
    assert broad_excepts("x.py", "try:\n    pass\nexcept:\n    pass\n") == ["x.py:3"]
    assert broad_excepts("x.py", handler.format("ValueError", "pass")) == []
    assert broad_excepts("x.py", handler.format("BaseException", "raise")) == []
    body = "    pass\n" * MOST_FUNCTION_LINES
    assert long_functions("x.py", "def f():\n" + body) and not long_functions("x.py", "def f():\n" + body[9:])


def crowded_folders(names: Iterable[str]) -> list[str]:
    """The folders with more files than one can survey."""
    counts = Counter(name.rpartition("/")[0] for name in names if not name.endswith("__init__.py"))
    return [f"{folder or 'the package'} has {count} files" for folder, count in counts.items() if count > MOST_FILES]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: all but those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types_only(child):
            yield child
            yield from at_run_time(child)


def arrows(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Which files each file imports, wherever in it the import stands."""
    modules = {"/".join(["inductor_bench", name]).removesuffix(".py").removesuffix("/__init__"): name for name in texts}
    found: dict[str, set[str]] = {name: set() for name in texts}
    for name, text in texts.items():
        package = ["inductor_bench", *name.split("/")[:-1]]
        for node in at_run_time(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                base = [*package[: len(package) - node.level + 1]] if node.level else []
                base += node.module.split(".") if node.module else []
                whole = ["/".join([*base, alias.name]) for alias in node.names]
                seen = {one if one in modules else "/".join(base) for one in whole}
            elif isinstance(node, ast.Import):
                seen = {alias.name.replace(".", "/") for alias in node.names}
            else:
                continue
            found[name] |= {modules[one] for one in seen if one in modules} - {name}
    return found


def folder_arrows(files: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same between folders. A folder and the folders within it are one room here."""
    found: dict[str, set[str]] = {}
    for name, others in files.items():
        here = name.rpartition("/")[0]
        for there in (other.rpartition("/")[0] for other in others):
            found.setdefault(here, set())
            found.setdefault(there, set())
            if not f"{here}/".startswith(f"{there}/") and not f"{there}/".startswith(f"{here}/") and here and there:
                found[here].add(there)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            fresh = graph[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        return found

    reach = {node: reached(node) for node in graph}
    groups = {tuple(sorted(other for other in reach[node] if node in reach[other])) for node in graph}
    return [list(group) for group in sorted(groups) if group]


def names_of_two_classes(texts: Iterable[str]) -> list[str]:
    counts = Counter(name for text in texts for name in re.findall(r"^\s*class (\w+)", text, re.MULTILINE))
    return [name for name, count in counts.items() if count > 1]


def test_a_class_has_a_name_of_its_own() -> None:
    callbacks = ["InductorBenchCallback"]  # one for each library of trainings
    assert names_of_two_classes(path.read_text() for path in FILES) == callbacks
    assert names_of_two_classes(["class A:\n    class B(A):", "class B: ..."]) == ["B"]


def test_no_folder_is_crowded() -> None:
    assert crowded_folders(map(name_of, FILES)) == []
    planted = [f"report/{number}.py" for number in range(MOST_FILES)]
    assert crowded_folders([*planted, "report/__init__.py"]) == []
    assert crowded_folders([*planted, "report/more.py"]) == [f"report has {MOST_FILES + 1} files"]


@functools.cache
def arrows_of_package() -> dict[str, set[str]]:
    return arrows({name_of(path): path.read_text() for path in FILES})


def test_no_files_and_no_rooms_import_each_other_in_a_circle() -> None:
    files = arrows_of_package()
    assert circles(files) == []
    assert circles(folder_arrows(files)) == []


def test_circles_are_seen() -> None:
    late = "def f():\n    from . import b"
    assert circles(arrows({"x/a.py": late, "x/b.py": "from .a import f"})) == [["x/a.py", "x/b.py"]]
    types = "if TYPE_CHECKING:\n    from . import b"
    assert circles(arrows({"x/a.py": types, "x/b.py": "from .a import f"})) == []
    rooms = {"x/a.py": "from ..y import c", "y/c.py": "", "y/d.py": "from inductor_bench.x.b import g", "x/b.py": ""}
    assert circles(arrows(rooms)) == [] and circles(folder_arrows(arrows(rooms))) == [["x", "y"]]


def test_each_room_says_what_it_is_for() -> None:
    rooms = [path for path in FILES if path.name == "__init__.py"]
    assert [name_of(path) for path in rooms if not ast.get_docstring(ast.parse(path.read_text()))] == []


def named_imports(text: str, within: str = "") -> set[str] | None:
    """The rooms that a docstring says may be imported; ``None`` if it does not say so.

    Args:
        text: of a room's ``__init__``.
        within: the outer room, of an inner room.
    """
    begins = f"Of ``{within}`` it may import" if within else "It may import"
    found = re.search(
        rf"{re.escape(begins)}([^.;:]*)[.;:]", " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    )
    if found is None:
        return None
    rooms = re.sub(r"\(.*?\)", "", found[1])
    return set(re.findall(r"[a-z]+", rooms)) - {"and", "no", "other", "room"}


def test_each_room_names_the_rooms_that_it_may_import() -> None:
    rooms = {room: allowed - LEAVES - {""} for room, allowed in ROOMS.items() if room and (PACKAGE / room).is_dir()}
    for room, allowed in {**rooms, **INNER}.items():
        text = (PACKAGE / room / "__init__.py").read_text()
        assert named_imports(text, room.rpartition("/")[0]) == allowed, room
    assert named_imports('"""It may import a, b (for c) and\nd. More."""') == {"a", "b", "d"}
    assert named_imports('"""X. Of ``a`` it may import no other room."""', "a") == set()
    assert named_imports('"""X. Of ``a`` it may import ``b``."""') is None


def wrong_arrows(files: Mapping[str, set[str]]) -> list[str]:
    """The imports from one inner room into another that is closed to it."""
    wrong = []
    for name, others in files.items():
        outer, inner = [*name.split("/"), ""][:2]
        for other in sorted(others):
            beside = other.split("/")
            closed = (
                len(beside) > 2 and beside[0] == outer and beside[1] not in {inner, *INNER.get(f"{outer}/{inner}", ())}
            )
            if f"{outer}/{inner}" in INNER and closed:
                wrong.append(f"{name} may not import {other}")
    return wrong


def test_inner_rooms_keep_to_their_arrows() -> None:
    assert wrong_arrows(arrows_of_package()) == []
    planted = {"worker/upstream/a.py": "from ..device import b", "worker/device/b.py": "from ..upstream.a import x"}
    assert wrong_arrows(arrows(planted)) == ["worker/upstream/a.py may not import worker/device/b.py"]


def requests_by_hand(name: str, text: str) -> list[str]:
    """Requests that are built as dictionaries, and not as dataclasses of ``messages``."""
    tagged = re.compile(r"""["']do["']\s*:|\bdo=["']""")
    return [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if tagged.search(line)]


def test_requests_are_dataclasses() -> None:
    found = [place for path in FILES for place in requests_by_hand(name_of(path), path.read_text())]
    assert found == []
    assert requests_by_hand("x.py", 'session.ask({"do": "load"})\nask(do="drop")\nask(Load(1))') == ["x.py:1", "x.py:2"]


def untyped_records(name: str, text: str) -> list[str]:
    """The places outside the edges and the harness that say ``dict[str, Any]``."""
    is_edge = name.startswith("source/harness/") or any(name in names for names in EDGES.values())
    if is_edge or "any]" not in text.lower():
        return []
    nodes = (node for node in nodes_of(text) if isinstance(node, ast.Subscript))
    return [f"{name}:{node.lineno}" for node in nodes if ast.unparse(node).lower() == "dict[str, any]"]


def test_only_the_edges_hold_dictionaries_of_anything() -> None:
    assert [place for path in FILES for place in untyped_records(name_of(path), path.read_text())] == []
    planted = "Fields = dict[str, Any]\ndef f(a: Dict[str, Any] | None) -> dict[str, int]: ...\nx: dict[str, object]"
    assert untyped_records("report/html.py", planted) == ["report/html.py:1", "report/html.py:2"]
    assert untyped_records("cli/compare.py", planted) == []


def test_each_edge_is_needed() -> None:
    edges = [name for names in EDGES.values() for name in names]
    assert len(edges) == len(set(edges))
    assert [name for name in edges if "dict[str, Any]" not in (PACKAGE / name).read_text()] == []


FORMAT_NAMES = {name for table in RESULTS.values() for name in table.names}
FORMAT_TABLES = re.compile(r"report/formats\.py")


def is_format_name(node: ast.expr | None) -> bool:
    """Whether an expression is the name of a format, or a list of nothing but such names."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return bool(node.elts) and all(map(is_format_name, node.elts))
    return isinstance(node, ast.Constant) and node.value in FORMAT_NAMES


def format_names(name: str, text: str) -> list[str]:
    """The places outside the tables of formats that choose by the name of a format, or list such names."""
    if FORMAT_TABLES.fullmatch(name) or room_of(name) not in ("cli", "report", "workflows"):
        return []
    found = []
    for node in nodes_of(text):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            parts = [*node.keys]
        elif isinstance(node, ast.Call):
            parts = [argument for argument in node.args if isinstance(argument, ast.List | ast.Tuple)]
        if any(is_format_name(part) for part in parts):
            found.append(f"{name}:{node.lineno}")
    return found


def test_the_names_of_formats_stand_in_their_tables_only() -> None:
    assert [place for path in FILES for place in format_names(name_of(path), path.read_text())] == []
    assert {"table", "json", "csv", "md"} <= FORMAT_NAMES
    planted = (
        'if form == "json":\n    pass',
        'show = {"csv": f}[form]',
        'click.Choice(["table", "md"])',
        "f(('json',))",
    )
    for text in planted:
        assert format_names("cli/kernel.py", text) == ["cli/kernel.py:1"]
        assert format_names("report/formats.py", text) == []


def own_files() -> list[str]:
    """The files of the project: those that git tracks, or the package's if there is no checkout."""
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
        if listed.returncode == 0 and listed.stdout:
            return listed.stdout.splitlines()
    return [str(path.relative_to(ROOT)) for path in FILES]


def test_nothing_names_a_machine() -> None:
    # Spelt in two halves, so that this file does not find itself.
    words = ["/wo" + "rk/", "/tmp" + "/tv", "/ro" + "ot/", ".pyenv" + "/"]
    found = []
    for name in own_files():
        # Recorded modules and traces hold paths of the machine that they were recorded on.
        if name.startswith("tests/data/") or not (ROOT / name).is_file():
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {word}" for word in words if word in text]
    assert found == []


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    "statement",
    [
        "import inductor_bench",
        "import inductor_bench.cli.main",
        "from inductor_bench.cli.main import main; main(['--help'])",
    ],
)
def test_starting_loads_nothing_heavy(statement: str) -> None:
    heavy = ["torch", "triton", "matplotlib", "numpy", "rich", "jinja2", "psutil", "duckdb", "asyncio"]
    heavy += ["multiprocessing", "inductor_bench.records", "inductor_bench.report"]
    code = f"{statement}\nimport sys\nprint('LOADED', [name for name in {heavy!r} if name in sys.modules])"
    assert run_python("-c", code).stdout.splitlines()[-1] == "LOADED []"


def test_help_is_little_work() -> None:
    def cpu_seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_python(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(cpu_seconds("-c", "pass") for _ in range(5))
    helped = min(cpu_seconds("-m", "inductor_bench", "--help") for _ in range(5))
    assert helped < 8 * bare, "it is three times as much; an import of torch makes it seventy times as much"
