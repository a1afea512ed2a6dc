"""The variants of this process: reads which ones to try, and applies them to torch when it is imported."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ....messages.observed import CAPTURE_FOLDER, ORIGINAL, UNCOMPILED, VARIANTS, VariantsRequest, VariantSwitch
from ....records.optimization import COMPILE, DYNAMO, ENVIRONMENT, LOADER, MEMORY_FORMAT, PINS
from ....store import codec
from ....store.files import read_json
from ...upstream import graph_variants as upstream
from ..step_observer import StepObserver
from .gradients import GradientNotes
from .settings import Values, VariantSettings, describe_switch
from .turns import Turns


class HeldSettings:
    """The switches of one variant. They are set when the modules that they change are imported.

    Args:
        settings: the settings of the variant; they note which of them took effect.
        switches: its switches.
    """

    def __init__(self, settings: VariantSettings, switches: tuple[VariantSwitch, ...]) -> None:
        self._settings = settings
        self._by_kind: dict[str, dict[str, VariantSwitch]] = {}
        for switch in switches:
            self._by_kind.setdefault(switch.kind, {})[switch.setting] = switch
            if switch.kind in (ENVIRONMENT, PINS):  # the parent has set them
                settings.applied.append(describe_switch(switch))

    def change_torch(self, torch: Any) -> None:
        """Changes the arguments of ``torch.compile``, and the layout of what it compiles; torch has been imported."""
        arguments, layout = self._values(COMPILE), MEMORY_FORMAT in self._by_kind
        if not arguments and not layout:
            return
        original = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, **keywords: Any) -> Any:
            if model is None:  # a decorator with arguments: torch calls this function again with the model
                return original(model, **keywords)
            if layout:
                self._change_layout(torch, model)
            if (keywords.get("backend") or "inductor") != "inductor" or keywords.get("disable"):
                return original(model, **keywords)
            return original(model, **self._changed(keywords, arguments))

        torch.compile = compile

    def _changed(self, keywords: Values, arguments: Values) -> Values:
        """Returns the keywords with those of a variant. torch takes a mode or options, and not both."""
        if keywords.get("options") and arguments.get("mode"):
            from ...upstream.inductor import list_options_of_mode

            options = {**list_options_of_mode(arguments["mode"], keywords.get("dynamic")), **keywords["options"]}
            arguments = {**arguments, "mode": None, "options": options}
        self._apply(COMPILE)
        return {**keywords, **arguments}

    def _change_layout(self, torch: Any, model: Any) -> None:
        module = getattr(model, "__self__", model)  # ``Module.compile`` passes a method
        if not isinstance(module, torch.nn.Module):
            self._refuse("channels_last: what is compiled is a function, not a module")
            return
        try:
            module.to(memory_format=torch.channels_last)
        except RuntimeError as error:
            self._refuse(f"channels_last: {error}")
            return
        self._apply(MEMORY_FORMAT)

    def change_dynamo(self, config: ModuleType) -> None:
        """Changes options of Dynamo; its config has been imported."""
        for name, value in self._values(DYNAMO).items():
            if not hasattr(config, name):
                self._refuse(f"{name}: this torch has no such option")
                continue
            setattr(config, name, value)
            self._apply(DYNAMO, name)

    def change_loaders(self, module: ModuleType) -> None:
        """Changes the arguments of each DataLoader; their module has been imported."""
        arguments = self._values(LOADER)
        if not arguments:
            return
        original: Callable[..., None] = module.DataLoader.__init__

        @functools.wraps(original)
        def init(loader: Any, *positional: Any, **keywords: Any) -> None:
            wanted = {**keywords, **arguments}
            if not wanted.get("num_workers"):  # these need workers
                for name in ("persistent_workers", "prefetch_factor"):
                    wanted.pop(name, None)
            try:
                original(loader, *positional, **wanted)
            except (TypeError, ValueError) as error:
                self._refuse(f"DataLoader: {error}")
                original(loader, *positional, **keywords)
                return
            self._apply(LOADER)

        module.DataLoader.__init__ = init

    def _refuse(self, reason: str) -> None:
        """Notes a switch that had no effect somewhere.

        The variant goes on, because the switch may have an effect elsewhere.
        """
        if reason not in self._settings.refused:
            self._settings.refused.append(reason)

    def _values(self, kind: str) -> Values:
        return {name: switch.value for name, switch in self._by_kind.get(kind, {}).items()}

    def _apply(self, kind: str, name: str = "") -> None:
        names = [describe_switch(one) for one in self._by_kind.get(kind, {}).values() if name in ("", one.setting)]
        self._settings.applied += [each for each in names if each not in self._settings.applied]


@dataclass(frozen=True)
class ProcessVariants:
    """The variants of this process, and what carries them out."""

    folder: Path
    turns: Turns
    gradients: GradientNotes
    held: HeldSettings | None  # of a variant that is on from the first step

    def install(self, torch: ModuleType) -> None:
        """Begins; torch has been imported, and neither its compiler nor the program has run."""
        self.turns.optimizers.listen()
        self.gradients.listen()
        upstream.around_backend(lambda original: partial(self.turns.compile, original))
        if self.held is not None:
            self.held.change_torch(torch)
            self.turns.activate_held()

        if self.turns.request.times_uncompiled:
            self._time_uncompiled()

    def _time_uncompiled(self) -> None:
        """Times the steps from here on, until the process has a compiled graph."""
        from ..uncompiled import save_at_exit, timed

        folder = self.folder / UNCOMPILED
        folder.mkdir(exist_ok=True)
        steps = self.observer(lambda: None, folder)
        steps.begin_eager()
        timed.append(steps)
        save_at_exit(steps.finish, lambda: None)

    def observer(self, on_done: Callable[[], None], folder: Path | None = None) -> StepObserver:
        """Returns the observation of the steps of this process; ``folder`` is that of its file."""
        from .trial import VariantObserver, VariantTrial

        place = folder or self.folder
        return VariantObserver(
            self.turns, lambda graphs: VariantTrial(place, graphs, self.turns, self.gradients), on_done
        )


_process: list[ProcessVariants] = []


def process_variants() -> ProcessVariants:
    """Returns the variants of this process. They are read once."""
    if not _process:
        request = codec.decode(VariantsRequest, read_json(Path(os.environ[VARIANTS])))
        folder = Path(os.environ[CAPTURE_FOLDER])
        turns = Turns(request, folder)
        held = None
        if turns.held != ORIGINAL:
            held = HeldSettings(turns.settings[turns.held], request.variants[turns.held - 1].switches)
        _process.append(ProcessVariants(folder, turns, GradientNotes(request.losses), held))
    return _process[0]


def install(torch: ModuleType) -> None:
    """Begins in this process; see :meth:`ProcessVariants.install`."""
    process_variants().install(torch)


def change_dynamo(config: Any) -> None:
    """Changes Dynamo's options, if a variant is on from the first step; ``config`` has just been imported."""
    held = process_variants().held
    if held is not None:
        held.change_dynamo(config)


def change_loaders(module: Any) -> None:
    """Changes the arguments of DataLoaders, if a variant is on from the first step; their module has been imported."""
    held = process_variants().held
    if held is not None:
        held.change_loaders(module)
