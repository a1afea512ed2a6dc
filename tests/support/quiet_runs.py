"""A healthy graph on a GPU, about which no rule has anything to say, and runs that differ from it in one thing."""

from __future__ import annotations

import run_builder as build
from inline import change

from inductor_bench.records.base import Category
from inductor_bench.records.module import ModuleRecord
from inductor_bench.records.run import Run


def quiet(**fields: object) -> ModuleRecord:
    """A healthy GPU graph of four kernels, about which no rule has anything to say."""
    kernels = [
        build.kernel(f"triton_poi_fused_add_{i}", Category.POINTWISE, 1, 1e-3, moved_bytes=4e9) for i in range(5)
    ]
    return build.module("forward", kernels, 5.1e-3, build.H200, **fields)


def run_of(*modules: ModuleRecord, **fields: object) -> Run:
    return build.run("quiet", list(modules), **{"peaks": build.H200, **fields})


def with_kernel(**fields: object) -> Run:
    """The healthy graph and one more kernel of 1 ms with these fields (over what the roof says of it)."""
    module = quiet()
    values: dict[str, object] = {"share": 0.16, "wall_share": 0.16, **fields}
    name, category = str(values.pop("name", "odd")), values.pop("category", Category.POINTWISE)
    calls = float(values.pop("calls", 1))  # type: ignore[arg-type]
    odd = build.kernel(name, category, calls, float(values.pop("time_s", 1e-3)), **values)  # type: ignore[arg-type]
    return run_of(change(module, kernels=(*module.kernels, odd), wall_time_s=6.1e-3, busy_time_s=6e-3))
