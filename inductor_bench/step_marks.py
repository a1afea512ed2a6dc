"""The mark that a program sets at the end of each step, and the functions that are called at each mark."""

# It imports nothing: `python -m inductor_bench` comes here while modules are still looked for in the current folder.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

listeners: "list[Callable[[], None]]" = []
"""Called at each mark. It is empty outside of a program or a block that is observed."""


def step() -> None:
    """Marks the end of a step of the program, for example of one iteration of a training loop or one token.

    ``inductor-bench breakdown`` and ``inductor_bench.observe`` then measure the steps between the marks. Without marks
    they take the optimizer's steps, or the repeating pattern of compiled calls. Elsewhere this does nothing.
    """
    for listener in tuple(listeners):
        listener()
