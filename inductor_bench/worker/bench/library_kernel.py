"""The library call of a standalone file, and several calls together as one kernel."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as LateError
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ...devices.table import find_device
from ...errors import InductorBenchError
from ...messages.kernel_requests import (
    CompiledResources,
    Described,
    KernelTimes,
    LibraryConfigs,
    RecordedFacts,
    VariantChange,
    VariantFacts,
)
from ...records.retune import Config
from ...source.harness import cpp_main, operator_main
from ...source.harness.common import Arguments, bind_arguments, build_arguments, tensors_in, written_tensors
from ...source.harness.operator_main import Operator, count_bytes, count_flops, switched
from ...store import codec
from ..device.runtime import Timer, using_device_alone
from ..device.runtimes import find_runtime
from .loaded_kernel import LoadedKernel, draw_on, find_threads, make_measured

if TYPE_CHECKING:
    from .library_choices import Choice

# The variants of a library call on a GPU: the call itself, cuDNN's fastest algorithm, and Inductor's choices.


AHEAD = 32
"""Number of choices that are compiled ahead of the one that is asked for."""

COMPILE_S = 120.0
"""Limit in seconds for the compilation of one choice."""

QUEUE_S = 1.0
"""Seconds between two looks at a compilation that has not begun."""

_SEARCHER = ThreadPoolExecutor(1, "cudnn-search")


class SearchedOperator(Operator):
    """A call whose algorithm cuDNN searches for.

    cuDNN caches one algorithm for each call and thread, with a search or without one. The call runs on a thread of its
    own, so that the same call without a search keeps its algorithm. (torch 2.11, 2.13)
    """

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        call = super().bind(arguments)

        def on_stream(stream: torch.cuda.Stream) -> Any:
            with torch.cuda.stream(stream):
                return call()

        return lambda: _SEARCHER.submit(on_stream, torch.cuda.current_stream()).result()


class SharedResults:
    """The result tensors of a call: one for each set of arguments.

    All choices share it, and it is freed with the arguments.

    Args:
        like: a result of the call, for its shape, strides, dtype and device.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self._like = like
        self._made = WeakTensorKeyDictionary()

    def make_unwritten(self, arguments: Arguments) -> torch.Tensor:
        """Returns the result tensor.

        It is filled with NaN or the smallest integer, so that no earlier result is left in it.
        """
        owner, like = arguments.storages[0], self._like
        if owner not in self._made:
            self._made[owner] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        result: torch.Tensor = self._made[owner]
        floats = result.is_floating_point() or result.is_complex()
        return result.fill_(torch.nan if floats else torch.iinfo(result.dtype).min)


class ChosenOperator(Operator):
    """A call that is replaced by one of Inductor's choices.

    Args:
        operator: the call itself.
        choice: the choice.
        results: the result tensors, for calls without an ``out`` argument.
    """

    def __init__(self, operator: Operator, choice: Choice, results: SharedResults) -> None:
        super().__init__(operator.recorded, operator.folder)
        self.choice, self._shared = choice, results

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        tensors, out = split_arguments(self, arguments)
        call = self.choice.bind(tensors, self._shared.make_unwritten(arguments) if out is None else out)
        switches = self.switches()

        def run() -> Any:
            with switched(switches):  # Inductor's choice may be a library call too
                return call()

        return run

    def outputs(self, arguments: Arguments) -> list[torch.Tensor]:
        """Returns the result in the place of each output of the call, because a choice may allocate its own result."""
        _, result = self._results.get(id(arguments), (None, None))
        every = super().outputs(arguments)
        return every if result is None else [result for _ in every]


def open_operator(recorded: dict[str, Any], folder: str) -> Operator:
    """Returns the call of a file; it searches cuDNN's algorithms if the file asks for that."""
    operator = Operator(recorded, folder)
    return SearchedOperator(recorded, folder) if operator.is_searched() else operator


