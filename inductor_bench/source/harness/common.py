"""What every standalone kernel file holds: arguments, fingerprints, statistics of times, and its command line.

Every standalone kernel file holds this text, which uses torch and the standard library only.
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import json
import math
import os
import statistics
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

ALIGNMENT = 256  # bytes; the finest that is recorded
PATTERN_ELEMENTS = 1048573  # a prime, so that no row of a tensor is likely to repeat the one before

Draw = Callable[[int, int], torch.Tensor]  # some nearly normal numbers in float64, from their number and a seed


class Arguments(NamedTuple):
    """The arguments of one call. ``storages`` are the allocations behind them, as bytes (``uint8``)."""

    args: list[Any]
    keywords: dict[str, Any]
    storages: list[torch.Tensor]


def draw_normal(count: int, seed: int) -> torch.Tensor:
    """Nearly normal numbers, the same to the last bit everywhere: sums of eight uniform whole numbers."""
    return _long_pattern(seed) if count == PATTERN_ELEMENTS else _sum_of_eight(count, seed)


def build_arguments(
    launch: dict[str, Any], device: str, seed: int = 0, folder: str = ".", draw: Draw = draw_normal
) -> Arguments:
    """Allocates and fills the storages of a launch and makes its arguments as views of them.

    The same seed gives the same values on every machine: they are drawn on the CPU, in whole numbers, because a
    generator on a GPU gives other numbers on a GPU of another size. Above ``PATTERN_ELEMENTS`` elements they repeat.

    Args:
        launch: an encoded ``Launch``.
        device: where storages lie that did not lie on the CPU, for example ``cuda`` or ``cuda:1``.
        seed: of the random values.
        folder: where files of recorded values lie.
        draw: gives the random numbers, on any device.

    Raises:
        ValueError: an argument cannot be made again, does not fit its storage, or its recorded values are missing.
    """
    storages = []
    for index, storage in enumerate(launch["storages"]):
        target = device if storage["device"] != "cpu" else "cpu"
        made = allocate(storage["size_bytes"], storage["alignment"], target)
        fill(made, storage, index, seed, folder, draw)
        storages.append(made)
    return bind_arguments(launch, storages, device)


def copy_arguments(launch: dict[str, Any], arguments: Arguments, device: str) -> Arguments:
    """The same arguments with the same values in storages of their own."""
    storages = []
    for storage, original in zip(launch["storages"], arguments.storages, strict=True):
        made = allocate(storage["size_bytes"], storage["alignment"], str(original.device))
        storages.append(made.copy_(original))
    return bind_arguments(launch, storages, device)


def bind_arguments(launch: dict[str, Any], storages: list[torch.Tensor], device: str) -> Arguments:
    """The arguments of a launch as views of these storages."""
    args = [_argument(item, storages, device) for item in launch["arguments"]]
    keywords = {name: _argument(item, storages, device) for name, item in (launch.get("keywords") or {}).items()}
    return Arguments(args, keywords, storages)


def allocate(size: int, alignment: int, device: str) -> torch.Tensor:
    """``size`` bytes whose address is divisible by ``alignment`` and, below 256, by no larger power of two."""
    wanted = alignment % ALIGNMENT
    made = torch.empty(size, dtype=torch.uint8, device=device)
    if size == 0 or made.data_ptr() % ALIGNMENT == wanted:
        return made
    made = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device=device)
    start = (wanted - made.data_ptr()) % ALIGNMENT
    return made[start : start + size]


def fill(target: torch.Tensor, storage: dict[str, Any], index: int, seed: int, folder: str, draw: Draw) -> None:
    """Writes the values of a recorded storage into its bytes."""
    values, size = storage["values"], target.numel()
    if values["kind"] == "zeros" or size == 0:
        target.zero_()
    elif values["kind"] == "recorded":
        data = _recorded_bytes(values, index, folder)
        if len(data) != size:
            raise ValueError(f"storage {index} has {size} bytes, but {len(data)} were recorded")
        target.copy_(torch.frombuffer(data, dtype=torch.uint8))
    else:
        dtype = getattr(torch, storage["dtype"])
        count = min(max(size // dtype.itemsize, 1), PATTERN_ELEMENTS)
        pattern = _pattern(values, dtype, count, seed * 100003 + index, draw)
        _repeat(target, pattern.contiguous().view(torch.uint8).reshape(-1))


def _pattern(values: dict[str, Any], dtype: torch.dtype, count: int, seed: int, draw: Draw) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        share = values.get("share")
        if share is None:
            low, high = values.get("low") or 0, values.get("high")
            share = 0.5 if high is None or low != high else float(high)
        return torch.randint(0, 1 << 24, (count,), generator=generator) < int(share * (1 << 24))
    if values["kind"] == "integers":
        low = int(values["low"] if values.get("low") is not None else 0)
        high = int(values["high"] if values.get("high") is not None else low)
        low, high = max(low, -(1 << 62)), min(high, (1 << 62) - 1)  # unsigned numbers may go above the signed range
        return torch.randint(low, max(high, low) + 1, (count,), generator=generator).to(dtype)
    if not (dtype.is_floating_point or dtype.is_complex) or "float4" in str(dtype):  # any bits will do
        return torch.randint(0, 256, (count * dtype.itemsize,), generator=generator).to(torch.uint8)
    if dtype.is_complex:
        parts = draw(2 * count, seed).view(count, 2) * math.sqrt(0.5)
        return torch.view_as_complex(parts).to(dtype)
    drawn = draw(count, seed)
    if values["kind"] == "positive":
        drawn = drawn.abs()
    return drawn.to(torch.float32 if dtype.itemsize == 1 else dtype).to(dtype)


@functools.lru_cache(maxsize=16)
def _long_pattern(seed: int) -> torch.Tensor:
    return _sum_of_eight(PATTERN_ELEMENTS, seed)


def _sum_of_eight(count: int, seed: int) -> torch.Tensor:
    generator, total = torch.Generator().manual_seed(seed), torch.zeros(count, dtype=torch.int64)
    for _ in range(8):
        total += torch.randint(0, 1 << 16, (count,), generator=generator)
    return (total.double() - 8 * 32767.5) / (65536 * math.sqrt(2 / 3))


def _repeat(target: torch.Tensor, pattern: torch.Tensor) -> None:
    pattern = pattern[: target.numel()].to(target.device)
    whole, rest = divmod(target.numel(), pattern.numel())
    target[: whole * pattern.numel()].view(whole, pattern.numel()).copy_(pattern.expand(whole, -1))
    if rest:
        target[target.numel() - rest :].copy_(pattern[:rest])


def _recorded_bytes(values: dict[str, Any], index: int, folder: str) -> bytearray:
    if values.get("data") is not None:
        return bytearray(zlib.decompress(base64.b64decode(values["data"])))
    path, key = os.path.join(folder, values["file"]), f"storage_{index}"
    try:
        with open(path, "rb") as stream:  # the safetensors format: a length, a JSON header, the bytes
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
            start, end = header[key]["data_offsets"]
            stream.seek(8 + length + start)
            return bytearray(stream.read(end - start))
    except FileNotFoundError:
        raise ValueError(f"the file of its recorded values is missing: {path}") from None
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"cannot read {key} of the recorded values in {path}: {error!r}") from None


def _argument(item: dict[str, Any], storages: Sequence[torch.Tensor], device: str) -> Any:
    kind, text = item["kind"], item.get("text") or ""
    if kind == "tensor":
        return _view(item["tensor"], storages)
    if kind in ("int", "bool"):
        return item["integer"] if kind == "int" else bool(item["integer"])
    if kind == "float":  # infinities and NaN have no number in JSON
        return float(text) if item.get("number") is None else float(item["number"])
    if kind in ("text", "none"):
        return text if kind == "text" else None
    if kind == "list":
        return [_argument(each, storages, device) for each in item.get("items") or ()]
    if kind in ("dtype", "layout", "memory_format"):
        return getattr(torch, text)
    if kind == "device":
        return torch.device("cpu" if text == "cpu" else device)
    raise ValueError(f"an argument of this call cannot be made again: {text}")


def _view(view: dict[str, Any], storages: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype, storage = getattr(torch, view["dtype"]), storages[view["storage"]]
    shape, stride = tuple(view["shape"]), tuple(view["stride"])
    last = view["offset"] + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if 0 not in shape and (last + 1) * dtype.itemsize > storage.numel():
        raise ValueError(f"a tensor of shape {shape} does not fit its storage of {storage.numel()} bytes")
    start = storage.storage_offset()
    if start % dtype.itemsize:
        raise ValueError(f"a storage is aligned to less than an element of {view['dtype']}")
    made = torch.empty(0, dtype=dtype, device=storage.device)
    return made.set_(storage.untyped_storage(), start // dtype.itemsize + view["offset"], shape, stride)


def with_zeros(launch: dict[str, Any]) -> dict[str, Any] | None:
    """The launch with zeros in every storage of several whole numbers or bools; ``None`` if it has none."""
    storages, changed = [], False
    for storage in launch["storages"]:
        dtype = getattr(torch, storage["dtype"])
        indices = not (dtype.is_floating_point or dtype.is_complex) and storage["size_bytes"] > dtype.itemsize
        if indices and storage["values"]["kind"] != "zeros":
            storage, changed = {**storage, "values": {"kind": "zeros"}}, True
        storages.append(storage)
    return {**launch, "storages": storages} if changed else None


def touched_bytes(launch: dict[str, Any]) -> int:
    """The bytes that the launch's tensors span, what they share counted once; an estimate of what is moved."""
    seen: dict[int, dict[str, int]] = {}
    for view in _tensor_views([*launch["arguments"], *(launch.get("keywords") or {}).values()]):
        count = math.prod(size for size, step in zip(view["shape"], view["stride"], strict=True) if step)
        count = 0 if 0 in view["shape"] else count
        seen.setdefault(view["storage"], {})[repr(view)] = count * view["itemsize"]
    sizes = launch["storages"]
    return sum(min(sizes[index]["size_bytes"], sum(views.values())) for index, views in seen.items())


