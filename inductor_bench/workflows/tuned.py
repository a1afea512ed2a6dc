"""Writes ``RUN/tuned``: the configurations in the form that Inductor reads, and a page that says what they are."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..analysis.findings.finding import apply_command, plural, program_words
from ..records.run import Run
from ..source.standalone_header import docstring, plain
from ..store.files import own_folder, remove_file, write_text
from ..store.folder import RunFolder
from ..units import MISSING, seconds
from .pins import PinnedRun, WinnerPin, lookup_table

MODULE, PAGE, TABLE = "tuned.py", "README.md", "lookup_table.json"

_ABOUT = """Configs of Triton kernels, found by retuning {title}.

    import tuned
    model = torch.compile(model, options=tuned.options())

For torch {torch}, Triton {triton} and {device}; anything else is refused."""
_MODULE = '''{about}
import json
from pathlib import Path

TORCH = {torch!r}
TRITON = {triton!r}
DEVICE = {device!r}
TABLE = json.loads(Path(__file__).with_name({table!r}).read_text(encoding="utf-8"))


def options():
    """The options of torch.compile that pin the configs; torch takes either options or a mode, and not both."""
    import torch
    import triton

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    if (torch.__version__, triton.__version__, device) != (TORCH, TRITON, DEVICE):
        found = f"torch {{torch.__version__}}, Triton {{triton.__version__}} and {{device}}"
        wanted = f"torch {{TORCH}}, Triton {{TRITON}} and {{DEVICE}}"
        raise RuntimeError(f"these configs are for {{wanted}}, and this is {{found}}")
    return {{"autotune_lookup_table": TABLE}}
'''


def write_tuned(run: Run, folder: RunFolder, pinned: PinnedRun) -> list[Path]:
    """Writes the folder, over an earlier one; returns its files.

    Raises:
        InductorBenchError: it cannot be written.
    """
    place = folder.path / "tuned"
    own_folder(place)
    table, left = lookup_table(pinned)
    texts = {
        TABLE: json.dumps(table, indent=1, sort_keys=True) + "\n",
        MODULE: _module_text(run),
        PAGE: page(run, folder, pinned, left),
    }
    if not table:
        del texts[TABLE], texts[MODULE]
    for name in (TABLE, MODULE):
        if name not in texts:
            remove_file(place / name)
    for name, text in texts.items():
        write_text(place / name, text)
    return [place / name for name in texts]


def _module_text(run: Run) -> str:
    """The module ``tuned``. The record may be another person's: its texts are literals, or words of the docstring."""
    environment = run.environment
    versions = {"torch": environment.versions.torch, "triton": environment.versions.triton}
    facts = {**versions, "device": environment.device.accelerator}
    words = {name: plain(value or "none") for name, value in {**facts, "title": run.title}.items()}
    return _MODULE.format(about=docstring(_ABOUT.format(**words)), table=TABLE, **facts)


def page(run: Run, folder: RunFolder, pinned: PinnedRun, left: Mapping[str, str]) -> str:
    """The page of the folder, in Markdown; ``left`` has the reasons why kernels are not in the table."""
    environment, kernels = run.environment, pinned.pinned
    device = environment.device.accelerator if pinned.pins.need_gpu else environment.host.cpu
    versions = f"torch {environment.versions.torch}" + (
        f", Triton {environment.versions.triton}" if environment.versions.triton else ""
    )
    where = f"{plain(device or '')} with {plain(versions)}"
    place, program = shlex.quote(folder.path.name), program_words(run)
    tabled = sum(one.pin.kernel_id not in left for one in kernels)
    lines = [
        f"# Tuned configs of {html.escape(plain(run.title))}",
        "",
        f"Faster with another config, by themselves, on {where}: {plural(len(kernels), 'kernel')}.",
        f"Projected saving: {seconds(pinned.predicted_s)} of a step. Proven is what `--verify` measures.",
        "",
        "```bash",
        f"{plain(apply_command(place, program))}             # any program, unchanged",
        f"{plain(apply_command(place, program, '--verify'))}    # and what it saves",
        "```",
        "",
    ]
    if tabled:
        lines += [
            f"In code, for {tabled} of the {len(kernels)} kernels (`lookup_table.json` is Inductor's form):",
            "",
            "```python",
            "import tuned",
            "model = torch.compile(model, options=tuned.options())",
            "```",
            "",
            "Inductor ignores an entry silently if a kernel's code differs. It may still halve `R0_BLOCK` of",
            "a reduction, or start a coordinate descent from the entry; `inductor-bench apply` prevents both.",
            "",
        ]
    lines += ["| kernel | by itself | config | saves per step | in the table |", "|---|---|---|---|---|"]
    lines += [_row(one, pinned, left.get(one.pin.kernel_id, "yes")) for one in kernels]
    if pinned.unpinned:
        lines += ["", "Faster, and not pinned:", ""]
        lines += [
            f"- {_code(one.row.name)} ({one.row.speedup or 1:.2f}x by itself): {plain(one.reason)}"
            for one in pinned.unpinned
        ]
    return "\n".join(lines) + "\n"


def _row(kernel: WinnerPin, pinned: PinnedRun, tabled: str) -> str:
    row = pinned.rows[kernel.kernel_id]
    config = ", ".join(f"{name}={value}" for name, value in kernel.pin.config.items())
    saves = seconds(row.saving_s) if row.saving_s else MISSING
    return f"| {_code(kernel.name)} | {row.speedup or 1:.2f}x | {_code(config)} | {saves} | {tabled} |"


def _code(text: str) -> str:
    """The text as code within a line or a cell of a table in Markdown."""
    shown = plain(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`"