def split_arguments(operator: Operator, arguments: Arguments) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """Returns the tensors that a call reads, in order, and its ``out`` tensor, if any."""
    outs = [item.name for item in operator.find()._schema.arguments if item.is_out]
    keywords = {name: value for name, value in arguments.keywords.items() if name not in outs}
    (out,) = [arguments.keywords.get(name) for name in outs] if len(outs) == 1 else [None]
    return tensors_in([arguments.args, keywords]), out


class LibraryCandidates:
    """The configurations of a library call on this machine.

    Args:
        operator: the call itself.
        wide: whether the choices of Inductor's exhaustive search are included.
    """

    def __init__(self, operator: Operator, wide: bool = False) -> None:
        from .library_choices import find_choices

        self._operator, self.wide = operator, wide
        with using_device_alone():
            arguments = operator.make_arguments()
            result = operator.bind(arguments)()
        self._results = SharedResults(result)  # a call with another result than a tensor has no choices
        find = partial(find_choices, operator.find(), arguments, result)
        with switched(operator.switches()):
            self._max, self._limits = find()
            every = find(True)[0] if wide else []
        known = [choice.config for choice in self._max]
        self._wide = [choice for choice in every if choice.config not in known]
        random.Random(0).shuffle(self._wide)  # a short budget then times a random sample
        self._compilations: dict[int, Future[None]] = {}
        weakref.finalize(self, _cancel, self._compilations)
        self._begin(self._max)

    def list_configs(self) -> LibraryConfigs:
        """The configurations of the call."""
        now = make_library_config(self._operator.is_searched())
        searches = "cudnn_benchmark" in find_device(self._operator.device).library_switches
        searchable = searches and self._operator.is_convolution()
        calls = [make_library_config(search) for search in (False, True)] if searchable else []
        return LibraryConfigs(
            now=now,
            max=(*(call for call in calls if call != now), *(choice.config for choice in self._max)),
            wide=tuple(choice.config for choice in self._wide),
            limits=self._limits,
        )

    def operator(self, config: Config) -> ChosenOperator:
        """Returns the compiled call in one of Inductor's configurations.

        Raises:
            InductorBenchError: the configuration does not compile or is unknown.
        """
        every = [*self._max, *self._wide]
        place = next((place for place, choice in enumerate(every) if choice.config == config), None)
        if place is None:
            raise InductorBenchError("Inductor lists no such choice here", "retune the file with this version of torch")
        self._begin(every[place : place + AHEAD])  # the requests follow this order
        choice = every[place]
        self._wait(choice)
        choice.compile()
        return ChosenOperator(self._operator, choice, self._results)

    def _begin(self, choices: Sequence[Choice]) -> None:
        from .library_choices import compile_in_background

        for choice in choices:
            if id(choice) not in self._compilations:
                self._compilations[id(choice)] = compile_in_background(choice, COMPILE_S)

    def _wait(self, choice: Choice) -> None:
        """Waits until a choice is compiled.

        A failure is ignored here: the choice reports it in plainer words when it is used.

        Raises:
            InductorBenchError: it takes too long.
        """
        compilation = self._compilations[id(choice)]
        while not (compilation.running() or compilation.done()):
            wait([compilation], timeout=QUEUE_S)
        if not wait([compilation], timeout=COMPILE_S).done or _is_late(compilation):
            raise InductorBenchError(f"does not compile within {COMPILE_S:.0f} s")


def _is_late(compilation: Future[None]) -> bool:
    return not compilation.cancelled() and isinstance(compilation.exception(), TimeoutError | LateError)


def _cancel(compilations: Mapping[int, Future[None]]) -> None:
    """Drops the compilations that have not begun."""
    for compilation in compilations.values():
        compilation.cancel()


def make_library_config(searched: bool) -> Config:
    """Returns the configuration of the call itself; ``searched`` says whether cuDNN searches for an algorithm."""
    return {"backend": "aten", "cudnn_benchmark": True} if searched else {"backend": "aten"}


