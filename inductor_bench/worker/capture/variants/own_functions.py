"""Functions of the program, and optimizers' steps, that only one variant compiles, and calls in its turn.

A function is found in memory by its file, a line and its name, or by its dotted path. In the variant's turn the
function's code only calls the compiled form, wherever the program refers to the function. After the turn the function
has its own code again. The graphs that Dynamo captures are compared with the same graphs run eagerly.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ...upstream import graph_variants as upstream
from .settings import OptimizerChange, Undo, Values

MOST_COMPILATIONS = 64
"""A function is given up after this many graphs, including the graphs between its graph breaks."""

_KINDS = 0x20 | 0x80 | 0x200
"""Flags of the code of generators and coroutines, which are not compiled."""

_numbers = itertools.count()


class OwningTurns(Protocol):
    """The methods of ``Turns`` that a function uses."""

    def compile_own(
        self, number: int, name: str, module: Any, inputs: Any, *, with_graphs: bool = True
    ) -> Callable[..., Any]:
        """Compiles a graph that only this variant has."""

    def falling_back(self, number: int, made: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that calls ``made``. If ``made`` fails, it calls ``own``, and gives the variant up."""

    def give_up(self, number: int, reason: str) -> None:
        """Gives the variant up."""

    def failed(self, number: int) -> bool:
        """Whether the variant was given up."""


