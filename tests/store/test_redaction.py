"""Secrets that a program is given: they reach the program, and no file of a RUN or a batch."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import pytest

import inductor_bench
from inductor_bench.cli import main as entry
from inductor_bench.errors import UsageError
from inductor_bench.launch.process import run_process
from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import (
    CallPlace,
    Evidence,
    GraphCallers,
    HostSamples,
    ModuleEvidence,
    ObservedGraph,
    ObservedSteps,
    SampledFrame,
    StepEvidence,
)
from inductor_bench.store import codec
from inductor_bench.store.redaction import MASK, VARIABLE, Redaction, list_requested_names

ARGUMENT, VALUE, ASKED = "S3CRET-argument-1", "S3CRET/variable+2", "S3CRET=asked 3"
WORDS = (f"--api-key={ARGUMENT}", "--user-id", ASKED, "--tokenizer", "gpt2", "--pin", "97")
PRINTS = "import os, sys\nprint(sys.argv[1:], os.environ['HF_TOKEN'], flush=True)\n"
FAILS = PRINTS + "raise ValueError(f'{sys.argv[1]}, {os.environ[\"HF_TOKEN\"]}: refused')\n"
LITERALS = """
import os, time, torch, inductor_bench

def connect(x, api_key="", token=None, url="", headers=()):
    time.sleep(2e-3)
    return x

class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.relu(x) * 2; api_key = "sk-S3CRET1"
        torch._dynamo.graph_break(); token = 'S3CRET-2'
        x = torch.softmax(x + 1, -1); options = {"password": "S3CRET 3", "lr": 1e-3}
        return x @ x.T; secret = "S3CRET-4"

net = torch.compile(Net())
os.environ["HF_TOKEN"] = "hf_S3CRET5"
print('logging in with', dict(token="S3CRET-6"), flush=True)
torch.set_num_threads(1)
for _ in range(1200):
    y = net(torch.ones(64, 64)); headers = {"Authorization": "Bearer S3CRET7"}
    connect(y, api_key="S3CRET-8", token="S3CRET-9")
    connect(y, url="postgres://me:S3CRET10@host/db", headers={"X-Api-Key": 'S3CRET-11'})
    inductor_bench.step()
raise SystemExit(connect(y[:0], token="S3CRET-12").item(0, password="S3CRET-13"))
"""
"""A program whose compiled lines, whose lines that wait, and whose last line hold keys."""

COMPILES = PRINTS + "import torch\nprint(torch.compile(lambda x: (x + 1).relu() * 2)(torch.ones(64, 64)).sum())\n"


def spilt(folder: Path) -> list[str]:
    """The files of a folder in which a secret stands, packed ones included."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    data = b"".join(archive.read(name) for name in archive.namelist())
            found += [str(path)] if b"S3CRET" in data or b"S3CRET" in path.name.encode() else []
    return found


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("--api-key=abc --hf_token=a --wandb.api-key x", "--api-key=*** --hf_token=*** --wandb.api-key ***"),
        ("--TOKEN abc -token abc --token --other v", "--TOKEN *** -token *** --token --other v"),
        ("API_KEY=abc +db/password=p ++a.apiKey=x", "API_KEY=*** +db/password=*** ++a.apiKey=***"),
        ("--secret-access-key-2 abc --PGPASSWORD=x", "--secret-access-key-2 *** --PGPASSWORD=***"),
        ("--set=model.token=abc --env=NAME=v", "--set=model.token=*** --env=NAME=v"),
        (
            "--password 1234 --passphrase=0 --key 8 --api-token 2",
            "--password *** --passphrase=*** --key 8 --api-token 2",
        ),
        ("--use-auth true --password= --pad-token <pad>", "--use-auth true --password= --pad-token <pad>"),
        ("--tokenizer gpt2 --max_new_tokens many --n-keys all", "--tokenizer gpt2 --max_new_tokens many --n-keys all"),
        ("--keyboard a --key-dim b --author c --monkey d", "--keyboard a --key-dim b --author c --monkey d"),
        ("--url=s3://user:pw@host/p?token=x&n=1", "--url=s3://user:***@host/p?token=***&n=1"),
        ("https://abcdefghijklmnop@host ssh://git@host/x", "https://***@host ssh://git@host/x"),
    ],
)
def test_the_name_tells_a_secret(typed: str, shown: str) -> None:
    words = Redaction().words(typed.split())
    assert " ".join(words) == shown
    assert Redaction().words(words) == words


def test_words_that_hold_more_than_one_thing() -> None:
    given = ['{"api_key": "a b", "lr": "1e-3"}', "Authorization: Bearer abc", "X-Api-Key: abc", "a sentence: abc"]
    shown = ['{"api_key": "***", "lr": "1e-3"}', "Authorization: ***", "X-Api-Key: ***", "a sentence: abc"]
    assert list(Redaction().words(given)) == shown