def describe(operator: Operator) -> Described:
    """The facts of a call. ``config`` is empty on a CPU, which needs the list of variants."""
    arguments = operator.make_arguments()
    return Described(
        config={} if find_device(operator.device).runs_on_host else make_library_config(operator.is_searched()),
        flops=count_flops(operator, arguments),  # before the bytes, because this calls the operator
        moved_bytes=count_bytes(operator, arguments),
        dtype=find_product_type(operator, arguments),
    )


def find_product_type(operator: Operator, arguments: Arguments) -> str | None:
    """The element type of matrix products of these arguments: the first floating-point dtype, without ``torch.``.

    It is ``tf32`` or ``bfloat16`` if the device may compute float32 products in it under the switches that the file
    recorded.
    """
    tensors = [tensor for tensor in tensors_in([arguments.args, arguments.keywords]) if tensor.is_floating_point()]
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else None
    if dtype == "float32" and operator.switches().get("mkldnn_bf16") and not operator.is_convolution():
        return "bfloat16"
    if not find_device(operator.device).has_tf32 or dtype != "float32":
        return dtype
    library = torch.backends.cudnn if operator.is_convolution() else torch.backends.cuda.matmul
    with switched(operator.switches()):
        return "tf32" if library.allow_tf32 else dtype


class OperatorBenchKernel(LoadedKernel):
    """A library call.

    The ``change`` that makes a variant holds ``threads``, ``cudnn_benchmark``, or the ``config`` of one of Inductor's
    choices.

    Args:
        recorded: the file's ``RECORDED``.
        folder: the folder of the file.
        operator: the call as a variant makes it; ``None`` for the call of the file.
    """

    def __init__(self, recorded: dict[str, Any], folder: str, operator: operator_main.Operator | None = None) -> None:
        if find_device(recorded["device_type"]).runs_on_host:
            recorded = {**recorded, "threads": find_threads(recorded)}
        self.recorded, self.folder = recorded, folder
        self.operator = operator or open_operator(recorded, folder)
        self.others: LibraryCandidates | None = None
        self.launch = self.operator.launch
        self.runtime = find_runtime(self.operator.device)
        self.tolerances: Mapping[str, float] = self.operator.tolerances()

    def facts(self) -> VariantFacts:
        return VariantFacts(
            language="operator",
            device=self.operator.device,
            recorded=codec.decode(RecordedFacts, self.recorded),
            processors=cpp_main.usable_processors(),
        )

    def configs(self, wide: bool = False) -> LibraryConfigs:
        """The configurations of the call; see :meth:`variants.LibraryCandidates.list_configs`."""
        if self.others is None or (wide and not self.others.wide):
            self.others = LibraryCandidates(self.operator, wide)
        return self.others.list_configs()

    def make_variant(self, change: VariantChange) -> OperatorBenchKernel:
        if not change.config:
            return OperatorBenchKernel({**self.recorded, **change.list_changed_facts()}, self.folder)
        others = self.others or LibraryCandidates(self.operator)
        return OperatorBenchKernel(self.recorded, self.folder, others.operator(change.config))

    def compile(self) -> CompiledResources:
        self.operator.find()
        return CompiledResources()

    def make_arguments(self) -> Arguments:
        return self.operator.make_arguments(draw=draw_on(self.operator.device))

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        torch.manual_seed(0)  # each variant must draw the same random numbers
        self.operator.call(arguments)
        return self.operator.compared(arguments)

    def verify(self) -> tuple[bool | None, str]:
        return operator_main.check_operator(self.operator, 0)

    def measure(self) -> KernelTimes:
        arguments = self.operator.make_arguments()
        timer = self.runtime.measure_call
        times = timer(self.operator.launch, arguments, self.operator.bind)
        return make_measured(times, self.operator.measure_with_zeros(timer))

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.operator.launch, arguments, self.operator.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.operator.bind(arguments)

    def prepare(self) -> None:
        if self.runtime.device.runs_on_host:
            torch.set_num_threads(self.recorded["threads"])

    def describe(self) -> Described:
        return describe(self.operator)


