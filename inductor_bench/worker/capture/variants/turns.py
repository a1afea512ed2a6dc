"""The turns of the variants: compiles each graph of the program for each variant, and calls the active one's.

Dynamo captures the program once, as without variants. The backward graph of a call belongs to the variant that ran the
forward graph. If a variant fails, the original runs instead, so that the program does not see the failure.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ....messages.observed import JOURNAL, ORIGINAL, CheckedCallable, VariantsRequest
from ....records.optimization import KEPT_SIZES, MODE_BITS, KindSizes
from ...upstream import graph_variants as upstream
from ..step_measurement import describe_error
from .own_functions import OwnFunctions
from .settings import Optimizers, Undo, VariantSettings, make_all, settings_of, try_changes

JOURNAL_BYTES = 200

ROOM = 4096
"""Places on Python's stack that a call of a graph asks for, so that all that it calls fits into one piece of the stack.

The stack consists of pieces of 2,048 places. A call for which a piece has no place left gets a new piece from the
system, and its return gives it back (CPython 3.11, 3.12 and early 3.13 and 3.14: gh-142183). A graph whose launches
begin at the end of a piece pays for that at each launch, and which graph does is decided by the frames below it: the
original would be slower than the same graph called through one more function.
"""


KINDS = 1 << (32 + MODE_BITS)
"""The number of different kinds of steps that can be told apart."""

MOST_KINDS = 100
"""The largest number of kinds of steps whose sizes are kept."""

REMEMBERED_SHAPES = 4096
"""The largest number of shapes of one graph that have numbers of their own."""


def _undo_nothing() -> None:
    """Undoes nothing."""


class InputShapes:
    """Numbers the shapes of a graph's inputs. A graph with dynamic shapes gets their sizes as inputs.

    Args:
        frame: tells the function that is compiled from others.
        inputs: the inputs with which it is compiled.
        found: gets the sizes of the tensors for each number.
    """

    def __init__(
        self, frame: str = "", inputs: Sequence[Any] = (), found: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        import torch

        self._found = {} if found is None else found
        self._sizes = tuple(place for place, one in enumerate(inputs) if not isinstance(one, torch.Tensor))
        self._tensors = [
            place
            for place, one in enumerate(inputs)
            if isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter)
        ]
        self._frame, self._has_gradients = frame, torch.is_grad_enabled()
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number(self, arguments: Sequence[Any]) -> int:
        """Returns a number for the graph and the shapes of a call, the same one in each process. Runs at each call."""
        sizes = tuple([arguments[place] for place in self._sizes]) if self._sizes else ()
        known = self._numbers.get(sizes)
        if known is None:
            if len(self._numbers) >= REMEMBERED_SHAPES:
                return 0
            shapes = [tuple(arguments[place].shape) for place in self._tensors]
            known = (zlib.crc32(f"{self._frame} {shapes}".encode()) << MODE_BITS) + self._has_gradients
            self._numbers[sizes] = known
            self._found[known] = tuple(size for shape in shapes for size in shape)
        return known


@dataclass
class VariantGraph:
    """One graph of Dynamo, compiled for each variant."""

    number: int  # of what is compiled; the same where Dynamo compiles it anew for a variant's settings
    name: str  # Dynamo's number of the compilation
    own: Callable[..., Any]  # the original
    callables: list[Callable[..., Any]]  # by the numbers of variants; those without one of their own call the original
    compiled: dict[int, Callable[..., Any]] = field(default_factory=dict)  # those that have one of their own
    changed: tuple[int, ...] | None = None  # the places of inputs that it changes; ``None`` if that is unknown
    uses_cuda_graphs: bool = False  # whether the original runs as a CUDA graph
    calls_collectives: bool = False
    coarsest_eps: float = 0.0  # the distance of 1 to the next number in the coarsest type inside; 0 if unknown
    is_eager: bool = False  # whether the original is not compiled
    shapes: InputShapes = field(default_factory=InputShapes)  # of its inputs
    state: tuple[Any, ...] = ()  # tensors that the graph has beside its inputs
    is_checked: bool = False


Check = Callable[["Turns", VariantGraph, Sequence[Any]], list[CheckedCallable]]
NoteCall = Callable[[int, Sequence[Any]], None]


class Turns:
    """The variants of this process, and which of them is active.

    Args:
        request: the variants.
        folder: the folder of the capture, in which the journal lies.
    """

    def __init__(self, request: VariantsRequest, folder: Path) -> None:
        self.variant = ORIGINAL
        """The number of the active variant."""
        self.watches = False
        """Whether something has to be done before the next call of a graph."""
        self.kind = 0
        """The sum of the numbers of the shapes of all calls since the last step: equal for steps of one kind."""
        self.kind_sizes: dict[int, KindSizes] = {}
        """The sizes in the steps of each kind."""
        self._called: set[int] = set()  # the numbers of the calls since the last step
        self._sizes: dict[int, tuple[int, ...]] = {}  # of these numbers
        self.note_call: NoteCall | None = None
        """Is called before each call of a graph, while the pattern of calls delimits the steps."""
        self.check: Check | None = None
        """Compares the variants of a graph before its next call, if a comparison is requested."""
        self.request = request
        self.optimizers = Optimizers()
        self.checks: list[CheckedCallable] = []
        self.notes: list[str] = []
        self.settings = [VariantSettings(ORIGINAL, "original")]
        for number, variant in enumerate(request.variants, 1):
            self.settings.append(settings_of(number, variant, self.optimizers, alternates=request.alternates))
        self._owns = [OwnFunctions(self, one.number, one.functions, one.optimizer) for one in self.settings]
        self.held = ORIGINAL if request.alternates else len(self.settings[:2]) - 1
        """The variant that is active while none is timed: the original if they alternate."""
        self.is_over = False
        """Whether variants are no longer compiled."""
        self._graphs: list[VariantGraph] = []
        self._numbers: dict[str, int] = {}  # the number of each thing that was compiled
        self._undo_step: Undo = _undo_nothing
        self._undo_changes: Undo = _undo_nothing
        self._in_place = ORIGINAL  # the variant whose changes are in place
        self._is_prepared = False
        self.replays: upstream.ReplaySwitch | None = None
        """Makes graphs that are replayed launch their kernels one by one for the comparison."""
        self._waits_for_functions = self.held != ORIGINAL and bool(self.settings[self.held].functions)
        self._folder, self._journal = folder, -1
        self._compiling = 0

    # Whose turn it is

    @property
    def active(self) -> VariantSettings:
        """Returns the settings of the active variant."""
        return self.settings[self.variant]

    @property
    def alive(self) -> list[VariantSettings]:
        """Returns the variants that can be timed, without the original."""
        differing = {row.variant for row in self.checks if row.reason and row.is_compared}
        return [one for one in self.settings[1:] if not one.failure and one.number not in differing]

    def activate_held(self) -> None:
        """Activates the variant that is on from the first step.

        Its optimizer flags are set when there are optimizers.
        """
        optimizer = self.settings[self.held].optimizer
        if optimizer:
            self.optimizers.held = optimizer.flags
        self.optimizers.found = self._note_optimizer
        self.activate(self.held)

    def activate(self, number: int) -> None:
        """Makes a variant the active one."""
        if number == self.variant:
            return
        self._undo_step()
        self._undo_step = _undo_nothing
        self.variant = number
        self.note(number, "runs")
        try:
            self._put_in_place(number)
            self._undo_step = self._change_step(number)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            self.fail(number, error)

    def _change_step(self, number: int) -> Undo:
        """Makes the changes that do not affect how the program's graphs are compiled: of optimizers and of
        functions."""
        if self.held == number:  # what is on from the first step stays on
            return _undo_nothing
        optimizer = self.settings[number].optimizer
        undo_flags = optimizer.apply() if optimizer else _undo_nothing
        try:
            undo_functions = self._owns[number].apply()
        except Exception:
            undo_flags()
            raise

        def undo() -> None:
            undo_functions()
            undo_flags()

        return undo

    def _note_optimizer(self, optimizer: Any) -> None:
        self._compile_held_functions()
        own = self.settings[self.held].optimizer
        if own is not None and own.is_compiled and own.suits(optimizer):
            self._owns[self.held].override(optimizer)

    def _compile_held_functions(self) -> None:
        """Compiles the functions of the variant that is on from the first step, as soon as they exist."""
        owns = self._owns[self.held]
        if not self._waits_for_functions:
            return
        owns.find()
        if owns.are_found:
            self._waits_for_functions = False
            owns.apply()

    def take_kind(self) -> int:
        """The kind of the step that ends: which graphs it called, and with which shapes."""
        kind, self.kind = self.kind % KINDS, 0
        if kind not in self.kind_sizes and len(self.kind_sizes) < MOST_KINDS:
            sizes = [size for number in sorted(self._called) for size in self._sizes.get(number, ())]
            self.kind_sizes[kind] = KindSizes(kind, tuple(sizes[:KEPT_SIZES]))
        self._called.clear()
        return kind

    def failed(self, number: int) -> bool:
        """Whether a variant was given up."""
        return bool(self.settings[number].failure)

    def _put_in_place(self, number: int) -> None:
        """Undoes the changes that are in place, and makes those of a variant that affect compilation."""
        self._undo_changes()
        self._undo_changes, self._in_place = _undo_nothing, ORIGINAL
        self._undo_changes = make_all(self.settings[number].changes)
        self._in_place = number

    @contextlib.contextmanager
    def in_place_of(self, number: int) -> Iterator[None]:
        """In the block, the settings of a variant replace those of the active one, except for the optimizer's."""
        before = self._in_place
        if before == number:
            yield
            return
        self._put_in_place(number)
        try:
            yield
        finally:
            self._put_in_place(before)

    def note(self, number: int, what: str) -> None:
        """Writes into the journal what is about to happen, because it may end this process."""
        if self._journal < 0:
            path = self._folder / f"{os.getpid()}{JOURNAL}"
            self._journal = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        text = "-" if number == self.held else f"{self.settings[number].slug} {what}"
        os.pwrite(self._journal, f"{text:<{JOURNAL_BYTES}}"[:JOURNAL_BYTES].encode() + b"\n", 0)

    def fail(self, number: int, error: BaseException) -> None:
        """Gives a variant up: from now on the original runs instead of it in all graphs."""
        import torch

        traceback.print_exception(error)
        self.give_up(number, describe_error(error))
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()

    def give_up(self, number: int, reason: str) -> None:
        """Gives a variant up for a reason in words."""
        self.settings[number].fail(reason)
        for graph in self._graphs:
            graph.callables[number] = graph.own
            graph.compiled.pop(number, None)

    def refuse_optimizers(self) -> None:
        """Gives up the variants that need optimizer flags which no optimizer of the program can have."""
        for settings in self.settings[1:]:
            flags = settings.optimizer.flags if settings.optimizer else {}
            reason = self.optimizers.why_not(flags) if flags else ""
            if reason:
                settings.refuse(f"{', '.join(flags)}: {reason}")

    # The compilation

    def compile(self, original: Callable[..., Any], backend: Any, module: Any, inputs: Any, **keywords: Any) -> Any:
        """Compiles a graph for the original and for all variants; returns a function that calls the active one's."""
        self._compile_held_functions()
        if self.is_over:
            return original(backend, module, inputs, **keywords)
        name, what = upstream.name_compilation(inputs)
        frame = what.partition(" ")[0]
        if self.settings[1:]:
            self._prepare()
        if not self.request.alternates and not self.request.checks:
            made = self._compile_held(original, backend, module, inputs, **keywords)
            number = self._numbers.setdefault(what, len(self._numbers))
            self.watches = True
            shapes = InputShapes(frame, inputs, self._sizes)
            return self._dispatcher(VariantGraph(number, name, made, [made] * len(self.settings), shapes=shapes))
        wanted = [one for one in self._compiled_now() if not one.failure and one.is_compiled]
        copies = {one.number: upstream.copy_graph(module) for one in wanted}
        from ..output_comparison import find_coarsest_eps  # which imports torch

        collectives, eps = upstream.calls_collectives(module), find_coarsest_eps(upstream.list_values_within(module))
        with self._timed_for(self.settings[ORIGINAL]), self.in_place_of(ORIGINAL):
            own = original(backend, module, inputs, **keywords)
            changed = upstream.list_changed_inputs(len(inputs))
        self.settings[ORIGINAL].graphs += 1
        options = {**upstream.find_options(backend), **(keywords.get("config_patches") or {})}
        graph = VariantGraph(
            self._numbers.setdefault(what, len(self._numbers)),
            name,
            own,
            [own] * len(self.settings),
            changed=changed,
            uses_cuda_graphs=bool(options.get("triton.cudagraphs", upstream.option("triton.cudagraphs"))),
            calls_collectives=collectives,
            coarsest_eps=eps,
            shapes=InputShapes(frame, inputs, self._sizes),
        )
        self._graphs.append(graph)
        for settings in wanted:
            self._compile_variant(graph, settings, backend, copies.pop(settings.number), inputs, options)
        self.watches = True
        return self._dispatcher(graph)

    def _compile_held(self, original: Callable[..., Any], backend: Any, module: Any, inputs: Any, **more: Any) -> Any:
        """Compiles a graph for the variant that is on from the first step; for the original if that fails."""
        settings = self.settings[self.held]
        if self.held == ORIGINAL or settings.failure:
            return original(backend, module, inputs, **more)
        spare = upstream.copy_graph(module)
        try:
            with self._timed_for(settings):
                made = original(upstream.set_options(backend, settings.options), module, inputs, **more)
        except Exception as error:  # whatever a compiler raises is the variant's
            if upstream.asks_for_restart(error):
                raise
            self.fail(settings.number, error)
            return original(backend, spare, inputs, **more)
        settings.graphs += 1
        return made

    def _prepare(self) -> None:
        """Finds out, after Inductor is imported, which variants can be compiled and how often Dynamo has to compile."""
        if self._is_prepared:
            return
        self._is_prepared = True
        if self.request.checks:
            self.replays = upstream.ReplaySwitch()
        if self.held != ORIGINAL and not self.failed(self.held):
            self._put_in_place(self.held)  # what the program has set since its start gives way
        for settings in self.settings[1:]:
            try_changes(settings)
        kinds = {settings.guards for settings in self.settings}
        if len(kinds) > 1:
            upstream.allow_recompilations(len(kinds))

    def _compiled_now(self) -> list[VariantSettings]:
        """Returns the variants with the guarded settings of the active one: they may run what Dynamo captures now."""
        if not self.request.alternates:
            return [self.settings[self.held]] if self.held else []
        return [one for one in self.settings[1:] if one.guards == self.active.guards]

    def _compile_variant(
        self, graph: VariantGraph, settings: VariantSettings, backend: Any, module: Any, inputs: Any, options: Any
    ) -> None:
        surround = partial(self._compiling_for, settings)
        try:
            made = upstream.compile_as(backend, module, list(inputs), {**options, **settings.options}, surround)
        except Exception as error:  # an exception of the compiler ends the variant, and not the program
            self.fail(settings.number, error)
            return
        settings.graphs += 1
        graph.compiled[settings.number] = made
        graph.callables[settings.number] = self.falling_back(settings.number, made, graph.own)

    def compile_own(
        self, number: int, name: str, module: Any, inputs: Any, *, with_graphs: bool = True
    ) -> Callable[..., Any]:
        """Compiles a graph that only one variant has. The same graph, as Dynamo captured it, is kept to run eagerly.

        Args:
            number: the variant's.
            name: what is compiled, in words.
            module: the graph.
            inputs: its inputs.
            with_graphs: whether it may run as a CUDA graph.
        """
        settings, copied = self.settings[number], upstream.copy_graph(module)
        own, state = copied.forward, (*copied.parameters(), *copied.buffers())
        if settings.failure:
            return own  # type: ignore[no-any-return]
        graph = VariantGraph(-1, name, own, [own] * len(self.settings), is_eager=True, state=state)
        graph.calls_collectives = upstream.calls_collectives(module)
        try:
            surround = partial(self._compiling_for, settings)
            options = settings.options if with_graphs else {**settings.options, **upstream.WITHOUT_CUDA_GRAPHS}
            made = upstream.compile_own_graph(module, inputs, options, surround)
        except Exception as error:  # an exception of the compiler ends the variant, and not the program
            self.fail(number, error)
            return own  # type: ignore[no-any-return]
        settings.graphs += 1
        graph.compiled[number] = made
        graph.callables[number] = self.falling_back(number, made, own)
        self._graphs.append(graph)

        def dispatch(*arguments: Any) -> Any:
            if self.check is not None and not graph.is_checked:
                graph.is_checked = True
                self.checks += self.check(self, graph, arguments)
            return graph.callables[number](*arguments)

        return dispatch

    @contextlib.contextmanager
    def _compiling_for(self, settings: VariantSettings) -> Iterator[None]:
        """Compiles inside with a variant's settings, and adds the time to the variant's compile time."""
        self.note(settings.number, "compiles")
        try:
            with self._adding_time(settings), self.in_place_of(settings.number), upstream.tag_cache(settings.tag):
                yield
        finally:
            self.note(self.variant, "runs")

    @contextlib.contextmanager
    def _timed_for(self, settings: VariantSettings) -> Iterator[None]:
        """Adds the time inside to a variant's compile time, and later that of its backward graphs."""
        adding = partial(self._adding_time, settings)
        with adding(), upstream.around_compilations(adding):
            yield

    @contextlib.contextmanager
    def _adding_time(self, settings: VariantSettings) -> Iterator[None]:
        outermost, begin_s = not self._compiling, time.perf_counter()
        self._compiling += 1
        try:
            yield
        finally:
            self._compiling -= 1
            if outermost:
                settings.compile_s += time.perf_counter() - begin_s

    def falling_back(self, number: int, made: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that calls ``made``; if ``made`` fails, it calls ``own``."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                return made(*arguments, **keywords)
            except Exception as error:  # the original takes the variant's place, and raises what is the program's
                self.fail(number, error)
            return own(*arguments, **keywords)

        return call

    # The calls

    def _dispatcher(self, graph: VariantGraph) -> Callable[..., Any]:
        callables, number, note = graph.callables, graph.shapes.number, self._called.add

        def dispatch(*arguments: Any) -> Any:
            if self.watches:
                self._note_and_check(graph, arguments)
            called = number(arguments)
            self.kind += called
            note(called)
            return callables[self.variant](*arguments)

        dispatch.__code__ = dispatch.__code__.replace(co_stacksize=ROOM)
        return dispatch

    def _note_and_check(self, graph: VariantGraph, arguments: Sequence[Any]) -> None:
        if self.note_call is not None:
            self.note_call(graph.number, arguments)
        if self.check is not None and not graph.is_checked:
            graph.is_checked = True
            self.checks += self.check(self, graph, arguments)
        waits = self.request.checks and any(not one.is_checked for one in self._graphs)
        self.watches = self.note_call is not None or waits

    def end(self) -> None:
        """Makes the original the active one for the rest of the process, and frees the memory of the variants."""
        if self._waits_for_functions:
            self._waits_for_functions = False
            self.settings[self.held].refuse("the program has no function of this name that can be compiled")
        self.activate(self.held)
        self.is_over = True
        if self.held == ORIGINAL:
            for graph in self._graphs:
                graph.compiled.clear()
                graph.callables[:] = [graph.own] * len(self.settings)
