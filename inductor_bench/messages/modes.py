"""The messages of a comparison of modes: what a process of the program changes, and what it reports.

They are exchanged in an environment variable and in files, because the output streams belong to the user's program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records.modes.comparison import Agreement


@dataclass(frozen=True)
class ModeChange:
    """The settings that a process puts in place of the program's own.

    Attributes:
        mode: one of ``records.modes.MODES``.
        options: options of ``torch.compile`` by name, as text.
        switches: names of ``records.modes.SWITCHES`` that the process sets itself.
        compares: whether the outputs of a factory or a named model are compared with those without compilation.
    """

    mode: str
    options: dict[str, str] = field(default_factory=dict)
    switches: tuple[str, ...] = ()
    compares: bool = False


@dataclass(frozen=True)
class ModeReport:
    """The report of one process, written as ``<pid>.mode.json`` beside ``<pid>.steps.json``.

    Attributes:
        calls: the number of calls of ``torch.compile`` whose settings were replaced.
        kept: the reasons why other calls were left as they are.
        notes: settings that had no effect, in words.
        graph_breaks: torch's reasons, one for each break.
        peak_memory_bytes: the most memory that torch allocated on the device; on a CPU the most of the process.
        threads: the number of torch's threads.
        agreement: of the outputs; ``None`` where they are not compared.
        compiled_graphs: the number of graphs that the process compiled, those left out that came from a cache.
        configs: a hash of the configs of all its Triton kernels that ran; empty without any.
    """

    calls: int = 0
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    peak_memory_bytes: int | None = None
    threads: int | None = None
    agreement: Agreement | None = None
    compiled_graphs: int = 0
    configs: str = ""
