"""The verb ``completion``: prints the script with which a shell completes this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..errors import EXIT_OK

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "inductor-bench"
VARIABLE = "_INDUCTOR_BENCH_COMPLETE"
"""The environment variable by which the script asks this program; click makes the name from the program's."""


@click.command("completion", no_args_is_help=True)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print the script with which a shell completes commands, options and paths.

    SHELL is bash, zsh or fish. To install it, add the line to the shell's own file:

    \b
    ~/.bashrc                    eval "$(inductor-bench completion bash)"
    ~/.zshrc                     eval "$(inductor-bench completion zsh)"
    ~/.config/fish/config.fish   inductor-bench completion fish | source

    For zsh it stands below the line with compinit. bash has to be 4.4 or newer.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
    return EXIT_OK