class OwnFunction:
    """A function that one variant compiles. A call runs the compiled form, or the function if the variant failed.

    Args:
        variants: the variants of the process, and which of them is active.
        number: the variant's.
        name: the name of the function, in words.
        function: what is compiled.
        with_graphs: whether it may run as CUDA graphs.
    """

    def __init__(
        self,
        variants: OwningTurns,
        number: int,
        name: str,
        function: Callable[..., Any],
        *,
        with_graphs: bool = True,
    ) -> None:
        self.calls = 0
        self.has_settled = False
        """Whether it had a whole turn. After such a turn nothing should be compiled any more."""
        self._graphs, self._with_graphs = 0, with_graphs
        self._variants, self._number, self._name, self._function = variants, number, name, function
        compiled = upstream.compile_function(function, self._compile)
        self._call = variants.falling_back(number, compiled, function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._variants.failed(self._number):
            return self._function(*arguments, **keywords)
        self.calls += 1
        return self._call(*arguments, **keywords)

    def _compile(self, module: Any, inputs: Any) -> Callable[..., Any]:
        self._graphs += 1
        if self.has_settled or self._graphs > MOST_COMPILATIONS:
            said = f"{self._name} is compiled again in its call {self.calls}: what it depends on changes"
            self._variants.give_up(self._number, said)
        return self._variants.compile_own(self._number, self._name, module, inputs, with_graphs=self._with_graphs)


class _SwappedFunction:
    """One function object of the program. Its code can be replaced by code that calls something else."""

    def __init__(self, function: types.FunctionType, variants: OwningTurns, number: int) -> None:
        own = function.__code__
        copied = types.FunctionType(
            own, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        copied.__kwdefaults__, copied.__qualname__ = function.__kwdefaults__, function.__qualname__
        copied.__module__ = function.__module__
        copies.add(copied)
        self.compiled = OwnFunction(variants, number, function.__qualname__.replace(".<locals>", ""), copied)
        self._function, self._own, self._copied = function, own, copied
        self._name = f"__inductor_bench_call_{next(_numbers)}__"
        self._calling = _make_calling_code(self._name, own)

    def apply(self) -> Undo:
        """Makes the function call the compiled form."""
        self._function.__globals__[self._name] = self.compiled
        self._function.__code__ = self._calling

        def undo() -> None:
            self._function.__code__ = self._own
            self._function.__globals__.pop(self._name, None)
            self.compiled.has_settled = self.compiled.calls > 0

        return undo


copies: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
"""The replacements of one function of the program. They compare by identity."""


_OUTER = """
def outer({free}):
    def inner(*arguments, **keywords):
        {mention}
        return {name}(*arguments, **keywords)
    return inner
"""
"""Code with free variables. A function has all free variables that it mentions, even in code that never runs."""


def _make_calling_code(name: str, own: types.CodeType) -> types.CodeType:
    """Makes code that passes all arguments to a global, and has the free variables of the code ``own``."""
    free = ", ".join(own.co_freevars)
    mention = f"if 0: {free}" if free else "pass"
    text = _OUTER.format(free=free, mention=mention, name=name)
    space: Values = {}
    exec(text, space)
    made: types.CodeType = space["outer"](*own.co_freevars).__code__
    return made.replace(co_name=own.co_name, co_filename=own.co_filename, co_firstlineno=own.co_firstlineno)


def find_functions(place: str) -> Iterator[types.FunctionType]:
    """The functions in memory that a text names: ``FILE:LINE:NAME``, or a dotted path such as that of a module's."""
    if ":" not in place:
        found = _find_by_path(place)
        if isinstance(found, types.FunctionType):
            yield found
        return
    file, line, name = place.rsplit(":", 2)
    wanted = os.path.realpath(file)
    codes: dict[types.CodeType, bool] = {}
    for one in {id(one): one for one in _list_functions(wanted)}.values():
        if one.__code__.co_name != name or one in copies:
            continue
        code = one.__code__
        if code not in codes:
            codes[code] = os.path.realpath(code.co_filename) == wanted and has_line(code, int(line))
        if codes[code]:
            yield one


def _list_functions(file: str) -> Iterator[types.FunctionType]:
    """Returns all functions that the garbage collector knows, and those of a file's modules, which it does not know if
    the program has frozen them."""
    yield from (one for one in gc.get_objects() if type(one) is types.FunctionType)
    for module in list(sys.modules.values()):
        if os.path.realpath(getattr(module, "__file__", None) or "") != file:
            continue
        for value in list(vars(module).values()):
            inside = list(vars(value).values()) if isinstance(value, type) else [value]
            yield from (one for one in inside if type(one) is types.FunctionType)


def has_line(code: types.CodeType, line: int) -> bool:
    """Whether code, or a function within it, comes from a line."""
    lines = [number for _, _, number in code.co_lines() if number]
    inside = any(has_line(one, line) for one in code.co_consts if isinstance(one, types.CodeType))
    return inside or code.co_firstlineno <= line <= max(lines, default=0)


def _find_by_path(path: str) -> Any:
    module, _, name = path.rpartition(".")
    found = sys.modules.get(module)
    return (
        getattr(found, name, None)
        if found is not None
        else getattr(_find_by_path(module), name, None)
        if module
        else None
    )


class OwnFunctions:
    """What one variant compiles in addition to the program's graphs.

    Args:
        variants: the variants of the process, and which of them is active.
        number: the variant's.
        places: the functions, as :func:`find_functions` takes them.
        optimizer: the change of optimizers, if their steps are compiled.
    """

    def __init__(
        self, variants: OwningTurns, number: int, places: tuple[str, ...], optimizer: OptimizerChange | None
    ) -> None:
        self._variants, self._number, self._places = variants, number, places
        self._optimizer = optimizer if optimizer is not None and optimizer.is_compiled else None
        self._found: dict[str, list[_SwappedFunction]] = {}
        self._steps: dict[int, OwnFunction] = {}

    @property
    def are_found(self) -> bool:
        """Whether all functions were found."""
        return all(self._found.get(place) for place in self._places)

    def find(self) -> None:
        """Looks for the functions that were not found until now."""
        for place in self._places:
            if not self._found.get(place):
                functions = list(find_functions(place))
                usual = [one for one in functions if not one.__code__.co_flags & _KINDS]
                self._found[place] = [_SwappedFunction(one, self._variants, self._number) for one in usual]

    def apply(self) -> Undo:
        """Makes the program call the compiled forms.

        Gives the variant up if a function is missing, or is never called.
        """
        self.find()
        missing = next((place for place in self._places if not self._found[place]), "")
        if missing:
            name = missing.rsplit(":", 1)[-1]
            self._variants.give_up(self._number, f"the program has no function {name} that can be compiled")
            return lambda: None
        undoings = [one.apply() for place in self._places for one in self._found[place]]
        undoings += [self._override(one) for one in self._optimizers()]

        def undo() -> None:
            for one in reversed(undoings):
                one()
            self._note_uncalled()

        return undo

    def _note_uncalled(self) -> None:
        for place in self._places:
            if not any(one.compiled.calls for one in self._found[place]) and not self._variants.failed(self._number):
                name = place.rsplit(":", 1)[-1]
                self._variants.give_up(self._number, f"no step calls {name} outside of compiled graphs")

    def _optimizers(self) -> Iterator[Any]:
        change = self._optimizer
        return (one for one in change.optimizers if change.suits(one)) if change is not None else iter(())

    def _override(self, optimizer: Any) -> Undo:
        """Replaces an optimizer's step by the compiled one. The optimizer's hooks still run around it."""
        before = vars(optimizer).get("step")
        own = self._steps.get(id(optimizer))
        if own is None:
            name = f"the step of {type(optimizer).__name__}"
            step = upstream.inner_step(optimizer)
            own = OwnFunction(self._variants, self._number, name, step, with_graphs=False)
            self._steps[id(optimizer)] = own
        upstream.override_step(optimizer, own)

        def undo() -> None:
            own.has_settled = own.calls > 0
            if before is None:
                vars(optimizer).pop("step", None)
            else:
                optimizer.step = before

        return undo

    def override(self, optimizer: Any) -> None:
        """Replaces the step of an optimizer by the compiled one for the rest of the process."""
        self._override(optimizer)
