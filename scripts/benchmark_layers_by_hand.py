"""Whether the device time of matrix products by layer is that of an eager copy that is split by hand.

``python scripts/benchmark_layers_by_hand.py [--gpu N] [--within S] [--limit S] [--output FOLDER] [MODEL...]``, where
MODEL is one of ``MODELS`` below; without any, all. ``SMALL=1`` makes them small enough for a CPU.

Each model is broken down while it runs compiled. Then an eager copy of it runs, in which each module is a range of
``record_function``. Torch's profiler says in which range a matrix product, a convolution or an attention ran; in the
backward, which function of autograd ran it, and its sequence number leads to the forward operator, and so to a range.
What runs in a range within the backward computes activities again. Nothing of the tool takes part in this. ``fsdp`` is
``scripts/programs/sharded.py`` with one rank, ``fsdp-2`` with two; of these it is rank 0.

``graphs``, ``sum``, ``module``, ``forward``, ``backward``   as in ``benchmark_layers.py``
``products``  the device time of a step's products by the tool, in ms, and divided by that by hand
``apart``     the share of the products' time that the two give to other modules or directions: half the sum of the
              differences of all shares. The aim is 5%.
``groups``    of the groups with at least 2% of the products' time how many are within 5% of the time by hand. A group
              is a module in one direction; modules whose paths differ only in numbers are one.
``most``      the group whose times differ most, and by how much of the products' time
``flops``     the tool's FLOPs divided by those of torch's ``FlopCounterMode``, where the whole model is compiled
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.benchmark_layers import ENOUGH, describe

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(ROOT / "scripts" / "programs"))
SMALL = bool(os.environ.get("SMALL"))
STEPS, WARM, PROFILED = (24, 2, 2) if SMALL else (100, 8, 5)
AIM = 0.05
LEAST_GROUP = 0.02
LEAST_S = 30.0
"""Seconds that must be left for a model to be started."""

TITLES = (
    *("model", "graphs", "sum", "module", "forward", "backward", "products", "apart", "groups", "most", "flops"),
    *("seconds", "note"),
)


class Built(NamedTuple):
    """A model on its device, and a step of it."""

    model: Any
    step: Callable[[], object]
    compile: Callable[[], None]  # makes the steps compiled ones
    roots: Sequence[Any]  # the objects that are compiled: the model, or its blocks
    close: Callable[[], None] = lambda: None


# The models.


def build(name: str) -> Built:
    """A model by its name in ``MODELS``."""
    import torch

    torch.manual_seed(0)
    return MODELS[name][1]()


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _training(model: Any, loss: Callable[[Any], Any]) -> Built:
    """Trains a model that is compiled as a whole."""
    import torch

    called = [model]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        loss(called[0]).backward()
        optimizer.step()
        optimizer.zero_grad()

    def compiled() -> None:
        called[0] = torch.compile(model)

    return Built(model, step, compiled, [model])


def _inference(model: Any, call: Callable[[Any], Any], **options: Any) -> Built:
    import torch

    model.eval()
    called = [model]

    def step() -> None:
        with torch.no_grad():
            call(called[0])

    def compiled() -> None:
        called[0] = torch.compile(model, **options)

    return Built(model, step, compiled, [model])


def bert() -> Built:
    """BERT of transformers, trained. Its attention is products, and its vocabulary aligned, as Inductor makes both."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    words, shape = (512, (2, 32)) if SMALL else (30528, (16, 512))
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM(
        BertConfig(vocab_size=words, attn_implementation="eager", **still, **(sizes if SMALL else {}))
    )
    tokens = torch.randint(words, shape, device=_device())
    model = model.to(_device(), torch.bfloat16)
    return _training(model, lambda call: call(input_ids=tokens, labels=tokens).loss)


