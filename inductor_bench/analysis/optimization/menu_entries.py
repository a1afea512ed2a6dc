"""The table of settings that may make a program faster. Each has a bound of its saving, and the ways it can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...records.base import Category
from ...records.optimization import (
    ATTENTION,
    COMPILE,
    DYNAMO,
    ENVIRONMENT,
    INDUCTOR,
    LAYOUT,
    LOADER,
    MEMORY_FORMAT,
    NEEDS_GPU,
    NOTHING,
    OPTIMIZER,
    PRECISION,
    SUMS,
    TORCH,
    ProgramSetting,
)
from ..findings.finding import plural
from ..findings.kernel_findings import list_hinted_options
from .step_facts import GENERATED, PRODUCTS, REDUCTIONS, StepFacts

Bound = Callable[[StepFacts], "float | None"]
Obstacle = Callable[[StepFacts], str]


def _bound_by_nothing(facts: StepFacts) -> str:
    return ""


def _needs_gpu(facts: StepFacts) -> str:
    return NEEDS_GPU if facts.on_host else ""


def _needs_bfloat16(facts: StepFacts) -> str:
    if not facts.on_host:
        return "it helps on a CPU only"
    if all(module.bf16 for module in facts.run.modules) and facts.run.modules:
        return "the program computes matrix products of float32 in bfloat16 already"
    peaks = facts.run.peaks
    native = peaks is None or "bfloat16" in peaks.matmul_flops
    return "" if native else "the processor is no faster in bfloat16 than in float32"


def _needs_graphs(facts: StepFacts) -> str:
    return "" if facts.compiles else "the program compiles nothing"


def _needs_gpu_graphs(facts: StepFacts) -> str:
    return _needs_gpu(facts) or _needs_graphs(facts)


def _needs_no_replay(facts: StepFacts) -> str:
    replayed = "the step replays CUDA graphs already" if facts.replays else ""
    return _needs_gpu_graphs(facts) or replayed


def _needs_optimizer(facts: StepFacts) -> str:
    if facts.is_profiled and not facts.optimizers:
        return "the step has no eager optimizer"
    return "the optimizer is fused already" if facts.is_profiled and not facts.optimizer else ""


def _needs_inference(facts: StepFacts) -> str:
    return _needs_graphs(facts) or ("it is for inference" if facts.trains else "")


def _needs_sizes(facts: StepFacts) -> str:
    return _needs_graphs(facts) or ("" if facts.sizes_change else "nothing was compiled again for another size")


def _needs_dynamic(facts: StepFacts) -> str:
    return _needs_graphs(facts) or ("no graph is for any shape" if facts.dynamic_share == 0 else "")


def _needs_limit(facts: StepFacts) -> str:
    return "" if facts.reached_limit else "no function was compiled so often that Dynamo gave up"


def _needs_hint(option: str) -> Callable[[StepFacts], str]:
    return lambda facts: "" if option in list_hinted_options(facts.run) else "no graph break's hint names it"


def _needs_memory(facts: StepFacts) -> str:
    if not facts.trains:
        return "it is for training"
    known = facts.recomputed is not None
    asks = bool(facts.recomputed) or bool(facts.allocating) or not known
    return _needs_gpu_graphs(facts) or ("" if asks else "nothing is recomputed, and nothing waits for memory")


def _needs_cores(facts: StepFacts) -> str:
    if not facts.on_host:
        return "it helps on a CPU only"
    if facts.threads is None:
        return "the number of threads of the program is not known"
    if facts.threads == facts.cores:
        return "the program uses all cores already"
    if facts.threads != facts.own_threads:
        return (
            f"the program itself runs on {plural(facts.threads, 'thread')} of {facts.cores} cores: only its own call "
            "of torch.set_num_threads can change that"
        )
    return ""


def _needs_loader(facts: StepFacts) -> str:
    return "" if facts.loading is None or facts.loading > 0 else "no time of the step goes to loading data"


@dataclass(frozen=True)
class MenuEntry:
    """A row of the menu before a program is known."""

    slug: str
    title: str
    settings: tuple[ProgramSetting, ...]
    group: str  # for ``--allow`` and ``--deny``
    numbers: str  # how it may change the numbers
    why: str  # what it may shorten
    bound: Bound  # the largest share of the step that it can save; ``None`` if nothing bounds it
    obstacle: Obstacle = _bound_by_nothing  # why it cannot help a program; empty if it may help
    fails: str = ""
    source: str = ""


def _set(kind: str, **settings: object) -> tuple[ProgramSetting, ...]:
    return tuple(ProgramSetting(kind, name.replace("__", "."), repr(value)) for name, value in settings.items())


SIZES_OF_DATA = "sizes that only data decides cannot be guarded: a graph may fail to compile"


def _hinted(slug: str, title: str, option: str, fails: str) -> MenuEntry:
    """An option of Dynamo that a graph break's hint names."""
    return MenuEntry(
        slug,
        f"{title} ({option})",
        _set(DYNAMO, **{option: True}),
        "graph-breaks",
        SUMS,
        "a graph break, and the code that runs uncompiled because of it",
        lambda facts: None,
        _needs_hint(option),
        fails,
        "https://docs.pytorch.org/docs/stable/compile/programming_model.graph_breaks_index.html",
    )


