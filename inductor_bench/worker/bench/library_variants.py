"""The ways in which a library call can be made on a GPU: as it is, as cuDNN finds fastest, or as Inductor would."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from inductor_bench.devices.table import device_of
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernels import LibraryConfigs
from inductor_bench.messages.times import Described
from inductor_bench.records.tuning import Config
from inductor_bench.source.standalone.harness.arguments import Arguments, tensors_in
from inductor_bench.source.standalone.harness.operator_main import Operator, count_bytes, count_flops
from inductor_bench.source.standalone.harness.switches import switched

if TYPE_CHECKING:
    from .library_choices import Choice

AT_A_TIME = 32
"""Choices of the wide set that are compiled side by side."""

_SEARCHER = ThreadPoolExecutor(1, "cudnn-search")


class SearchedOperator(Operator):
    """A call whose algorithm cuDNN searches for.

    It remembers one algorithm for a call, whether searched for or not, but for every thread its own: this call has a
    thread to itself, so that the call without a search goes on with what it had. (2.11, 2.13)
    """

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        call = super().bind(arguments)

        def on_stream(stream: torch.cuda.Stream) -> Any:
            with torch.cuda.stream(stream):
                return call()

        return lambda: _SEARCHER.submit(on_stream, torch.cuda.current_stream()).result()


class SharedResults:
    """One result for each set of arguments, which all choices of a call write to. It is let go of with the arguments.

    Args:
        like: what the call returns, for its layout.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self._like = like
        self._made = WeakTensorKeyDictionary()

    def unwritten(self, arguments: Arguments) -> torch.Tensor:
        """The result, full of what no call computes: not of what was computed in this memory before."""
        owner, like = arguments.storages[0], self._like
        if owner not in self._made:
            self._made[owner] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        result: torch.Tensor = self._made[owner]
        floats = result.is_floating_point() or result.is_complex()
        return result.fill_(torch.nan if floats else torch.iinfo(result.dtype).min)


class ChosenOperator(Operator):
    """A call that is made in one of Inductor's ways.

    Args:
        operator: the call as it is.
        choice: the way in which it is made.
        results: what it writes to, where the call is given nothing to write to.
    """

    def __init__(self, operator: Operator, choice: Choice, results: SharedResults) -> None:
        super().__init__(operator.recorded, operator.folder)
        self.choice, self._shared = choice, results

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        tensors, out = split_arguments(self, arguments)
        call = self.choice.bind(tensors, self._shared.unwritten(arguments) if out is None else out)
        switches = self.switches()

        def run() -> Any:
            with switched(switches):  # Inductor's way may be a library call too
                return call()

        return run

    def outputs(self, arguments: Arguments) -> list[torch.Tensor]:
        """The result, for everything that the call writes or returns: it may have been allocated elsewhere."""
        _, result = self._results.get(id(arguments), (None, None))
        every = super().outputs(arguments)
        return every if result is None else [result for _ in every]


def open_operator(recorded: dict[str, Any], folder: str) -> Operator:
    """The call of a file, as the file says that it is to be made."""
    operator = Operator(recorded, folder)
    return SearchedOperator(recorded, folder) if operator.is_searched() else operator


def split_arguments(operator: Operator, arguments: Arguments) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """The tensors that a call reads, in order, and that which it is given for its result, if any."""
    outs = [item.name for item in operator.find()._schema.arguments if item.is_out]
    keywords = {name: value for name, value in arguments.keywords.items() if name not in outs}
    (out,) = [arguments.keywords.get(name) for name in outs] if len(outs) == 1 else [None]
    return tensors_in([arguments.args, keywords]), out


class LibraryCandidates:
    """What a library call can be replaced by on this machine.

    Args:
        operator: the call as it stands.
        wide: whether Inductor's exhaustive set is asked for, beside that of max-autotune.
    """

    def __init__(self, operator: Operator, wide: bool = False) -> None:
        from .library_lowering import find_choices

        self._operator, self.wide = operator, wide
        arguments = operator.make_arguments()
        result = operator.bind(arguments)()
        self._results = SharedResults(result)  # there are no choices where that is no tensor
        find = partial(find_choices, operator.find(), arguments, result)
        with switched(operator.switches()):
            self._max, self._limits = find()
            every = find(True)[0] if wide else []
        known = [choice.config for choice in self._max]
        self._wide = [choice for choice in every if choice.config not in known]
        random.Random(0).shuffle(self._wide)  # its beginning must do for the whole where time is short
        self._begun: set[int] = set()
        self._compile(self._max)

    def listed(self) -> LibraryConfigs:
        """The ways to make the call."""
        now = library_config(self._operator.is_searched())
        searchable = device_of(self._operator.device).has_library_switches and self._operator.is_convolution()
        calls = [library_config(search) for search in (False, True)] if searchable else []
        return LibraryConfigs(
            now=now,
            max=(*(call for call in calls if call != now), *(choice.config for choice in self._max)),
            wide=tuple(choice.config for choice in self._wide),
            limits=self._limits,
        )

    def operator(self, config: Config) -> ChosenOperator:
        """The call in one of these configurations, compiled.

        Raises:
            InductorBenchError: it does not compile here, or is none of these.
        """
        every = [*self._max, *self._wide]
        for place, choice in enumerate(every):
            if choice.config == config:
                if id(choice) not in self._begun:
                    self._compile(every[place : place + AT_A_TIME])  # the next that will be asked for
                choice.compile()
                return ChosenOperator(self._operator, choice, self._results)
        raise InductorBenchError("Inductor lists no such choice here", "retune the file with this version of torch")

    def _compile(self, choices: Sequence[Choice]) -> None:
        from .library_lowering import compile_side_by_side

        self._begun |= {id(choice) for choice in choices}
        compile_side_by_side(choices)


def library_config(searched: bool) -> Config:
    """The call itself, with or without a search for its algorithm."""
    return {"backend": "aten", "cudnn_benchmark": True} if searched else {"backend": "aten"}


def describe(operator: Operator) -> Described:
    """What is known of a call; its ``config`` only where that needs no look at the other ways to make it."""
    arguments = operator.make_arguments()
    return Described(
        config={} if device_of(operator.device).runs_on_host else library_config(operator.is_searched()),
        flops=count_flops(operator, arguments),  # first: it calls the operator
        moved_bytes=count_bytes(operator, arguments),
        dtype=product_type(operator, arguments),
    )


def product_type(operator: Operator, arguments: Arguments) -> str | None:
    """The element type that products of these arguments are computed in: that of the first floating tensor.

    ``tf32`` where a GPU may use that for float32: in the program, as far as the file says.
    """
    tensors = [tensor for tensor in tensors_in([arguments.args, arguments.keywords]) if tensor.is_floating_point()]
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else None
    if not device_of(operator.device).has_tf32 or dtype != "float32":
        return dtype
    library = torch.backends.cudnn if operator.is_convolution() else torch.backends.cuda.matmul
    with switched(operator.switches()):
        return "tf32" if library.allow_tf32 else dtype