def llama() -> Built:
    """A Llama of transformers under CUDA graphs, without gradients."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (64, 128, 2, 4) if SMALL else (2048, 5632, 8, 16)
    words, shape = (512, (2, 32)) if SMALL else (32000, (4, 512))
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    config = LlamaConfig(vocab_size=words, use_cache=False, **dict(zip(names, sizes, strict=True)))
    model = LlamaForCausalLM(config).to(_device(), torch.bfloat16)
    tokens = torch.randint(words, shape, device=_device())
    # A mask of one's own: without one, attention under compilation could be another operator than in eager mode.
    mask = torch.full((1, 1, shape[1], shape[1]), -math.inf, device=_device(), dtype=torch.bfloat16).triu(1)
    mask = mask.expand(shape[0], 1, -1, -1).contiguous()

    def call(model: Any) -> Any:
        return model(input_ids=tokens, attention_mask=mask, use_cache=False)

    return _inference(model, call, mode="reduce-overhead")


def resnet50() -> Built:
    """The resnet50 of timm, trained in channels-last."""
    import timm
    import torch
    import torch.nn.functional as F

    batch, size = (2, 64) if SMALL else (64, 224)
    model = timm.create_model("resnet18" if SMALL else "resnet50", pretrained=False)
    model = model.to(_device(), torch.bfloat16, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size, device=_device(), dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=_device())
    return _training(model, lambda call: F.cross_entropy(call(images).float(), labels))


def unet() -> Built:
    """The UNet of ``diffusion.py``, whose attention is one operator: Inductor would make it one."""
    import diffusion
    import torch
    import torch.nn.functional as F

    class Block(diffusion.Block):
        def forward(self, x: Any, time: Any) -> Any:
            hidden = self.convolution(F.silu(self.norm(x))) + self.time(F.silu(time))[:, :, None, None]
            x = hidden + self.skip(x)
            batch, _, rows, columns = x.shape
            tokens = x.flatten(2).transpose(1, 2)
            parts = self.to_qkv(self.mix(tokens)).view(batch, rows * columns, 3, diffusion.HEADS, -1)
            mixed = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind())
            mixed = mixed.transpose(1, 2).reshape(tokens.shape)
            return (tokens + self.to_out(mixed)).transpose(1, 2).reshape(x.shape)

    model = diffusion.UNet()
    for block in model.modules():
        if isinstance(block, diffusion.Block):
            block.__class__ = Block
    model = model.to(_device(), diffusion.DTYPE, memory_format=torch.channels_last)
    x = torch.randn(2 * diffusion.BATCH, 4, diffusion.SIZE, diffusion.SIZE, device=_device(), dtype=diffusion.DTYPE)
    x = x.to(memory_format=torch.channels_last)
    timestep = torch.tensor(500.0, device=_device())
    return _inference(model, lambda call: call(x, timestep))


def fsdp() -> Built:
    """FSDP2 with checkpointing: each block is compiled, sharded, and computed again in the backward."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from blocks import BATCH, LENGTH, WORDS
    from sharded import Checkpointed
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if _device().type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if _device().type == "cuda" else "gloo")
    model = Checkpointed().to(_device())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    optimizers: list[Any] = []

    def shard() -> None:
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        optimizers.append(torch.optim.AdamW(model.parameters(), lr=1e-4))

    def compiled() -> None:
        for block in model.blocks:
            block.compile()

    def step() -> None:
        if not optimizers:
            shard()
        tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=_device())
        loss = F.cross_entropy(model(tokens[:, :-1]).view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()

    return Built(model, step, compiled, list(model.blocks), dist.destroy_process_group)


MODELS: dict[str, tuple[int, Callable[[], Built]]] = {
    "bert": (0, bert),
    "llama": (0, llama),
    "resnet50": (0, resnet50),
    "unet": (0, unet),
    "fsdp": (1, fsdp),
    "fsdp-2": (2, fsdp),
}
"""The models, each with its ranks (0: no process group) and what builds it."""


# The split by hand.


RANGE = "module "
NODE = "autograd::engine::evaluate_function"
PRODUCT = re.compile(
    r"aten::((add|b|badd)?(mm|bmm)|addmv|mv|(cudnn_|mkldnn_)?convolution(_backward)?|_scaled_dot_product_\w+)"
)
"""The operators whose whole time is that of a product. One within another one counts once."""


class Split:
    """Ranges around each module of an eager model, and what ran in them."""

    def __init__(self, built: Built) -> None:
        self._open = threading.local()
        for root in built.roots:
            for name, module in root.named_modules():
                path = ".".join(filter(None, (type(root).__name__, name)))
                module.register_forward_pre_hook(self._enter(path))
                module.register_forward_hook(self._leave, always_call=True)

    def _enter(self, path: str) -> Callable[..., None]:
        import torch

        def enter(*_: object) -> None:
            one = torch.profiler.record_function(RANGE + path)
            one.__enter__()
            self._open.__dict__.setdefault("ranges", []).append(one)

        return enter

    def _leave(self, *_: object) -> None:
        self._open.ranges.pop().__exit__(None, None, None)

    def measure(self, step: Callable[[], object]) -> dict[str, float]:
        """The seconds of a step's products by group; the keys are those of :func:`group_of`."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        for _ in range(WARM):
            step()
        on_gpu = _device().type == "cuda"
        if on_gpu:
            torch.cuda.synchronize()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as found:
            for _ in range(PROFILED):
                step()
            if on_gpu:
                torch.cuda.synchronize()
        times = split([one for one in found.events() if one.device_type.name == "CPU"], on_gpu)
        return {key: time_s / PROFILED for key, time_s in times.items()}


def split(events: Sequence[Any], on_gpu: bool) -> dict[str, float]:
    """The seconds of products by group, of the profiler's events of the host."""
    makers: dict[tuple[int, int], Any] = {}
    for one in events:  # of those that saw the same number the last one has made the node
        if one.sequence_nr >= 0 and not one.fwd_thread and NODE not in one.name:
            key = one.thread, one.sequence_nr
            if key not in makers or one.time_range.start >= makers[key].time_range.start:
                makers[key] = one
    times: dict[str, float] = defaultdict(float)
    for one in events:
        if PRODUCT.fullmatch(one.name) and not any(PRODUCT.fullmatch(above.name) for above in _above(one)):
            path, direction = _owner(one, makers)
            if path:
                times[group_of(path, direction)] += (one.device_time_total if on_gpu else one.cpu_time_total) / 1e6
    return dict(times)


def _above(event: Any) -> Iterable[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def _owner(event: Any, makers: Mapping[tuple[int, int], Any]) -> tuple[str, str]:
    """The module of an operator and its direction; no module for one outside of all ranges."""
    path, node = "", None
    for one in _above(event):
        if one.name.startswith(RANGE) and not path:
            path = one.name.removeprefix(RANGE)
        node = one if one.name.startswith(NODE) else node
    if path:
        return path, "forward" if node is None else "recomputed"
    maker = makers.get((node.fwd_thread, node.sequence_nr)) if node is not None else None
    if maker is None:
        return "", ""
    return next((one.name.removeprefix(RANGE) for one in _above(maker) if one.name.startswith(RANGE)), ""), "backward"


def group_of(path: str, direction: str) -> str:
    """A module in one direction; modules whose paths differ in numbers only are one group."""
    path = re.sub(r"(?<=\.)\d+(?=\.|$)", "#", path.removeprefix("FSDP"))
    return f"{path} {direction}"


# The comparison.


def by_tool(record: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """The seconds of the products of a step's graphs by group, and the FLOPs of all of them."""
    times: dict[str, float] = defaultdict(float)
    flops = 0.0
    for row in record["program"]["layers"]:
        if row["kind"] == "graph":
            flops += row["flops"]
            if row["product_time_s"]:
                times[group_of(row["layer"], row["direction"])] += row["product_time_s"]
    return dict(times), flops


def compare(tool: Mapping[str, float], hand: Mapping[str, float]) -> dict[str, Any]:
    """How far the two splits are apart."""
    tool_s, hand_s = math.fsum(tool.values()), math.fsum(hand.values())
    if not tool_s or not hand_s:
        return {"note": f"products take {tool_s:.6f} s by the tool, {hand_s:.6f} s by hand"}
    keys = tool.keys() | hand.keys()
    off = {key: tool.get(key, 0.0) / tool_s - hand.get(key, 0.0) / hand_s for key in keys}
    apart = math.fsum(map(abs, off.values())) / 2
    large = [key for key in hand if hand[key] >= LEAST_GROUP * hand_s]
    near = [key for key in large if abs(tool.get(key, 0.0) / hand[key] - 1) <= AIM]
    most = max(keys, key=lambda key: abs(tool.get(key, 0.0) - hand.get(key, 0.0)))
    more = (tool.get(most, 0.0) - hand.get(most, 0.0)) / hand_s
    return {
        "products": f"{tool_s * 1e3:.3f} {tool_s / hand_s:.3f}",
        "apart": f"{apart:.1%}",
        "groups": f"{len(near)} of {len(large)}",
        "most": f"{most} {more:+.1%}",
        "within": apart <= AIM,
    }


def measure(name: str, folder: Path, limit_s: float) -> dict[str, Any]:
    """The row of a model."""
    begin_s, ranks = time.monotonic(), MODELS[name][0]
    run, found = folder / name, folder / f"{name}.hand.json"
    options = ["-o", str(run), "--force", "--no-plots", "--no-samples", "--quiet"]
    tool = [sys.executable, "-m", "inductor_bench", "breakdown", *options, "--", *_command("compiled", name, ranks)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    row: dict[str, Any] = {"model": name, "note": ""}
    try:
        ended = subprocess.run(tool, env=variables, capture_output=True, text=True, timeout=limit_s)
        if not (run / "record.json").is_file():
            return row | {"note": f"no record: {ended.stderr.strip()[-300:]}"}
        record = json.loads((run / "record.json").read_text(encoding="utf-8"))
        row |= {key: value for key, value in describe(record).items() if key != "without"}
        if not (record.get("program") or {}).get("layers"):
            return row | {"note": f"no layers: {ended.stdout.strip()[-300:]}"}
        hand = _command("eager", name, ranks, str(found))
        ended = subprocess.run(hand, env=variables, capture_output=True, text=True, timeout=limit_s)
        if not found.is_file():
            return row | {"note": f"by hand: {ended.stderr.strip()[-300:]}"}
    except subprocess.TimeoutExpired as late:
        return row | {"note": f"not ended after {late.timeout:.0f} s"}
    by_hand = json.loads(found.read_text())
    times, flops = by_tool(record)
    row |= compare(times, by_hand["times_s"])
    if by_hand["flops"]:
        row["flops"] = f"{flops / by_hand['flops']:.4f}"
    return row | {"seconds": f"{time.monotonic() - begin_s:.0f}", "times_s": times, "by_hand": by_hand}


def _command(kind: str, name: str, ranks: int, *more: str) -> list[str]:
    launcher: list[str] = []
    if ranks:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(port)]
    return [sys.executable, *launcher, str(Path(__file__).resolve()), "run", kind, name, *more]


def run_compiled(name: str) -> None:
    """The program that is broken down."""
    built = build(name)
    built.compile()
    for _ in range(STEPS):
        built.step()
    built.close()


def run_eager(name: str, output: Path) -> None:
    """The eager copy: writes the times by hand, and the FLOPs if the whole model is compiled."""
    from torch.utils.checkpoint import set_checkpoint_early_stop
    from torch.utils.flop_counter import FlopCounterMode

    built = build(name)
    flops = 0
    if built.roots == [built.model]:
        with FlopCounterMode(display=False) as counted:
            built.step()
        flops = counted.get_total_flops()
    with set_checkpoint_early_stop(False):  # a compiled block is computed again as a whole
        times = Split(built).measure(built.step)
    built.close()
    if os.environ.get("RANK", "0") == "0":
        output.write_text(json.dumps({"times_s": times, "flops": flops}, indent=1))


def main(words: Sequence[str]) -> int:
    """Measures the models, prints the table, and returns 1 if one of them does not do."""
    if words[:1] == ["run"]:
        _, kind, name, *rest = words
        if kind == "compiled":
            run_compiled(name)
        else:
            run_eager(name, Path(rest[0]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--gpu", help="the GPU, or for ranks the GPUs, as in CUDA_VISIBLE_DEVICES")
    parser.add_argument("--within", type=float, default=570.0, help="seconds for all models")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for each of the two runs of a model")
    parser.add_argument("--output", type=Path, help="a folder for the RUNs and times; without it they are not kept")
    options = parser.parse_args(words)
    if options.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = options.gpu
    end_s = time.monotonic() + options.within
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.models or MODELS:
            left_s = end_s - time.monotonic()
            row = {"model": name, "note": "no time was left"}
            rows.append(measure(name, folder, min(options.limit, left_s)) if left_s > LEAST_S else row)
            (folder / "by_hand.json").write_text(json.dumps(rows, indent=1))
            print(f"{name}: {rows[-1].get('apart') or rows[-1]['note']}", file=sys.stderr, flush=True)
    cells = [TITLES, *([str(row.get(title, "")) for title in TITLES] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    good = [row for row in rows if row.get("good") and row.get("within")]
    print(f"{len(good)} of {len(rows)} add up, have a module for {ENOUGH:.0%} of the time, and are split as by hand")
    return 0 if len(good) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
