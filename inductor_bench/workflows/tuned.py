"""Writes and reads ``RUN/tuned``: configs and edits for later, also in the form that Inductor reads, and a page."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..analysis.findings.finding import list_program_words, plural, write_apply_command
from ..messages.observed import Pins
from ..records.base import FileName
from ..records.edit import EditPin
from ..records.run import AcceleratorFacts, Environment, Host, Run, Versions
from ..source.edited import read_edit
from ..source.standalone_header import make_plain_line, write_docstring
from ..store import codec
from ..store.files import (
    find_file_inside,
    own_folder,
    read_json,
    refuse_link,
    remove_file,
    write_bytes,
    write_json,
    write_text,
)
from ..store.folder import RunFolder
from ..units import MISSING, seconds
from .pins import PinnedRun, WinnerPin, edit_pin, join_pins, lookup_table, require_made_for

MODULE, PAGE, TABLE, RECORD = "tuned.py", "README.md", "lookup_table.json", "tuned.json"
KERNELS = "kernels"
"""The folder of the edited files in ``RUN/tuned``."""

FORMAT = 1
_PLAIN = re.compile(r"\w{1,200}", re.ASCII)


@dataclass(frozen=True)
class TunedRecord:
    """What ``RUN/tuned`` holds: ``tuned.json``."""

    format: int
    title: str  # of the RUN
    environment: Environment  # what it is for: the versions and the devices alone
    pins: Pins  # without the edits, which are files of their own
    edits: tuple[FileName, ...] = ()  # the names of these files in the folder ``kernels``


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
    """Writes the folder, over an earlier one; returns the names of its files.

    Raises:
        InductorBenchError: it cannot be written.
    """
    place = folder.path / "tuned"
    own_folder(place)
    table, left = lookup_table(pinned)
    texts = {
        TABLE: json.dumps(table, indent=1, sort_keys=True) + "\n",
        MODULE: _write_module(run),
        PAGE: write_page(run, folder, pinned, left),
    }
    if not table:
        del texts[TABLE], texts[MODULE]
    for name in (TABLE, MODULE):
        if name not in texts:
            remove_file(place / name)
    edited = _keep_edits(place / KERNELS, pinned.pins.edits)
    for name, text in texts.items():
        write_text(place / name, text)
    pins = replace(pinned.pins, edits=())
    record = TunedRecord(FORMAT, run.title, _list_facts(run.environment), pins, tuple(path.name for path in edited))
    write_json(place / RECORD, codec.encode_sparse(record))
    return [*(place / name for name in texts), place / RECORD, *edited]


def _keep_edits(place: Path, edits: Sequence[EditPin]) -> list[Path]:
    """Copies the edited files, which may lie there already, and removes those of earlier edits."""
    texts = {name: Path(edit.file).read_bytes() for name, edit in zip(_list_names(edits), edits, strict=True)}
    if texts:
        own_folder(place)
    refuse_link(place)
    for path in place.glob("*.py"):
        if path.name not in texts:
            remove_file(path)
    for name, data in texts.items():
        write_bytes(place / name, data)
    return [place / name for name in texts]


def _list_names(edits: Sequence[EditPin]) -> list[str]:
    """Returns a unique name for the file of each edit: two graphs may have different kernels of one name."""
    names = [edit.name for edit in edits]
    return [
        f"{edit.name}.py"
        if _PLAIN.fullmatch(edit.name) and names.count(edit.name) == 1
        else f"{edit.language}_{edit.kernel_id}.py"
        for edit in edits
    ]


def _list_facts(environment: Environment) -> Environment:
    """Returns only the versions and the devices of an environment."""
    versions, host, device = environment.versions, environment.host, environment.device
    return Environment(
        versions=Versions(torch=versions.torch, triton=versions.triton),
        host=Host(cpu=host.cpu, vector_isa=host.vector_isa),
        device=AcceleratorFacts(accelerator=device.accelerator),
    )


def is_tuned(folder: Path) -> bool:
    """Whether a folder is one that :func:`write_tuned` wrote."""
    return (folder / RECORD).is_file()


def load_tuned(folder: Path) -> tuple[PinnedRun, Environment]:
    """Reads the configs and edits of a folder, and what they are for.

    Raises:
        InductorBenchError: it is damaged or of a newer version of this tool, or an edited file cannot be read or is
            for another torch, Triton or device.
    """
    path = folder / RECORD
    again = "write it again: inductor-bench apply RUN"
    data = read_json(path)
    codec.check_format(data, FORMAT, str(path), "a record of configs and edits", again)
    record = codec.decode_record(TunedRecord, data, str(path), again)
    edits = [read_edit(find_file_inside(folder, f"{KERNELS}/{name}")) for name in record.edits]
    for edit in edits:
        require_made_for(edit, record.environment)
    pins = join_pins(record.pins.configs, record.environment, [*map(edit_pin, edits)])
    return PinnedRun(pins, {}, {}), record.environment


def _write_module(run: Run) -> str:
    """Writes the text of the module ``tuned``.

    The record may come from another person, so its texts become literals, or words of the docstring.
    """
    environment = run.environment
    versions = {"torch": environment.versions.torch, "triton": environment.versions.triton}
    facts = {**versions, "device": environment.device.accelerator}
    words = {name: make_plain_line(value or "none") for name, value in {**facts, "title": run.title}.items()}
    return _MODULE.format(about=write_docstring(_ABOUT.format(**words)), table=TABLE, **facts)


def write_page(run: Run, folder: RunFolder, pinned: PinnedRun, left: Mapping[str, str]) -> str:
    """Writes the page of the folder, in Markdown; ``left`` holds the reasons why kernels are not in the table."""
    environment, kernels = run.environment, [one for one in pinned.pinned if not isinstance(one.pin, EditPin)]
    device = environment.device.accelerator if pinned.pins.need_gpu else environment.host.cpu
    versions = f"torch {environment.versions.torch}" + (
        f", Triton {environment.versions.triton}" if environment.versions.triton else ""
    )
    where = f"{make_plain_line(device or '')} with {make_plain_line(versions)}"
    program, edits = list_program_words(run.request), pinned.pins.edits
    place = shlex.quote(f"{folder.path.name}/tuned" if edits else folder.path.name)
    tabled = sum(one.pin.kernel_id not in left for one in kernels)
    what = "kernels" if edits else "configs"
    lines = [f"# Tuned {what} of {html.escape(make_plain_line(run.title))}", ""]
    if kernels or not edits:
        lines += [
            f"Faster with another config, by themselves, on {where}: {plural(len(kernels), 'kernel')}.",
            f"Projected saving: {seconds(pinned.predicted_s)} of a step. `--verify` measures the real saving.",
            "",
        ]
    if edits:
        lines += [f"With an edited source, for {where}: {plural(len(edits), 'kernel')}, in `{KERNELS}/`.", ""]
    lines += [
        "```bash",
        f"{make_plain_line(write_apply_command(place, program))}             # any program, unchanged",
        f"{make_plain_line(write_apply_command(place, program, '--verify'))}    # and what it saves",
        "```",
        "",
    ]
    if tabled:
        lines += [
            f"In code, for {tabled} of the {len(kernels)} configs (`lookup_table.json` is Inductor's form):",
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
    if kernels or not edits:
        lines += ["| kernel | by itself | config | saves per step | in the table |", "|---|---|---|---|---|"]
        lines += [_make_row(one, pinned, left.get(one.pin.kernel_id, "yes")) for one in kernels]
    if edits:
        lines += ["", "| edited kernel | file |", "|---|---|"] if kernels else ["| edited kernel | file |", "|---|---|"]
        files = zip(edits, _list_names(edits), strict=True)
        lines += [f"| {_quote_code(edit.name)} | {_quote_code(f'{KERNELS}/{name}')} |" for edit, name in files]
    if pinned.unpinned:
        lines += ["", "Faster, and not pinned:", ""]
        lines += [
            f"- {_quote_code(one.row.name)} ({one.row.speedup or 1:.2f}x by itself): {make_plain_line(one.reason)}"
            for one in pinned.unpinned
        ]
    return "\n".join(lines) + "\n"


def _make_row(kernel: WinnerPin, pinned: PinnedRun, tabled: str) -> str:
    row = pinned.rows[kernel.kernel_id]
    assert not isinstance(kernel.pin, EditPin)
    config = ", ".join(f"{name}={value}" for name, value in kernel.pin.config.items())
    saves = seconds(row.saving_s) if row.saving_s else MISSING
    return f"| {_quote_code(kernel.name)} | {row.speedup or 1:.2f}x | {_quote_code(config)} | {saves} | {tabled} |"


def _quote_code(text: str) -> str:
    """Returns the text as code within a line or a table cell in Markdown."""
    shown = make_plain_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`"