def test_names_that_are_asked_for() -> None:
    hidden = Redaction.find([], {VARIABLE: "seat"}, ["user-id", "p"])
    words = [
        "--user-id",
        "7",
        "-p",
        "true",
        "--db.USER_ID=x",
        "--userid",
        "y",
        "--top-p",
        "z",
        "--seats",
        "1",
        "seat=2",
    ]
    shown = ["--user-id", MASK, "-p", MASK, f"--db.USER_ID={MASK}", "--userid", "y", "--top-p", MASK, "--seats", "1"]
    assert list(hidden.words(words)) == [*shown, f"seat={MASK}"]
    assert hidden.variables == {VARIABLE: "user-id,p,seat"}
    with pytest.raises(UsageError, match="names nothing"):
        Redaction.find([], {}, ["--"])


def test_secrets_in_running_text(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.touch()
    variables = {
        "HF_TOKEN": VALUE,
        "NAME": "plain value",
        "A_KEY": str(file),
        "B_KEY": "short",
        "PROXY": "x://u:pa55wo@h",
    }
    hidden = Redaction.find(
        [["--api-key", ARGUMENT, "--token"], ["an argument", "--key", "two\nlonger lines"]], variables
    )
    said = f"{ARGUMENT} {VALUE} S3CRET%2Fvariable%2B2 plain value {file} short pa55wo an argument longer lines"
    assert hidden.text(said) == f"*** *** *** plain value {file} short *** an argument ***"
    header = "Authorization: Bearer x, 'authorization': 'Basic YTpi' bearer abc12345 bearer certificates http://a:b@c"
    shown = "Authorization: Bearer ***, 'authorization': 'Basic ***' bearer *** bearer certificates http://a:***@c"
    assert hidden.text(header) == hidden.text(shown) == shown


def test_the_evidence_of_a_program_holds_no_secret() -> None:
    """A note, the reason of a refusal and a line of the program may repeat what the program was given."""
    graph = ObservedGraph("", cuda_graph_refusal=f"refused {VALUE}")
    frame = SampledFrame("train.py", "f", 3, "own", code=f"get({VALUE!r})", called="get")
    samples = HostSamples((frame,), (-1,), (0,), (), 1, 1.0, (), sees_device=True)
    line = SourceLine("train.py", 3, "f", f"model({ARGUMENT!r})")
    callers = (GraphCallers(0, (line,), (0,)),)
    notes = f"a {VALUE}", "plain"
    steps = ObservedSteps(
        *(1, "cpu", "done"), graphs=(graph,), callers=callers, samples=samples, error=ARGUMENT, notes=notes
    )
    place = CallPlace("Net", line)
    module = ModuleEvidence("forward", "forward", f"/tmp/{ARGUMENT}/module.py")
    seen = Evidence((module,), (StepEvidence(steps, places=(place, CallPlace())),))
    hidden = Redaction(values=(ARGUMENT, VALUE)).evidence(seen)
    assert "S3CRET" not in json.dumps(codec.encode(hidden)) and json.dumps(codec.encode(hidden)).count(MASK) == 7
    assert Redaction().evidence(seen) == seen


def test_a_log_holds_no_secret_and_the_listener_hears_what_was_said(tmp_path: Path) -> None:
    heard: list[str] = []
    command = [sys.executable, "-c", PRINTS, f"--token={ARGUMENT}"]
    log = tmp_path / "log"
    run_process(command, environment={"HF_TOKEN": VALUE}, log=log, timeout_s=60, on_line=heard.append)
    assert log.read_text() == f"['--token={MASK}'] {MASK}\n" and heard == [f"['--token={ARGUMENT}'] {VALUE}"]


def test_a_program_that_fails_with_its_secrets(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FAILS)
    done = runs.breakdown(tmp_path / "run", script, "--redact", "user-id", "--redact=pin", "--", *WORDS, HF_TOKEN=VALUE)
    assert done.code == 1 and spilt(tmp_path / "run") == [] and "S3CRET" not in done.printed
    shown = ["--api-key=***", "--user-id", "***", "--tokenizer", "gpt2", "--pin", "***"]
    assert done.record["request"]["arguments"] == shown and done.record["title"] == " ".join(["script.py", *shown])
    (failure,) = done.record["failures"]
    assert failure["message"].endswith("ValueError: --api-key=***, ***: refused") and failure["log_tail"]
    assert (tmp_path / "run" / "logs" / "program.log").read_text().startswith("['--api-key=***', '--user-id', '***'")
    shown_again = runs.run(runs.command("report", tmp_path / "run", "--no-plots"), tmp_path / "run")
    assert shown_again.code == 0 and "--api-key=***" in shown_again.stdout


def test_a_name_that_names_nothing_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    done = runs.breakdown(tmp_path / "run", tmp_path / "script.py", "--redact", "")
    assert done.code == 2 and "names nothing" in done.stderr and not (tmp_path / "run").exists()


def test_one_name_in_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv)")
    run = inductor_bench.breakdown(
        script, arguments=("--seat", "window"), redact="seat", output=tmp_path / "run", plots=False
    )
    assert run.request.arguments == ("--seat", MASK) and "window" not in (tmp_path / "run" / "record.json").read_text()


