"""The types of arguments that are paths, and how the shell completes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ...errors import UsageError


class ResultFolder(click.Path):
    """The folder of a run or a batch."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The folder as a path.

        Raises:
            UsageError: there is no such folder.
        """
        try:
            return super().convert(value, parameter, context)
        except click.BadParameter as error:
            what = "is a file, not a folder" if os.path.isfile(value) else "does not exist, or cannot be read"
            hint = "give a folder that `breakdown` or `batch` wrote: runs/NAME"
            raise UsageError(f"{value} {what}", hint) from error


def complete_path(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leaves a word to the shell, which completes it as a path."""
    return [CompletionItem(incomplete, type="file")]
