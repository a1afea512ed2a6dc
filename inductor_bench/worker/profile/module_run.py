"""Runs a compiled module by itself, again and again, with inputs as they were at its first call.

A module may change its inputs in place: a counter, a cache of keys and values, the statistics of a batch norm. Run
again with what it left behind, it computes something else in each run, and may index beyond an end.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from ..upstream.inductor import clone_input

ROTATED_BYTES = 256 * 2**20
"""Maximum bytes of copies that are made before a profile, in which nothing is copied."""

SMALL_BYTES = 2**20
"""Maximum bytes of an input that is kept where it cannot be told whether the program's call changed it."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The type by whose values tensors are compared bit by bit, by the bytes of an element."""


class ModuleRun:
    """A call of a compiled module, each time with the same inputs.

    Args:
        call: calls the module with a list of its inputs, which it may empty.
        inputs: the inputs, which belong to this object.
        changed: the places of those that the module changes. They are as they were at its first call.
    """

    def __init__(self, call: Callable[[list[Any]], Any], inputs: Sequence[Any], changed: Iterable[int] = ()) -> None:
        self._call = call
        self._inputs = list(inputs)
        self._first = {place: clone_input(self._inputs[place]) for place in changed}
        self._rotated: deque[dict[int, Any]] = deque()

    @property
    def changed(self) -> tuple[int, ...]:
        """The places of the inputs that are restored."""
        return tuple(self._first)

    @property
    def kept_bytes(self) -> int:
        """The memory of what is kept to restore them."""
        return sum(first.nbytes for first in self._first.values())

    def __call__(self) -> Any:
        """Runs the module once, with inputs that were made for this run, or with those of the run before."""
        if not self._rotated:
            return self._call(list(self._inputs))
        inputs = list(self._inputs)
        for place, value in self._rotated.popleft().items():
            inputs[place] = value
        return self._call(inputs)

    def restore(self) -> None:
        """Makes the inputs of the next run what they were at the first call."""
        with torch.no_grad():
            for place, first in self._first.items():
                self._inputs[place].copy_(first)

    def rotate(self, runs: int) -> None:
        """Makes inputs for so many runs in advance, between which nothing is copied.

        Integers come first, which may be indices; large inputs are left as the run before left them.
        """
        self.restore()
        self._rotated = deque({} for _ in range(runs))
        left = ROTATED_BYTES
        for place in sorted(self._first, key=self._urgency):
            first = self._first[place]
            if runs * first.nbytes <= left:
                left -= runs * first.nbytes
                for inputs in self._rotated:
                    inputs[place] = clone_input(first)

    def forget_rotated(self) -> None:
        """Frees the inputs that were made in advance."""
        self._rotated.clear()

    def stop_rotating(self) -> None:
        """The same, and makes the inputs of the next run what they were at the first call."""
        self.forget_rotated()
        self.restore()

    def _urgency(self, place: int) -> tuple[bool, int]:
        first = self._first[place]
        return first.dtype.is_floating_point or first.dtype.is_complex, first.nbytes


def run_of_harness(call: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> ModuleRun:
    """The run of a module with inputs of its harness. It runs the module once, to see which inputs it changes.

    Without memory for a copy of the inputs none is restored.
    """
    try:
        before = [clone_input(value) for value in inputs]
    except torch.OutOfMemoryError:
        return ModuleRun(call, inputs)
    call(list(inputs))
    changed = [place for place, value in enumerate(inputs) if differs(value, before[place])]
    restored = list(inputs)
    for place in changed:
        restored[place] = before[place]
    return ModuleRun(call, restored, changed)


class FirstCall:
    """The inputs of a program's first call of a module: copies of them, and those that the call changed.

    It holds no input, because a module frees inputs while it runs.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._copies = [clone_input(value) for value in inputs]
        self._inputs = [weakref.ref(value) if is_tensor(value) else None for value in inputs]

    @property
    def copies(self) -> list[Any]:
        """The inputs as they were before the call."""
        return self._copies

    def changed(self) -> Iterator[int]:
        """After the call the places of the inputs that it changed, and of small ones that the program freed."""
        for place, (reference, copy) in enumerate(zip(self._inputs, self._copies, strict=True)):
            value = reference() if reference is not None else None
            if differs(value, copy) if value is not None else reference is not None and copy.nbytes <= SMALL_BYTES:
                yield place


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor with strides, of which ``clone_input`` makes a copy."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def differs(value: Any, copy: Any) -> bool:
    """Whether a tensor is no longer what its copy is, bit by bit; ``False`` for any other value."""
    if not is_tensor(value) or not is_tensor(copy) or value.shape != copy.shape:
        return False
    with torch.no_grad():
        return not torch.equal(_bits(value), _bits(copy))


def _bits(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value.detach()) if value.dtype.is_complex else value.detach()
    kind = _INTEGERS.get(value.element_size())
    return value if kind is None else value.view(kind)