def _list_inductor_settings(**settings: object) -> tuple[ProgramSetting, ...]:
    return _set(INDUCTOR, **settings)


def _bound_by_kernels(*categories: Category) -> Bound:
    return lambda facts: facts.kernels(categories)


def _bound_by_attention(facts: StepFacts) -> float | None:
    return facts.attention


def _bound_by_convolutions(facts: StepFacts) -> float | None:
    return facts.kernels((Category.EXTERN_CONV,))


def _bound_by_short_kernels(facts: StepFacts) -> float | None:
    short, waits = facts.kernels(GENERATED, shortest=True), facts.launching
    return None if short is None or waits is None else min(1.0, short + waits)


def _bound_by_memory(facts: StepFacts) -> float | None:
    known = [one for one in (facts.recomputed, facts.allocating) if one is not None]
    return sum(known) if known else None


def _bound_by_layouts(facts: StepFacts) -> float | None:
    return facts.time(Category.EXTERN_CONV, Category.COPY)


def _bound_by_float32(facts: StepFacts) -> float | None:
    return facts.predicted("full-float32") or facts.time(Category.EXTERN_GEMM, Category.EXTERN_CONV)


def _bound_by_products(facts: StepFacts) -> float | None:
    return facts.predicted("full-float32") or facts.time(Category.EXTERN_GEMM, Category.EXTERN_ATTENTION)


def _bound_by_products_and_launches(facts: StepFacts) -> float | None:
    return facts.kernels((*PRODUCTS, Category.EXTERN_CONV))


CONFIGS = "docs: torch._inductor.config"

REDUCTION_OPTIONS: tuple[tuple[str, str, dict[str, object], str], ...] = (
    (
        "no-mix-order-reduction",
        "reductions over rows and columns in separate kernels",
        {"triton__mix_order_reduction": False},
        "",
    ),
    (
        "mix-order-reduction",
        "reductions over rows and columns in one kernel",
        {"triton__mix_order_reduction": True},
        "",
    ),
    (
        "multi-kernel",
        "reductions: the faster of two forms at run time (multi_kernel)",
        {"triton__multi_kernel": 1},
        "it is slower to launch",
    ),
    ("no-persistent-reductions", "reductions in loops", {"triton__persistent_reductions": False}, ""),
    ("no-split-reductions", "large reductions in one kernel", {"split_reductions": False}, ""),
)
"""Rows that differ only in their slug, title, options of Inductor, and how they can fail."""

