"""Writes winners into a RUN, in the place of a retune that would have to find some."""

from __future__ import annotations

from dataclasses import replace

from inductor_bench.analysis.statistics import summarize
from inductor_bench.autotune.kernel_variants import default_config
from inductor_bench.records.base import Category
from inductor_bench.records.retune import Config, MeasuredKernel, Retune, Tuning
from inductor_bench.records.run import Run
from inductor_bench.source.standalone_writer import read_recorded_facts, read_source
from inductor_bench.store.folder import RunFolder, read_index


def write_winners(folder: RunFolder, **changes: object) -> Run:
    """Writes a RUN of which each C++ kernel is said to be twice as fast with other values in its config."""
    record = folder.load()
    retunes = []
    for row in read_index(folder.kernels):
        if not row.file or not row.name.startswith("cpp_"):
            continue
        text = (folder.kernels / row.file).read_text()
        config = {**default_config(read_source(text), read_recorded_facts(text)["cpp"]), **changes}
        retunes.append(make_retune(row.name, row.kernel_id, f"kernels/{row.file}", config))
    assert retunes
    record = replace(record, retunes=tuple(retunes))
    folder.save(record)
    return record


def make_retune(name: str, kernel_id: str, file: str, config: Config) -> Retune:
    timing = summarize([1e-4] * 9)
    tuning = Tuning("coordesc", "cold", (), 3, 1e-4, 0.5e-4, 2.0, "faster", config)
    kernel = MeasuredKernel(name, kernel_id, file, "cpp", "a CPU", {}, timing, timing, "", tuning=tuning)
    return Retune(name, kernel_id, Category.CPP, ("forward",), 1.0, 1e-4, file, "coordesc", kernel)
