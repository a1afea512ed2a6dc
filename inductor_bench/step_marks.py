"""The mark that a program sets at the end of each step, and those who listen to it."""

# It imports nothing: `python -m inductor_bench` comes here while modules are still looked for in the current folder.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

listeners: "list[Callable[[], None]]" = []
"""Called at each mark. It is empty outside of a program that ``breakdown`` observes."""


def step() -> None:
    """Marks the end of a step of the program, for example of one iteration of a training loop or one token.

    ``inductor-bench breakdown`` then measures the steps between the marks. Without marks it takes the optimizer's
    steps, or the repeating pattern of compiled calls. Outside of an observed program this does nothing.
    """
    for listener in tuple(listeners):
        listener()
