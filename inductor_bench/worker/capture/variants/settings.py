"""The settings of variants: changes that are made and undone at the boundaries of steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....devices.table import find_device
from ....messages.observed import ProgramVariant, VariantSwitch
from ....records.optimization import ALTERNATING, ATTENTION, FUNCTION, INDUCTOR, OPTIMIZER, TORCH
from ...upstream import graph_variants as upstream
from ...upstream.observing import call_before_optimizer_steps

Undo = Callable[[], None]
Values = dict[str, Any]
"""Values of options, flags and arguments, by the names that torch gives them."""


class SettingChange(Protocol):
    """A change of the process that can be made and undone between two steps."""

    def apply(self) -> Undo:
        """Makes the change; returns a function that undoes it."""


@dataclass(frozen=True)
class TorchChange:
    """A change of an attribute of torch, or of what a function ``set_…`` of torch sets."""

    path: str
    value: Any

    def apply(self) -> Undo:
        before = upstream.read_setting(self.path)
        upstream.write_setting(self.path, self.value)
        return lambda: upstream.write_setting(self.path, before)


@dataclass(frozen=True)
class AttentionChange:
    """A change of the backends that scaled_dot_product_attention may use."""

    names: tuple[str, ...]

    def apply(self) -> Undo:
        before = upstream.read_attention()
        upstream.write_attention(upstream.make_attention_context(self.names))
        return lambda: upstream.write_attention(before)


class Optimizers:
    """The optimizers of the process that have made a step."""

    def __init__(self) -> None:
        self.held: Values = {}
        """Flags that each optimizer gets before its first step, and keeps."""
        self.found: Callable[[Any], None] = lambda optimizer: None
        """Is called with each optimizer in its first step."""
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def listen(self) -> None:
        """Begins to note the optimizers; torch has been imported."""
        call_before_optimizer_steps(self._note)

    def _note(self, optimizer: Any) -> None:
        if optimizer in self._known:
            return
        self._known.add(optimizer)
        if self.held and not why_not(optimizer, self.held):
            _change_optimizer(optimizer, self.held)
        self.found(optimizer)

    @property
    def are_known(self) -> bool:
        """Whether an optimizer has made a step."""
        return bool(self._known)

    def __iter__(self) -> Any:
        return iter(list(self._known))

    def why_not(self, flags: Values) -> str:
        """Returns why no optimizer can get these flags; empty if one can."""
        reasons = [why_not(optimizer, flags) for optimizer in self]
        return "" if "" in reasons else next(iter(reasons), "the program has no optimizer")


def why_not(optimizer: Any, flags: Values) -> str:
    """Returns why an optimizer cannot get these flags; empty if it can."""
    from torch.optim.optimizer import _device_dtype_check_for_fused

    name = type(optimizer).__name__
    if not type(optimizer).__module__.startswith("torch.optim"):
        return f"{name} is no class of torch.optim"
    if flags.get(COMPILED) and name in NOT_COMPILED:
        return f"torch does not compile the step of {name}"
    missing = [flag for flag in flags if flag not in optimizer.defaults and flag != COMPILED]
    if missing:
        return f"{name} has no {missing[0]}"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"{name} is differentiable"
    if flags.get("fused"):
        try:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    _device_dtype_check_for_fused(parameter)
        except RuntimeError as error:
            return str(error)
    return ""


COMPILED = "compiled"
"""The flag of optimizers whose step is compiled. It is not one of torch's keys."""

NOT_COMPILED = ("SparseAdam", "RAdam", "LBFGS")
"""The optimizers whose steps Dynamo leaves alone."""

AMP = "_step_supports_amp_scaling"
"""The attribute by which a GradScaler leaves its work to a fused optimizer."""


@dataclass(frozen=True)
class OptimizerChange:
    """A change of keys in all groups of the optimizers that have these keys."""

    flags: Values
    optimizers: Optimizers

    @property
    def is_compiled(self) -> bool:
        """Whether the steps of the optimizers are compiled, too."""
        return bool(self.flags.get(COMPILED))

    def suits(self, optimizer: Any) -> bool:
        """Whether an optimizer can be changed in this way."""
        return not why_not(optimizer, self.flags)

    def apply(self) -> Undo:
        undoings = [_change_optimizer(one, self.flags) for one in self.optimizers if self.suits(one)]

        def undo() -> None:
            for one in undoings:
                one()

        return undo


def _change_optimizer(optimizer: Any, flags: Values) -> Undo:
    wanted = dict(flags)
    compiled = wanted.pop(COMPILED, False)
    if compiled:
        wanted |= flags_of_compiled(optimizer)
    for one, other in (("fused", "foreach"), ("foreach", "fused")):  # torch refuses both
        if wanted.get(one):
            wanted.setdefault(other, False)
    groups = [(group, {name: group[name] for name in wanted if name in group}) for group in optimizer.param_groups]
    scales = vars(optimizer).get(AMP)
    for group, before in groups:
        group.update({name: wanted[name] for name in before})
    rates = _make_rates(optimizer) if compiled else []
    if flags.get("fused"):
        setattr(optimizer, AMP, True)
    _place_step_counts(optimizer)

    def undo() -> None:
        for group, before in groups:
            group.update(before)
        _restore_rates(rates)
        if flags.get("fused"):
            if scales is None:
                delattr(optimizer, AMP)
            else:
                setattr(optimizer, AMP, scales)
        _place_step_counts(optimizer)

    return undo


COUNTS = "_inductor_bench_step_counts"
"""The attribute of an optimizer that holds its step counts on other devices, by the id of the state and the device."""


