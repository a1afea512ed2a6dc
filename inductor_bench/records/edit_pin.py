"""The edited source of a kernel, which takes the place of Inductor's in a program."""

from __future__ import annotations

from dataclasses import dataclass

TRITON, CPP = "triton", "cpp"
"""The languages of kernels that can be edited."""


@dataclass(frozen=True)
class EditPin:
    """The edited source of one kernel."""

    name: str  # of the kernel in the RUN
    # of the source that was edited, or of the calls: it is the same for every name and number of the kernel
    kernel_id: str
    family_id: str  # the same for other sizes of the kernel, too
    language: str  # ``triton`` or ``cpp``
    source: str  # the edited text, as generated code passes it to its compiler
    file: str  # the path of the edited file, for people
    # of an edit in the place of calls: the id of each kernel that is called, or its operator; otherwise empty
    calls: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # what such a kernel takes: the names of the arguments, in C++ their types
    choice: tuple[str, ...] = ()  # what max-autotune chose for the source that was edited, if it is from a template

    @property
    def target(self) -> tuple[str, str]:
        """What a process knows the kernel by."""
        return self.language, self.kernel_id


def put_in_words(configs: int, edits: int) -> str:
    """What is put into a program: ``the configs``, ``the edit``, or ``the configs and the edits``, by their numbers."""
    edited = "the edit" if edits == 1 else "the edits"
    return f"the configs and {edited}" if configs and edits else edited if edits else "the configs"