def test_the_log_of_a_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"about {ARGUMENT}")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(entry.group, "main", fail)
    assert entry.main(["breakdown", "--redact=seat", "s.py", "--", "--token", ARGUMENT, "--seat=S3CRET"]) == 3
    (log,) = tmp_path.glob("*.log")
    assert "'--token', '***', '--seat=***']" in log.read_text() and spilt(tmp_path) == []
    assert "about ***" in capsys.readouterr().err
    assert list_requested_names(["--redact", "a", "--redact=b", "--", "--redact", "c"]) == ("a", "b")


@pytest.mark.slow
def test_keys_in_the_program_itself_are_in_no_file_of_a_run_and_of_what_is_made_of_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LITERALS)
    run, extracted, bundle = tmp_path / "out" / "run", tmp_path / "out" / "kernels", tmp_path / "out" / "bundle.zip"
    done = runs.breakdown(run, script, "--stop")
    assert len(done.record["modules"]) == 2 and "S3CRET" not in done.printed
    assert done.record["program"]["host"]["samples"], "its lines were sampled"
    lines = [frame.get("code", "") for frame in evidence_of(run)["processes"][0]["steps"]["samples"]["frames"]]
    assert any('token="***"' in line for line in lines)
    assert any('api_key = \\"***' in path.read_text() for path in (run / "modules").glob("*")), "they were compiled"
    commands = (
        ("report", run, "--no-plots"),
        ("breakdown", run, "--no-plots"),
        ("extract", run, "-o", extracted),
        ("compare", run, run, "--bundle", bundle),
        *([("query", run, "select * from kernels")] if importlib.util.find_spec("duckdb") else []),
    )
    for words in commands:
        ended = runs.run(runs.command(*words), run, **runs.forks())
        failed = done.code if words[0] == "breakdown" else 0  # 1 if the program came to its last line
        assert ended.code == failed and "S3CRET" not in ended.printed, words
    assert spilt(tmp_path / "out") == [] and bundle.stat().st_size and list(extracted.glob("*.py"))


def evidence_of(run: Path) -> Any:
    return json.loads((run / "evidence.json").read_text())


@pytest.mark.corner
@pytest.mark.slow
def test_a_batch_holds_no_secret_goes_on_and_can_be_analysed_again(tmp_path: Path) -> None:
    for name, text in (("fails", FAILS), ("compiles", COMPILES)):
        (tmp_path / f"{name}.py").write_text(text)
    words = json.dumps(WORDS)
    listed = "".join(f"  - {{target: {tmp_path / name}.py, args: {words}}}\n" for name in ("fails", "compiles"))
    (tmp_path / "list.yaml").write_text(f"models:\n{listed}")
    batch = tmp_path / "batch"
    command = runs.command("batch", tmp_path / "list.yaml", "-o", batch, "--no-plots", "--device", "cpu")
    command += ["--redact", "user-id", "--live"]
    first = runs.run(command, batch, HF_TOKEN=VALUE, **runs.forks())
    assert first.code == 1 and spilt(batch) == [] and "S3CRET" not in first.printed

    def states() -> dict[str, tuple[str, str | None]]:
        models = json.loads((batch / "batch.json").read_text())["models"]
        assert all(model["request"]["arguments"][:3] == ["--api-key=***", "--user-id", "***"] for model in models)
        return {
            model["request"]["name"]: (model["status"], (model["failure"] or {}).get("message")) for model in models
        }

    before = states()
    assert before["compiles"] == ("done", None) and "--api-key=***, ***: refused" in (before["fails"][1] or "")
    second = runs.run(command, batch, HF_TOKEN=VALUE, **runs.forks())
    assert second.code == 1 and "1 of 2 are there already" in second.stderr and spilt(batch) == []
    assert ARGUMENT.encode() not in (batch / "logs" / "fails.log").read_bytes()
    assert states()["fails"][0] == "failed" and "--api-key=***, ***: refused" in (states()["fails"][1] or "")
    listing = runs.run([*command, "--list"], batch, HF_TOKEN=VALUE)
    assert listing.stdout.count("--api-key=*** --user-id ***") == 2 and "S3CRET" not in listing.printed

    run = batch / "models" / "compiles"
    assert list((run / "traces").glob("*.gz")) and list((run / "kernels").glob("*.py"))
    record = json.loads((run / "record.json").read_text())
    assert [module["method"] for module in record["modules"]] == ["live"]
    analysed = runs.run(runs.command("breakdown", run, "--no-plots"), run, HF_TOKEN=VALUE)
    assert analysed.code == 0 and analysed.record["request"] == record["request"]
    assert analysed.record["modules"] == record["modules"] and spilt(batch) == []
