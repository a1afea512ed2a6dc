"""How the shell completes arguments that may be paths."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_path(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leaves a word to the shell, which completes it as a path."""
    return [CompletionItem(incomplete, type="file")]