def _tensor_views(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for item in items:
        if item["kind"] == "tensor":
            found.append(item["tensor"])
        found.extend(_tensor_views(item.get("items") or ()))
    return found


def mutated_items(launch: dict[str, Any]) -> list[dict[str, Any]]:
    """The encoded arguments that the call writes. Keywords count on after the last positional argument."""
    every = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    return [every[index] for index in launch.get("mutated") or ()]


def mutated_storages(launch: dict[str, Any]) -> list[int]:
    """The indices of the storages that the call writes."""
    return sorted({view["storage"] for view in _tensor_views(mutated_items(launch))})


def snapshot(arguments: Arguments, indices: Iterable[int]) -> dict[int, torch.Tensor]:
    """Copies of some storages, to be given to :func:`restore`."""
    return {index: arguments.storages[index].clone() for index in indices}


def restore(arguments: Arguments, saved: dict[int, torch.Tensor]) -> None:
    """Writes copied storages back."""
    for index, copy in saved.items():
        arguments.storages[index].copy_(copy)


def written_tensors(launch: dict[str, Any], arguments: Arguments, result: Any = None) -> list[torch.Tensor]:
    """The tensors that a call wrote: its mutated arguments, then the tensors that it returned."""
    every = [*arguments.args, *arguments.keywords.values()]
    mutated = [every[index] for index in launch.get("mutated") or ()]
    return [*tensors_in(mutated), *tensors_in(result)]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


CHUNK_ELEMENTS = 1 << 25
SAMPLED_ELEMENTS = 64
TOLERANCES = {
    **dict.fromkeys(("float64", "complex128"), 1e-8),
    **dict.fromkeys(("float32", "complex64"), 2e-4),
    **{"float16": 4e-3, "bfloat16": 2e-2},
}  # by element type; of the element and of the root mean square of its tensor. The 8-bit types have the next.
COARSE_TOLERANCE = 0.15


def fingerprint(tensors: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What tensors hold, in a form that can be compared, and be written as a Python or JSON literal.

    Whole numbers and bools give a SHA-256 of their bytes. Floats, whose last bits may differ between machines, give the
    numbers of NaNs and infinities, the mean and the mean square of the rest, and some elements at fixed places.
    """
    return {"tensors": [_describe_tensor(tensor.detach()) for tensor in tensors]}


def _describe_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    if tensor.layout != torch.strided or tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.contiguous().reshape(-1)
    if not tensor.is_floating_point() or "float4" in str(tensor.dtype):
        facts["sha256"] = hashlib.sha256(flat.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()
        return facts
    nans = infinities = 0
    total = squares = 0.0
    for chunk in flat.split(CHUNK_ELEMENTS):
        wide = chunk.to(torch.float32).to(torch.float64) if chunk.element_size() == 1 else chunk.to(torch.float64)
        nan, infinite = torch.isnan(wide), torch.isinf(wide)
        nans, infinities = nans + int(nan.sum()), infinities + int(infinite.sum())
        finite = torch.where(nan | infinite, torch.zeros_like(wide), wide)
        total, squares = total + float(finite.sum()), squares + float((finite * finite).sum())
    finite_count = max(flat.numel() - nans - infinities, 1)
    facts.update(nan=nans, inf=infinities, mean=total / finite_count, mean_square=squares / finite_count)
    facts["elements"] = _sample(flat)
    return facts


def _sample(flat: torch.Tensor) -> list[float | str]:
    count = flat.numel()
    many = count > SAMPLED_ELEMENTS
    places = [
        (index * 2654435761 + count // 3) % count if many else index for index in range(min(count, SAMPLED_ELEMENTS))
    ]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    chosen = flat.view(bits)[torch.tensor(places, dtype=torch.int64, device=flat.device)]
    numbers = chosen.cpu().view(flat.dtype).to(torch.float32 if flat.element_size() == 1 else torch.float64).tolist()
    return [number if math.isfinite(number) else str(number) for number in numbers]


def count_differing(one: torch.Tensor, other: torch.Tensor, limit: float) -> int:
    """How many elements of two floating tensors of one type are further apart than ``limit``.

    It is relative to the element and to the root mean square of ``other``.
    """
    finite = other[torch.isfinite(other)].abs()
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return int((~torch.isclose(one, other, rtol=limit, atol=limit * scale, equal_nan=True)).sum())


def same(found: dict[str, Any], reference: dict[str, Any], tolerance: float | None = None) -> tuple[bool, str]:
    """Whether two fingerprints agree, and in words if they do not.

    ``tolerance`` is relative to the element and to the root mean square of its tensor; ``None`` takes that of the
    element type.
    """
    ours, theirs = found["tensors"], reference["tensors"]
    if len(ours) != len(theirs):
        return False, f"{len(ours)} outputs, the reference has {len(theirs)}"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        why = _difference(one, other, tolerance)
        if why:
            return False, f"output {index}: {why}"
    return True, f"{len(ours)} outputs agree with the reference"


def _difference(one: dict[str, Any], other: dict[str, Any], tolerance: float | None) -> str:
    for key in ("shape", "dtype"):
        if one[key] != other[key]:
            return f"{key} {one[key]}, the reference has {other[key]}"
    if "sha256" in one or "sha256" in other:
        return "" if one.get("sha256") == other.get("sha256") else "its bytes differ from the reference"
    for key, title in (("nan", "NaNs"), ("inf", "infinities")):
        if one[key] != other[key]:
            return f"{one[key]} {title}, the reference has {other[key]}"
    limit = tolerance if tolerance is not None else TOLERANCES.get(one["dtype"], COARSE_TOLERANCE)
    scale = math.sqrt(max(other["mean_square"], 0.0))
    if abs(one["mean"] - other["mean"]) > limit * scale:
        return f"mean {one['mean']:.6g}, the reference has {other['mean']:.6g}"
    if abs(one["mean_square"] - other["mean_square"]) > 2 * limit * other["mean_square"]:
        return f"mean square {one['mean_square']:.6g}, the reference has {other['mean_square']:.6g}"
    for place, (mine, wanted) in enumerate(zip(one["elements"], other["elements"], strict=True)):
        if isinstance(mine, str) or isinstance(wanted, str):
            if mine != wanted:
                return f"sampled element {place} is {mine}, the reference has {wanted}"
        elif abs(mine - wanted) > limit * (abs(wanted) + scale):
            return f"sampled element {place} is {mine:.6g}, the reference has {wanted:.6g}"
    return ""


def summarize(samples: Sequence[float]) -> dict[str, Any]:
    """The median and the range from 10 to 90% of some times; none is below 0."""
    ordered = sorted(max(sample, 0.0) for sample in samples)
    last = len(ordered) - 1
    return {
        "median_s": statistics.median(ordered),
        "low_s": ordered[round(0.1 * last)],
        "high_s": ordered[round(0.9 * last)],
        "min_s": ordered[0],
        "samples": len(ordered),
        "samples_s": list(samples),
    }


NOT_RECORDED = "none is recorded yet; `inductor-bench kernel FILE` records it"


def read_options(
    description: str, argv: list[str] | None = None, *, retargetable: bool = False, on_gpu: bool = False
) -> argparse.Namespace:
    """The options that every standalone file has: ``check``, ``json``, ``seed``.

    A ``retargetable`` file takes the properties of the GPU that it runs on, and has ``as_recorded`` as well; what runs
    ``on_gpu`` has ``profile``.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare the outputs with the reference; exit 1 if not")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if retargetable:  # read where the kernel is defined, which is before this
        does = "keep the recorded properties of the device, instead of the properties of the GPU on which this runs"
        parser.add_argument("--as-recorded", action="store_true", help=does)
    if on_gpu:
        does = "make one call for a profiler such as `ncu --profile-from-start off`, and print nothing"
        parser.add_argument("--profile", action="store_true", help=does)
    parser.add_argument("--seed", type=int, default=0, help="of the random values (the reference has 0)")
    return parser.parse_args(argv)


def profile_call(call: Callable[[], Any]) -> None:
    """Makes one call on the GPU while a profiler that waits for it is told to look."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def show_result(result: dict[str, Any], as_json: bool) -> None:
    """Prints ``{name, kernel_id, device, cold, warm, moved_bytes, check}``: one line, or one JSON object."""
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return
    parts = [result["name"]]
    for state in ("cold", "warm"):
        timing = result.get(state)
        if timing:
            parts.append(f"{state} {timing['median_s'] * 1e6:.2f} µs")
    moved, cold = result.get("moved_bytes"), result.get("cold") or result.get("warm")
    if moved is not None:
        parts.append(f"{moved / 1e6:.3f} MB")
        if cold and cold["median_s"] > 0:
            parts.append(f"{moved / cold['median_s'] / 1e9:.1f} GB/s")
    if result.get("flops") and cold and cold["median_s"] > 0:
        parts.append(f"{result['flops'] / cold['median_s'] / 1e9:.1f} GFLOP/s")
    if result.get("method") not in (None, "graphs"):
        parts.append(f"({result['method']})")
    zeros = result.get("with_zeros")
    if zeros:
        times = " ".join(f"{state} {zeros[state]['median_s'] * 1e6:.2f} µs" for state in ("cold", "warm"))
        parts.append(f"[indices all zero: {times}]")
    print("  ".join(parts))


def show_check(name: str, passed: bool | None, why: str) -> int:
    """Says how a check went and returns the exit status. ``None``: there is nothing to compare with."""
    word = {True: "ok", False: "MISMATCH", None: "no reference"}[passed]
    print(f"{name}: {word}: {why}", file=sys.stderr if passed is False else sys.stdout)
    return 0 if passed else 1
