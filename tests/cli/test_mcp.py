"""The verb ``mcp``: what an agent may call, how jobs are told, cancelled and ended, and what bad clients do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import click
import pytest
from conftest import ROOT
from documented import documented
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import inductor_bench
from inductor_bench.cli.mcp import PAGE_CHARACTERS, Service, make_server, split_into_pages
from inductor_bench.cli.mcp_tools import TOOLS, Permissions, find_command, list_command_words, make_input_schema
from inductor_bench.errors import UsageError
from inductor_bench.report.document_summary import MOST_CHARACTERS

BY_NAME = {one.name: one for one in TOOLS}
ALWAYS = {"what_next", "query", "compare", "show_kernel", "job"}

needs_sdk = pytest.mark.skipif(
    find_spec("mcp_types") is None,
    reason="the package mcp is not installed: pip install 'inductor-bench[mcp]'",
)

STAND_IN = """
import json, os, signal, sys, time
def stop(*_):
    if os.path.exists("hangs"):
        return
    print(json.dumps({"schema": "summary/1", "headline": "1.00 ms a step, so far"}))
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
print("compiling the program", file=sys.stderr, flush=True)
with open("child.part", "w") as file:
    file.write(str(os.getpid()))
os.rename("child.part", "child")  # an exception of the handler, while the file is closed, would be lost
while not os.path.exists("go"):
    time.sleep(0.02)
