"""The settings of a row of a comparison of modes."""

from __future__ import annotations

from dataclasses import dataclass, field

EAGER, DEFAULT = "eager", "default"
MODES = (EAGER, DEFAULT, "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
"""The modes that are compared where none is chosen; all but the first are those of ``torch.compile``."""


@dataclass(frozen=True)
class Switch:
    """A switch of torch that a set may turn on.

    Attributes:
        name: the word after ``--with``.
        help: what it does.
        line: what a user types into the program to have it.
        variable: the environment variable that turns it on; empty where the process sets it before it compiles.
    """

    name: str
    help: str
    line: str
    variable: str = ""


TF32, CUDNN_BENCHMARK, CHANNELS_LAST = "tf32", "cudnn-benchmark", "channels-last"
SWITCHES = {
    switch.name: switch
    for switch in (
        Switch(TF32, "products of float32 in TF32", 'torch.set_float32_matmul_precision("high")'),
        Switch(CUDNN_BENCHMARK, "cuDNN times its algorithms", "torch.backends.cudnn.benchmark = True"),
        Switch(
            CHANNELS_LAST,
            "the weights of convolutions in channels-last order",
            "model = model.to(memory_format=torch.channels_last)",
        ),
        Switch(
            "freezing",
            "weights become constants (inference only)",
            "TORCHINDUCTOR_FREEZING=1",
            "TORCHINDUCTOR_FREEZING",
        ),
        Switch("cpp-wrapper", "the wrapper in C++", "TORCHINDUCTOR_CPP_WRAPPER=1", "TORCHINDUCTOR_CPP_WRAPPER"),
    )
}


@dataclass(frozen=True)
class ModeSet:
    """The settings of one row.

    Attributes:
        mode: ``eager``, or a mode of ``torch.compile``.
        switches: the switches of torch that it turns on, by the words after ``--with``, such as ``tf32``.
        environment: variables of the program's processes.
        options: options of Inductor by name, as text.
    """

    mode: str
    switches: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the row: ``default + tf32``."""
        options = (f"inductor.{name}={value}" for name, value in self.options.items())
        variables = (f"{name}={value}" for name, value in self.environment.items())
        return " + ".join([self.mode, *self.switches, *options, *variables])
