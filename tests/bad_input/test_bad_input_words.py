"""What is read out of a program's last words."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_bench.launch.process import ProcessResult, find_last_error, find_remedy, find_remedy_of_end
from inductor_bench.messages.observed import Refusal
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store import codec
from inductor_bench.store.files import write_json
from inductor_bench.workflows.modules.program_run import list_program_failures

CHAIN = """step 1
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'lr'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    raise ConfigProblem("no lr")
    ^^^^^^^^^^^^^^^^^^^^
app.config.ConfigProblem: no lr
and a second line

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


RANKS = """\
{output}
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{space}
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-26_12:01:27
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 20378)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-26_12:01:26
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {end}
  error_file: <N/A>
============================================================
"""
RAISED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 19, in <module>
[rank1]: ValueError: no such file
[rank0]: ValueError: of another rank"""


def of_ranks(end: str, output: str = "") -> str:
    return RANKS.format(end=end, output=output, space=" ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (of_ranks("-9 (pid: 18187) (SIGKILL)"), "rank 1 was killed by SIGKILL"),
        (of_ranks("3 (pid: 18187) "), "rank 1 exited with code 3"),
        (of_ranks("1 (pid: 18187) ", RAISED), "rank 1: ValueError: no such file"),
        (of_ranks("unknown"), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
        (CHAIN, "app.config.ConfigProblem: no lr"),
        ('  File "a.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid\n', "SyntaxError: invalid"),
        ("Traceback (most recent call last):\n  File", ""),
        ("all is well\n", ""),
        ("", ""),
    ],
)
def test_the_error_that_ended_a_program(text: str, error: str) -> None:
    assert find_last_error(text) == error


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("InvalidCxxCompiler: No working C++ compiler found in config.cpp.cxx", "install a C++ compiler"),
        ("ModuleNotFoundError: No module named 'torch'", "--python"),
        ("ModuleNotFoundError: No module named 'yaml.loader'", "install yaml.loader "),
        ("TritonMissing: Cannot find a working triton installation", "install triton"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "smaller batch"),
        ("OSError: [Errno 28] No space left on device", "free some space"),
        ("RuntimeError: No CUDA GPUs are available", "sees no CUDA device"),
        ("RuntimeError: operator torchvision::nms does not exist", "install both"),
        ("RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and", "install both"),
        (
            "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend",
            "install both",
        ),
        ("timm is installed but broken: OSError: x", "versions that fit together"),
        ("ValueError: bad", ""),
    ],
)
def test_what_to_do_about_it(error: str, advice: str) -> None:
    assert advice in find_remedy(error) and bool(find_remedy(error)) == bool(advice)


CAUSED = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
RuntimeError: operator torchvision::nms does not exist

{between}

Traceback (most recent call last):
  File "b.py", line 3, in <module>
ModuleNotFoundError: Could not import module 'BertModel'. Are this object's requirements defined correctly?
"""


def test_the_error_that_caused_the_last_one_leads_to_the_hint() -> None:
    caused = "The above exception was the direct cause of the following exception:"
    assert "torchvision does not fit this torch" in find_remedy_of_end(CAUSED.format(between=caused))
    assert find_remedy_of_end(CAUSED.format(between="step 2: the error above was handled")) == ""
    assert find_remedy_of_end("ended without an error") == ""


def test_a_program_and_a_named_model_that_fail_with_torchvision_get_the_same_hint(tmp_path: Path) -> None:
    log, refusal = tmp_path / "program.log", tmp_path / "refusal.json"
    log.write_text(CAUSED.format(between="The above exception was the direct cause of the following exception:"))
    ended = ProcessResult(1, None, False, 1.0, log)
    (of_program,) = list_program_failures(BreakdownRequest("train.py", "script"), ended, refusal, explained=False)
    said = "timm is installed but broken: RuntimeError: operator torchvision::nms does not exist"
    write_json(refusal, codec.encode(Refusal("program", said, "")))
    (of_model,) = list_program_failures(BreakdownRequest("timm:test_vit", "timm"), ended, refusal, explained=False)
    assert "torchvision does not fit this torch" in of_program.hint
    assert of_program.hint == of_model.hint and of_model.message == said