print("measuring the step", file=sys.stderr, flush=True)
print(json.dumps({"schema": "summary/1", "headline": " ".join(sys.argv[1:])}))
sys.exit(int(open("go").read() or 0))
"""
"""Stands in for a verb: it waits for a file, prints its words as the headline, and what it knows when interrupted."""


# What a tool takes


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_arguments_of_a_tool_are_those_of_its_verb(tool: Any) -> None:
    schema = make_input_schema(tool)
    Draft202012Validator.check_schema(schema)
    named = {str(one.name) for one in find_command(tool.verb).params if isinstance(one, click.Argument)}
    assert named <= set(schema["properties"]) and "format" not in schema["properties"]


def test_every_argument_says_what_it_does_in_which_unit_and_by_default() -> None:
    schemas = Service(Permissions(ROOT, allow_run=True)).schemas
    assert set(schemas) == {*BY_NAME, "show_kernel", "job"}
    for name, (about, schema) in schemas.items():
        assert about.endswith("."), name
        for argument, one in schema["properties"].items():
            text, where = one.get("description", ""), f"{name}.{argument}"
            assert len(text.split()) > 2 and text[0].isupper() | text.startswith(("true: ", "cpu, ")), where
            assert text.endswith((".", "]", "…", "not.")) and "\n" not in text, where
            assert ("default" in text) != (argument in schema["required"]), where
            if one.get("type") == "number":
                assert "seconds" in text, where
    for name, argument in (("optimize", "budget"), ("breakdown", "budget"), ("apply", "proof_time")):
        assert "5m" in schemas[name][1]["properties"][argument]["description"]
    about = {name: schemas["kernel"][1]["properties"][name]["description"] for name in ("check", "fail_above")}
    assert "An edited file is always checked" in about["check"] and "[default: true]" in about["check"]
    assert "false is refused for it" in about["check"]
    assert all(word in about["fail_above"] for word in ("percent", "passed", "slower", "undecided")), "as it answers"
    assert {
        one["description"] for name in ("apply", "compare") for one in [schemas[name][1]["properties"]["fail_above"]]
    } == {about["fail_above"]}


def test_arguments_become_words_that_the_verb_takes() -> None:
    given = {
        "targets": ["a.py"],
        "budget": "5m",
        "training": False,
        "force": True,
        "env": ["A=1", "B=-2"],
        "steps": 3,
        "command": ["python", "b.py", "--c"],
    }
    words = list_command_words(BY_NAME["optimize"], given)
    assert words == [
        *("optimize", "--budget=5m", "--env=A=1", "--env=B=-2", "--inference", "--steps=3", "--force", "a.py"),
        *("--", "python", "b.py", "--c"),
    ]
    assert list_command_words(BY_NAME["kernel"], {"targets": ["k.py"], "compare": "l.py", "check": True}) == [
        *("kernel", "--compare=l.py", "--check", "k.py")
    ]
    assert list_command_words(BY_NAME["apply"], {"run": "runs/a", "verify": False}) == ["apply", "runs/a"]
    longer = {"run": "runs/a", "verify": True, "proof_time": "5m", "command": ["python", "b.py"]}
    assert list_command_words(BY_NAME["apply"], longer) == [
        *("apply", "--verify", "--proof-time=5m", "runs/a", "--", "python", "b.py")
    ]


@pytest.mark.parametrize(("name", "given"), [("query", {"folder": "-x"}), ("breakdown", {"targets": ["--output=/x"]})])
def test_an_argument_is_not_taken_for_an_option(name: str, given: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError, match="begins with -") as refused:
        list_command_words(BY_NAME[name], given)
    assert refused.value.id == "bad-word"


def test_the_calls_of_the_page_are_valid() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    calls = re.findall(r"`(\w+) (\{.*?\})`", page)
    schemas = Service(Permissions(ROOT, allow_run=True)).schemas
    for name, words in calls:
        Draft202012Validator(schemas[name][1]).validate(json.loads(words))
    assert {name for name, _ in calls} >= {"breakdown", "what_next", "optimize", "apply", "kernel", "compare"}


# What is allowed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    (place / "runs").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (place / "link").symlink_to(tmp_path / "outside")
    (place / "link.py").symlink_to(tmp_path / "outside" / "x.py")
    (place / "circle").symlink_to(place / "circle")
    return place


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("what_next", {"folder": ".."}),
        ("what_next", {"folder": "/etc"}),
        ("what_next", {"folder": "link/run"}),
        ("query", {"folder": "runs/../../outside", "sql": "FROM kernels"}),
        ("compare", {"targets": ["runs/a", "../b"]}),
        ("breakdown", {"targets": ["link.py:make"]}),
        ("breakdown", {"targets": ["a.py"], "output": "link/run"}),
        ("optimize", {"targets": ["runs/a"], "output": "../b"}),
        ("kernel", {"targets": ["link.py#triton_*"]}),
        ("kernel", {"targets": ["a.py"], "save": "/tmp/b.py"}),
        ("kernel", {"targets": ["a.py"], "compare": "../b.py"}),
        ("apply", {"run": "circle/../../outside"}),
        ("what_next", {"folder": "a\0b"}),
    ],
)
def test_no_path_leads_out_of_the_folder(name: str, given: Mapping[str, Any], root: Path) -> None:
    with pytest.raises(UsageError) as refused:
        Permissions(root, allow_run=True).check(BY_NAME[name], given)
    assert refused.value.id == "outside-root"


def test_paths_in_the_folder_are_allowed_and_an_interpreter_lies_elsewhere(root: Path) -> None:
    allowed = Permissions(root, allow_run=True)
    allowed.check(BY_NAME["breakdown"], {"targets": ["timm:resnet18"], "python": "/usr/bin/python3"})
    allowed.check(BY_NAME["kernel"], {"targets": ["runs/a#triton_*", str(root / "runs" / "b.py")], "compare": "c.py"})
    assert allowed.inside("") == root and allowed.inside("#a") == root / "#a"
    allowed.check(BY_NAME["query"], {"folder": "runs/a", "sql": "SELECT 1/2 FROM kernels -- ../x"})
    (root / "modes").symlink_to(root.parent / "outside")
    with pytest.raises(UsageError, match="modes is outside"):
        allowed.check(BY_NAME["breakdown"], {"targets": ["a.py"]})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("breakdown", {"targets": ["a.py"]}),
        ("optimize", {"targets": ["runs/a"]}),
        ("kernel", {"targets": ["runs/a#b"]}),
        ("apply", {"run": "runs/a"}),
        ("compare", {"targets": ["a.py"]}),
        ("compare", {"targets": ["runs/a", "runs/b"], "command": ["python", "a.py"]}),
    ],
)
def test_programs_are_run_only_if_the_person_who_starts_the_server_allows_it(
    name: str, given: Mapping[str, Any], root: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        Permissions(root).check(BY_NAME[name], given)
    assert refused.value.id == "not-allowed" and "--allow-run" in refused.value.hint
    Permissions(root, allow_run=True).check(BY_NAME[name], given)
    Permissions(root).check(BY_NAME["compare"], {"targets": ["runs/a", "runs/b"]})


# Answers


@given(st.text(alphabet=st.sampled_from('ab\n"\\\x01é漢'), max_size=30), st.integers(1, 3000))
def test_pages_hold_the_text_and_are_short(text: str, times: int) -> None:
    found = split_into_pages(text * times)
    assert "".join(found) == text * times
    assert all(len(json.dumps(one, ensure_ascii=False)) - 2 <= PAGE_CHARACTERS for one in found)


# Sessions


@asynccontextmanager
async def session(
    root: Path, *, allow_run: bool = True, stands_in: bool = True, mode: str = "auto"
) -> AsyncIterator[Any]:
    """A client of a server in this process. By default a stand-in answers instead of the verbs."""
    from mcp import Client

    program = [sys.executable, "-c", STAND_IN] if stands_in else []
    async with Client(make_server(Service(Permissions(root, allow_run), program)), mode=mode) as client:
        yield client


def run(test: Callable[[], Any]) -> None:
    """Runs an asynchronous test."""
    import anyio

    async def limited() -> None:
        with anyio.fail_after(300):
            await test()

    anyio.run(limited)


def checked(result: Any) -> Any:
    """The data of an answer, which is short, as its text and as its schema says."""
    data = result.structured_content
    Draft202012Validator(inductor_bench.schema(data["schema"])).validate(data)
    first = json.loads(result.content[0].text)
    assert first == {key: value for key, value in data.items() if key != "text"}
    assert len(json.dumps(data, ensure_ascii=False)) <= MOST_CHARACTERS
    assert result.is_error == (data["state"] == "failed")
    return data


async def until(is_so: Callable[[], bool]) -> None:
    import anyio

    while not is_so():
        await anyio.sleep(0.02)


def is_alive(root: Path) -> bool:
    """Whether the stand-in still runs."""
    try:
        os.kill(int((root / "child").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


@needs_sdk
def test_the_tools_are_few_words_with_the_published_schema(root: Path) -> None:
    async def look() -> None:
        async with session(root) as client, session(root, allow_run=False) as reading:
            every, few = (await client.list_tools()).tools, (await reading.list_tools()).tools
        assert {one.name for one in every} == {*BY_NAME, *ALWAYS} and {one.name for one in few} == ALWAYS
        assert sum(len(json.dumps(one.input_schema) + one.description) for one in every) < 22_300
        schema = every[0].output_schema
        assert schema["$id"] == "tool-answer/1" and set(schema["$defs"]) >= {"Summary", "ErrorReport"}

    run(look)


@needs_sdk
def test_a_job_tells_its_progress_and_its_result(root: Path) -> None:
    said: list[str] = []

    async def note(seconds: float, total: float | None, message: str | None) -> None:
        said.append(message or "")
        (root / "go.part").write_text("4")
        (root / "go.part").replace(root / "go")  # the job never reads half of it

    async def call() -> None:
        async with session(root) as client:
            words = {"targets": ["a", "b"], "fail_above": "5%"}
            result = await client.call_tool("compare", words, progress_callback=note)
        data = checked(result)
        assert (data["state"], data["exit_code"], data["verdict"]) == ("done", 4, "slower")
        assert data["summary"]["headline"] == "compare --format json --fail-above=5% a b" and "error" not in data
        assert said[0] == "compiling the program"

    run(call)


@needs_sdk
def test_a_call_answers_in_time_and_the_job_goes_on(root: Path) -> None:
    async def call() -> None:
        async with session(root) as client:
            first = checked(await client.call_tool("optimize", {"command": ["a"], "wait_s": 0.3}))
            assert (first["state"], first["job"]) == ("running", 1) and "exit_code" not in first
            busy = checked(await client.call_tool("breakdown", {"command": ["a"]}))
            assert busy["error"]["id"] == "busy" and "job 1 (optimize)" in busy["error"]["cause"]
            words = {"targets": ["a", "b"], "wait_s": 0}
            states = [checked(await client.call_tool("compare", words))["state"] for _ in range(4)]
            assert states == ["running"] * 3 + ["failed"], "one that measures, and three that read"
            (root / "go.part").write_text("5")
            (root / "go.part").replace(root / "go")
            last = checked(await client.call_tool("job", {"job": 1}))
            assert (last["state"], last["job"], last["verdict"]) == ("done", 1, "undecided")
            whole = checked(await client.call_tool("job", {"job": 1, "page": 1}))
            assert '"schema": "summary/1"' in whole["text"] and whole["pages"] == 1
            for wrong, name in (({"job": 9}, "no-such-job"), ({"job": 1, "page": 2}, "bad-word")):
                assert checked(await client.call_tool("job", wrong))["error"]["id"] == name

    run(call)


@needs_sdk
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_cancelled_call_interrupts_its_job_which_says_what_it_knows(root: Path, mode: str) -> None:
    import anyio

    async def call() -> None:
        async with session(root, mode=mode) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "breakdown", {"command": ["a"]})
                await until((root / "child").exists)
                tasks.cancel_scope.cancel()
            data = checked(await client.call_tool("job", {}))
            assert (data["state"], data["exit_code"]) == ("stopped", 130)
            assert data["summary"]["headline"] == "1.00 ms a step, so far"

    run(call)
    assert not is_alive(root)


@needs_sdk
def test_a_job_is_ended_on_demand_even_if_it_does_not_hear(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_bench.cli.mcp.STOP_S", 0.2)
    (root / "hangs").touch()

    async def call() -> None:
        async with session(root) as client:
            await client.call_tool("breakdown", {"command": ["a"], "stop": True, "wait_s": 0})
            await until((root / "child").exists)
            assert checked(await client.call_tool("job", {"wait_s": 0}))["state"] == "running"
            data = checked(await client.call_tool("job", {"stop": True}))
            assert (data["state"], data["exit_code"]) == ("stopped", 143) and "summary" not in data

            assert "--stop" in data["command"] and "text" not in data

    run(call)
    assert not is_alive(root)


@needs_sdk
def test_at_the_end_of_the_client_no_job_is_left(root: Path) -> None:
    async def call() -> None:
        async with session(root) as client:
            await client.call_tool("breakdown", {"command": ["a"], "wait_s": 0})
            await until((root / "child").exists)

    run(call)
    assert not is_alive(root)


@needs_sdk
@pytest.mark.parametrize(
    ("name", "words", "error"),
    [
        ("frob", {}, "bad-word"),
        ("what_next", {}, "bad-word"),
        ("what_next", {"folder": 3}, "bad-word"),
        ("what_next", {"folder": "runs/a", "frob": 1}, "bad-word"),
        ("optimize", {"steps": 0}, "bad-word"),
        ("optimize", {"mode": "fast"}, "bad-word"),
        ("query", {"folder": "runs", "sql": "x" * 10_000_000}, "too-large"),
        ("query", {"folder": "runs", "sql": "SELECT '\ud800'"}, "bad-word"),
        ("breakdown", {"command": ["a\0b"]}, "bad-word"),
        ("breakdown", {"command": []}, "missing-target"),
        ("what_next", {"folder": "", "wait_s": float("nan")}, "no-such-folder"),
        ("show_kernel", {"run": "../a", "kernel": "1"}, "outside-root"),
        ("show_kernel", {"run": "runs", "kernel": "1"}, "no-record"),
    ],
)
def test_nonsense_is_refused_with_a_reason(name: str, words: Mapping[str, Any], error: str, root: Path) -> None:
    service = Service(Permissions(root, allow_run=True))

    async def call() -> None:
        async with service.jobs.running():
            data = await service.call(name, words, _silent)
        assert data["error"]["id"] == error and len(json.dumps(data)) < 4000

    run(call)


async def _silent(seconds: float, total: float | None, message: str | None) -> None:
    """Tells nobody."""


# The command


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with ZipFile(ROOT / "tests" / "data" / "documented" / "train.zip") as archive:
        archive.extractall(tmp_path / "runs" / "train")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def served(recorded: Path) -> Iterator[subprocess.Popen[str]]:
    """The server as a client starts it."""
    words = documented("inductor-bench mcp --root . --allow-run")
    child = subprocess.Popen(
        [sys.executable, "-m", "inductor_bench", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield child
    child.kill()
    child.wait()


def send(child: subprocess.Popen[str], number: int | None, method: str, **params: Any) -> None:
    assert child.stdin is not None
    data = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
    child.stdin.write(json.dumps(data) + "\n")
    child.stdin.flush()


def answer(child: subprocess.Popen[str], number: int) -> Any:
    assert child.stdout is not None
    for line in child.stdout:
        data = json.loads(line)
        if data.get("id") == number:
            return data["result"]
    raise AssertionError("the server has ended")


@needs_sdk
def test_a_client_sends_nonsense_and_leaves_in_the_middle_of_a_job(
    served: subprocess.Popen[str], recorded: Path
) -> None:
    assert served.stdin is not None
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    served.stdin.write("no json\n[1, 2]\n" + "x" * 10_000_000 + "\n")
    send(served, 1, "initialize", **about)
    assert answer(served, 1)["serverInfo"]["name"] == "inductor-bench"
    send(served, None, "notifications/initialized")
    send(served, 2, "tools/call", name="what_next", arguments={"folder": "runs/train"})
    data = answer(served, 2)["structuredContent"]
    assert data["state"] == "done" and data["summary"]["headline_id"] == "step"
    (recorded / "sleep.py").write_text(
        "import os, time\nopen('child', 'w').write(str(os.getpid()))\ntime.sleep(3600)\n"
    )
    send(served, 3, "tools/call", name="breakdown", arguments={"command": [sys.executable, "sleep.py"], "wait_s": 3600})
    end_s = time.monotonic() + 300
    while not (recorded / "child").exists() or not (recorded / "child").read_text():
        assert time.monotonic() < end_s, "the program has not begun"
        time.sleep(0.05)
    served.stdin.close()
    assert served.wait(300) == 0
    assert not is_alive(recorded)


@needs_sdk
def test_the_server_is_ended_by_a_signal(served: subprocess.Popen[str]) -> None:
    send(served, 1, "ping")
    answer(served, 1)
    served.send_signal(signal.SIGTERM)
    assert served.wait(300) == 143


def test_without_the_package_the_server_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from inductor_bench.cli.main import main

    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert main(documented("inductor-bench mcp --root .")) == 1
    assert "pip install 'inductor-bench[mcp]'" in capsys.readouterr().err