class JoinedKernel(LoadedKernel):
    """The calls of a file that ``source.stretch_texts.join_parts`` wrote.

    Args:
        module: the imported file.
        parts: the kernels of its ``PARTS``.
    """

    def __init__(self, module: ModuleType, parts: Sequence[LoadedKernel]) -> None:
        self.recorded, self.folder, self._parts = (module.RECORDED, str(module.FOLDER), parts)
        self.launch: dict[str, Any] = self.recorded["launch"]
        self.runtime = find_runtime(self.recorded["device_type"])
        on_host = self.runtime.device.runs_on_host
        self.device = "cpu" if on_host else f"cuda:{torch.cuda.current_device()}"

    def facts(self) -> VariantFacts:
        language = "cpp" if find_device(self.recorded["device_type"]).runs_on_host else "triton"
        return VariantFacts(language, self.recorded["device_type"], codec.decode(RecordedFacts, self.recorded))

    def make_variant(self, change: VariantChange) -> LoadedKernel:
        raise InductorBenchError("several calls have no configuration of their own", "retune each kernel separately")

    def compile(self) -> CompiledResources:
        for part in self._parts:
            part.compile()
        return CompiledResources()

    def make_arguments(self) -> Arguments:
        return build_arguments(self.launch, self.device, folder=self.folder, draw=draw_on(self.device))

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.bind(arguments)()
        return written_tensors(self.launch, arguments)

    def compute_moved(self, arguments: Arguments, seed: int) -> None:
        """Makes the calls. Before later calls read what a call left, it is changed by about one unit in the last place.

        A kernel that replaces the calls may keep these values in another type, or compute them in another order. The
        results themselves are left as the calls wrote them.
        """
        self.compile()
        generator = torch.Generator().manual_seed(seed)
        moved: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for number, part in enumerate(self._parts, 1):
            given = bind_arguments(part.launch, arguments.storages, self.device)
            part.bind(given)()
            for tensor in written_tensors(part.launch, given) if number < len(self._parts) else ():
                if tensor.is_floating_point():
                    before = tensor.clone()
                    nudge_last_bits(tensor, generator)
                    moved.append((tensor, before, tensor.clone()))
        for tensor, before, after in reversed(moved):
            tensor.copy_(torch.where(tensor == after, before, tensor))

    def verify(self) -> tuple[bool | None, str]:
        return None, "no reference was recorded for several calls together"

    def measure(self) -> KernelTimes:
        return make_measured(self.runtime.measure_call(self.launch, self.make_arguments(), self.bind), None)

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.launch, arguments, self.bind)

    def bind(self, arguments: Any) -> Callable[[], Any]:
        self.compile()
        bound = [(part, bind_arguments(part.launch, arguments.storages, self.device)) for part in self._parts]
        calls = [part.bind(given) for part, given in bound]

        def run() -> None:
            for call in calls:
                call()

        return run

    def prepare(self) -> None:
        for part in self._parts:
            part.prepare()


def nudge_last_bits(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Changes each element by about its last bit, up or down."""
    signs = 2 * torch.randint(0, 2, tensor.shape, generator=generator) - 1
    factor = 1 + signs.to(tensor.device, torch.float64) * torch.finfo(tensor.dtype).eps
    tensor.copy_((tensor.to(torch.float64) * factor).to(tensor.dtype))


def open_joined(module: ModuleType, open_file: Callable[[Path], LoadedKernel]) -> JoinedKernel:
    """The calls of an imported file; ``open_file`` opens the standalone file of one."""
    parts = []
    for number, text in enumerate(module.PARTS):
        path = Path(module.FOLDER) / f"{module.STEM}_part_{number}.py"
        path.write_text(text, encoding="utf-8")
        parts.append(open_file(path))
    return JoinedKernel(module, parts)