MENU = (
    MenuEntry(
        "cudagraphs",
        "CUDA graphs (mode='reduce-overhead')",
        _list_inductor_settings(triton__cudagraphs=True),
        "cudagraphs",
        NOTHING,
        "waits for the host's launches",
        lambda facts: facts.replaying,
        _needs_no_replay,
        "with gradient accumulation, outputs that are used after the step, and inputs whose address changes",
        "https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html",
    ),
    MenuEntry(
        "fused-optimizer",
        "fused optimizer",
        _set(OPTIMIZER, fused=True),
        "optimizer",
        SUMS,
        "the optimizer's launches and passes over the parameters",
        lambda facts: facts.optimizer,
        _needs_optimizer,
        "an optimizer without a fused form; gradients of several types",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
    MenuEntry(
        "foreach-optimizer",
        "optimizer over lists of parameters",
        _set(OPTIMIZER, foreach=True),
        "optimizer",
        SUMS,
        "the optimizer's launches",
        lambda facts: facts.optimizer,
        _needs_optimizer,
        "it needs additional memory of the size of the parameters",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
    MenuEntry(
        "compiled-optimizer",
        "compiled step of the optimizer (torch.compile)",
        _set(OPTIMIZER, compiled=True),
        "optimizer",
        SUMS,
        "the optimizer's launches and passes over the parameters",
        lambda facts: facts.optimizer,
        _needs_optimizer,
        "a learning rate that the program sets as a number in each step, for which torch compiles again",
        "https://docs.pytorch.org/tutorials/recipes/compiling_optimizer.html",
    ),
    *(
        MenuEntry(
            f"attention-{name}",
            f"attention by {words} if possible",
            (ProgramSetting(ATTENTION, "backends", repr(order)),),
            "attention",
            SUMS,
            "calls of attention that are far from their limit",
            _bound_by_attention,
            _needs_gpu,
            "masks, head sizes and types that the backend refuses",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html",
        )
        for name, words, order in (
            ("cudnn", "cuDNN", "CUDNN_ATTENTION,FLASH_ATTENTION,EFFICIENT_ATTENTION,MATH"),
            ("flash", "FlashAttention", "FLASH_ATTENTION,EFFICIENT_ATTENTION,CUDNN_ATTENTION,MATH"),
            ("efficient", "the memory-efficient kernel", "EFFICIENT_ATTENTION,FLASH_ATTENTION,CUDNN_ATTENTION,MATH"),
        )
    ),
    MenuEntry(
        "max-autotune-gemm",
        "matrix products: the fastest of cuBLAS and Triton (max_autotune_gemm)",
        _list_inductor_settings(max_autotune_gemm=True),
        "max-autotune",
        SUMS,
        "matrix products that are far from their limit",
        _bound_by_kernels(*PRODUCTS),
        _needs_graphs,
        "compilation takes minutes; because of noise, autotuning can choose a slower kernel (pytorch #179246)",
        CONFIGS,
    ),
    MenuEntry(
        "triton-gemm",
        "all matrix products in Triton (max_autotune_gemm_backends)",
        _list_inductor_settings(max_autotune_gemm=True, max_autotune_gemm_backends="TRITON"),
        "max-autotune",
        SUMS,
        "matrix products that are far from their limit, and the kernels after them, which can be fused into them",
        _bound_by_kernels(*PRODUCTS),
        _needs_gpu_graphs,
        "compilation takes minutes; matrix products for which cuBLAS is faster",
        CONFIGS,
    ),
    MenuEntry(
        "max-autotune-pointwise",
        "more configs of generated kernels (max_autotune_pointwise)",
        _list_inductor_settings(max_autotune_pointwise=True),
        "max-autotune",
        SUMS,
        "generated kernels that are far from their limit",
        _bound_by_kernels(*GENERATED),
        _needs_gpu_graphs,
        "compilation takes longer",
        CONFIGS,
    ),
    MenuEntry(
        "coordinate-descent",
        "search of configs kernel by kernel (coordinate_descent_tuning)",
        _list_inductor_settings(coordinate_descent_tuning=True),
        "max-autotune",
        SUMS,
        "generated kernels that are far from their limit",
        _bound_by_kernels(*GENERATED),
        _needs_gpu_graphs,
        "compilation takes minutes",
        CONFIGS,
    ),
    MenuEntry(
        "combo-kernels",
        "one launch for several small kernels (combo_kernels)",
        _list_inductor_settings(combo_kernels=True),
        "kernels",
        SUMS,
        "short kernels and their launches",
        _bound_by_short_kernels,
        _needs_gpu_graphs,
        "an experimental option of Inductor",
        CONFIGS,
    ),
    *(
        MenuEntry(
            slug,
            words,
            _list_inductor_settings(**settings),
            "kernels",
            SUMS,
            "reductions that are far from their limit",
            _bound_by_kernels(*REDUCTIONS),
            _needs_gpu_graphs,
            fails,
            CONFIGS,
        )
        for slug, words, settings, fails in REDUCTION_OPTIONS
    ),
    MenuEntry(
        "force-shape-pad",
        "matrix products padded to aligned widths (force_shape_pad)",
        _list_inductor_settings(force_shape_pad=True),
        "padding",
        SUMS,
        "products of unaligned widths",
        _bound_by_kernels(*PRODUCTS),
        _needs_gpu_graphs,
        "copies that cost more time than the matrix product saves",
        CONFIGS,
    ),
    MenuEntry(
        "no-shape-padding",
        "matrix products as they are, without padding (shape_padding)",
        _list_inductor_settings(shape_padding=False),
        "padding",
        SUMS,
        "padded matrix products, and the copies that pad them",
        _bound_by_kernels(*PRODUCTS),
        _needs_gpu_graphs,
        "matrix products of unaligned widths become slower",
        CONFIGS,
    ),
    MenuEntry(
        "no-comprehensive-padding",
        "no padding of intermediate tensors",
        _list_inductor_settings(comprehensive_padding=False),
        "padding",
        SUMS,
        "generated kernels whose tensors are padded",
        _bound_by_kernels(*GENERATED),
        _needs_gpu_graphs,
        "",
        CONFIGS,
    ),
    MenuEntry(
        "conv-1x1-as-mm",
        "1x1 convolutions as products",
        _list_inductor_settings(conv_1x1_as_mm=True),
        "convolutions",
        SUMS,
        "convolutions that are far from their limit",
        _bound_by_convolutions,
        _needs_graphs,
        "",
        CONFIGS,
    ),
    MenuEntry(
        "cudnn-benchmark",
        "cuDNN times its algorithms",
        (ProgramSetting(TORCH, "torch.backends.cudnn.benchmark", "True"),),
        "convolutions",
        SUMS,
        "convolutions that are far from their limit",
        _bound_by_convolutions,
        _needs_gpu,
        "new shapes are timed again",
        "https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark",
    ),
    MenuEntry(
        "channels-last",
        "weights of convolutions in channels-last order",
        (ProgramSetting(MEMORY_FORMAT, "channels_last", "True"),),
        "layout",
        LAYOUT,
        "convolutions and the copies around them",
        _bound_by_layouts,
        _needs_graphs,
        "code that calls view() on an output",
        "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
    MenuEntry(
        "cpp-wrapper",
        "launches from C++ (cpp_wrapper)",
        _list_inductor_settings(cpp_wrapper=True),
        "cpp-wrapper",
        NOTHING,
        "waits for the host's launches",
        lambda facts: facts.launching,
        _needs_graphs,
        "compilation takes minutes, and may not end",
        CONFIGS,
    ),
    MenuEntry(
        "freezing",
        "weights as constants (freezing)",
        _list_inductor_settings(freezing=True),
        "freezing",
        SUMS,
        "matrix products and convolutions, whose weights can be laid out for them",
        _bound_by_products_and_launches,
        _needs_inference,
        "weights that change after compilation",
        CONFIGS,
    ),
    MenuEntry(
        "dynamic",
        "graphs for any shape (dynamic=True)",
        _set(COMPILE, dynamic=True),
        "dynamic",
        SUMS,
        "compilations for new shapes",
        lambda facts: None,
        _needs_sizes,
        "kernels for any shape are slower",
        "https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html",
    ),
    MenuEntry(
        "static",
        "graphs for each shape (automatic_dynamic_shapes)",
        _set(DYNAMO, automatic_dynamic_shapes=False),
        "dynamic",
        SUMS,
        "kernels for any shape",
        lambda facts: facts.dynamic_share,
        _needs_dynamic,
        "with many shapes it compiles many times, up to the limit",
        "https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html",
    ),
    MenuEntry(
        "recompile-limit",
        "up to 64 compilations of a function (recompile_limit)",
        _set(DYNAMO, recompile_limit=64),
        "dynamic",
        SUMS,
        "functions that run uncompiled because they were compiled too often",
        lambda facts: None,
        _needs_limit,
        "compilation takes longer, in proportion to the compilations",
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
    ),
    _hinted("capture-scalars", "numbers read from tensors stay in the graph", "capture_scalar_outputs", SIZES_OF_DATA),
    _hinted("capture-shapes", "shapes that data decides", "capture_dynamic_output_shape_ops", SIZES_OF_DATA),
    _hinted("allow-rnn", "RNN, GRU and LSTM compiled", "allow_rnn", "experimental: the graph may become very large"),
    MenuEntry(
        "memory-budget",
        "half of the memory for activations (activation_memory_budget=0.5)",
        (ProgramSetting(TORCH, "torch._functorch.config.activation_memory_budget", "0.5"),),
        "memory",
        SUMS,
        "waits for memory; the setting needs less memory, but recomputes more, which makes the step itself longer",
        _bound_by_memory,
        _needs_memory,
        "a longer step if there is enough memory",
        "docs: torch._functorch.config",
    ),
    *(
        MenuEntry(
            f"loader-{name}",
            words,
            _set(LOADER, **settings),
            "loader",
            NOTHING,
            "waits for data",
            lambda facts: facts.loading,
            _needs_loader,
            "data sets that cannot be sent to other processes; the order of random numbers in them",
            "https://docs.pytorch.org/docs/stable/data.html",
        )
        for name, words, settings in (
            ("workers", "data from 4 processes (num_workers)", {"num_workers": 4, "persistent_workers": True}),
            ("pinned", "data in pinned memory (pin_memory)", {"pin_memory": True}),
        )
    ),
    MenuEntry(
        "expandable-segments",
        "memory in segments that grow",
        (ProgramSetting(ENVIRONMENT, "PYTORCH_CUDA_ALLOC_CONF", repr("expandable_segments:True")),),
        "allocator",
        NOTHING,
        "waits for the driver's memory",
        lambda facts: facts.allocating,
        _needs_gpu,
        "",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
    ),
    MenuEntry(
        "tf32",
        "products of float32 in TF32",
        (
            ProgramSetting(TORCH, "torch.backends.cuda.matmul.allow_tf32", "True"),
            ProgramSetting(TORCH, "torch.backends.cudnn.allow_tf32", "True"),
        ),
        "tf32",
        PRECISION,
        "products of float32",
        _bound_by_float32,
        _needs_gpu,
        "10 bits of mantissa instead of 23",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
    ),
    MenuEntry(
        "bf16",
        "products of float32 in bfloat16",
        (ProgramSetting(TORCH, "torch.set_float32_matmul_precision", repr("medium")),),
        "bf16",
        PRECISION,
        "products of float32",
        _bound_by_products,
        _needs_bfloat16,
        "7 bits of mantissa instead of 23; small matrix products, and attention over short sequences, become slower",
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
    *(
        MenuEntry(
            f"reduced-{name}",
            f"sums of {name} matrix products in that type, too",
            (ProgramSetting(TORCH, f"torch.backends.cuda.matmul.allow_{setting}", "True"),),
            "reduced-precision",
            PRECISION,
            "products",
            _bound_by_kernels(*PRODUCTS),
            _needs_gpu,
            "sums lose bits",
            "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        )
        for name, setting in (("fp16", "fp16_accumulation"), ("bf16", "bf16_reduced_precision_reduction"))
    ),
)

THREADS = MenuEntry(  # its value depends on the machine
    "threads",
    "as many threads as cores",
    (),
    "threads",
    SUMS,
    "the work of the processor",
    lambda facts: None,
    _needs_cores,
    "other programs on the machine",
    "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",
)
