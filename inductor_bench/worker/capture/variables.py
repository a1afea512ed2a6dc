"""The environment variables that configure the observation in the processes of a captured program."""

CAPTURE_FOLDER = "INDUCTOR_BENCH_CAPTURE"
LIVE = "INDUCTOR_BENCH_LIVE"
REPEAT = "INDUCTOR_BENCH_REPEAT"
PINS = "INDUCTOR_BENCH_PINS"
"""Path of the configurations that this process puts into its kernels; empty for none."""

OBSERVE = "INDUCTOR_BENCH_OBSERVE"
"""What is observed: empty for modules and steps, or one of the next three."""

NOTHING, STEPS, COMPARISON = "nothing", "steps", "comparison"
"""Nothing but pins; steps alone; steps with the pins and without in turn."""

VALUES_LIMIT = "INDUCTOR_BENCH_VALUES_LIMIT"
SKIP_STEPS = "INDUCTOR_BENCH_SKIP_STEPS"
"""Number of steps between the first boundary and the timed window; empty to wait until compilation has settled."""

EAGER = "INDUCTOR_BENCH_EAGER"
"""Type of the device of the steps, where the program runs without compilation and its steps are only timed; else empty.
"""

PYTHON_STARTED = "python.started"
"""Name of the empty file in the folder that says that a Python process of the program looked for its configuration."""

TIMED_STEPS = "INDUCTOR_BENCH_TIMED_STEPS"
"""Number of steps that are timed, and of those that are profiled; empty for the usual number."""

MODE = "INDUCTOR_BENCH_MODE"
"""The encoded ``messages.observed.ModeChange`` of this process; empty to leave the program's own settings."""

PROFILES = "INDUCTOR_BENCH_PROFILES"
"""``0`` to profile no steps, ``1`` to profile them also where nothing is compiled; else empty."""