def flags_of_compiled(optimizer: Any) -> Values:
    """Returns the flags with which an optimizer's step is compiled as a whole; its step counts lie on the device."""
    kinds = {one.device.type for group in optimizer.param_groups for one in group["params"]}
    on_host = all(find_device(kind).runs_on_host for kind in kinds)
    return {"fused": False, "foreach": not on_host, "capturable": not on_host}


Rate = tuple[Values, Any, Any]
"""A group, its learning rate, and the tensor that replaces it."""


def _make_rates(optimizer: Any) -> list[Rate]:
    """Turns learning rates into tensors, which may change without another compilation."""
    import torch

    found = []
    for group in optimizer.param_groups:
        rate = group.get("lr")
        if isinstance(rate, int | float):
            group["lr"] = torch.tensor(float(rate))
            found.append((group, rate, group["lr"]))
    return found


def _restore_rates(rates: list[Rate]) -> None:
    """Turns learning rates into numbers again, with the changes that a scheduler has made."""
    import torch

    for group, before, made in rates:
        if group["lr"] is made:
            same = torch.equal(made, torch.tensor(float(before)))
            group["lr"] = before if same else float(made)


def _place_step_counts(optimizer: Any) -> None:
    """Moves the step counts to where the flags need them: to the parameters' device, or to the host.

    Each place gets the same tensors each time, because the compiled code has guards on them.
    """
    import torch

    moves: dict[tuple[Any, Any], list[Values]] = {}
    for group in optimizer.param_groups:
        beside = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            count = state.get("step") if state else None
            place = parameter.device if beside else torch.device("cpu")
            if isinstance(count, torch.Tensor) and count.device != place:
                moves.setdefault((count.device, place), []).append(state)
    kept = vars(optimizer).setdefault(COUNTS, {})
    for (before, place), states in moves.items():  # together, because each copy from a device waits for it
        counts = torch.stack([state["step"] for state in states]).to(place)
        for state, count in zip(states, counts.unbind(), strict=True):
            kept[id(state), before] = state["step"]
            known = kept.get((id(state), place))
            state["step"] = kept[id(state), place] = count.clone() if known is None else known.copy_(count)


@dataclass
class VariantSettings:
    """The changes of one variant, sorted by where they are made."""

    number: int
    slug: str
    options: Values = field(default_factory=dict)  # of Inductor
    changes: list[TorchChange | AttentionChange] = field(default_factory=list)  # compilation sees them, too
    optimizer: OptimizerChange | None = None
    functions: tuple[str, ...] = ()  # the places of functions that are compiled
    tag: str = ""  # a part of the keys of torch's caches
    refused: list[str] = field(default_factory=list)  # reasons why a switch cannot be made
    applied: list[str] = field(default_factory=list)
    guards: tuple[tuple[str, Any], ...] = ()  # the settings after whose change Dynamo compiles anew
    failure: str = ""
    compile_s: float = 0.0
    graphs: int = 0
    peak_memory_bytes: int | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether the variant has compiled graphs of its own."""
        return bool(self.options or self.changes or self.tag)

    def refuse(self, reason: str) -> None:
        """Gives the variant up, because one of its switches cannot be set."""
        self.refused.append(reason)
        self.fail(reason)

    def fail(self, reason: str) -> None:
        """Gives the variant up; the first reason stays."""
        self.failure = self.failure or reason


def settings_of(number: int, variant: ProgramVariant, optimizers: Optimizers, *, alternates: bool) -> VariantSettings:
    """Sorts the switches of a variant. A switch that this torch lacks is refused as soon as that is known."""
    made = VariantSettings(number, variant.slug)
    flags: Values = {}
    for switch in variant.switches:
        if switch.kind == INDUCTOR:
            made.options[switch.setting.replace("-", "_")] = switch.value
        elif switch.kind == TORCH:
            made.changes.append(TorchChange(switch.setting, switch.value))
        elif switch.kind == ATTENTION:
            made.changes.append(AttentionChange(tuple(str(switch.value).replace(" ", "").split(","))))
        elif switch.kind == OPTIMIZER:
            flags[switch.setting] = switch.value
        elif switch.kind == FUNCTION:
            made.functions = (*made.functions, switch.setting)
        elif alternates:
            made.refuse(f"{switch.setting}: it can be set only when a process starts")
        if switch.kind in ALTERNATING:
            made.applied.append(describe_switch(switch))
    if flags:
        made.optimizer = OptimizerChange(flags, optimizers)
    if variant.is_placebo or made.changes:
        made.tag = f"inductor-bench {variant.slug}"
    if variant.is_placebo:
        made.options.update(upstream.PLACEBO_OPTIONS)
    return made


def describe_switch(switch: VariantSwitch) -> str:
    """Returns a switch in words."""
    return f"{switch.setting}={switch.value}"


def try_changes(settings: VariantSettings) -> None:
    """Makes and undoes the changes of a variant once, and refuses what this torch does not know.

    Dynamo and Inductor have been imported.
    """
    guards = []
    for change in settings.changes:
        name = change.path if isinstance(change, TorchChange) else "attention"
        try:
            guarded = upstream.is_guarded(change.apply)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            settings.refuse(f"{name}: {error}")
            continue
        if guarded and isinstance(change, TorchChange):
            guards.append((change.path, change.value))
    settings.guards = tuple(guards)
    for name in settings.options:
        if not upstream.has_option(name):
            settings.refuse(f"{name}: this torch has no such option")


def make_all(changes: Iterable[SettingChange]) -> Undo:
    """Makes changes; returns a function that undoes them in the opposite order."""
    undoings = [change.apply() for change in changes]

    def undo() -> None:
        for one in reversed(undoings):
            one()

    return undo
