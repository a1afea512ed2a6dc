"""The page of all commands, made from what click knows about them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from inductor_bench.cli.main import VERBS, group

from .markdown import bullet, code_block, escaped, link, outside_code, page, paragraph

PROGRAM = "inductor-bench"

INTRODUCTION = (
    "`--help` of each command prints the same text. Options may stand before and after the arguments; what comes after "
    "`--` is a program's."
)

VERBATIM = "\b"
"""click's mark of a paragraph whose lines stay as they are."""

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

NUMBERS = click.types.IntParamType | click.types.FloatParamType


def commands_page() -> str:
    """The text of ``docs/commands.md``."""
    blocks = [paragraph(INTRODUCTION), contents(), *option_list(group, group_context())]
    for verb in VERBS:
        blocks += verb_blocks(verb)
    return page("Commands", blocks)


def group_context() -> click.Context:
    return click.Context(group, info_name=PROGRAM, **group.context_settings)


def contents() -> str:
    """The table of contents: each verb with its line in ``--help``."""
    return "\n".join(bullet(f"{link(verb, f'`{verb}`')}: {in_markdown(about)}") for verb, about in VERBS.items())


def verb_blocks(verb: str) -> Iterator[str]:
    """A verb's usage, text, arguments and options."""
    context = group_context()
    command = group.get_command(context, verb)
    assert command is not None
    own = click.Context(command, info_name=verb, parent=context)
    yield f"## {verb}"
    yield code_block(" ".join([PROGRAM, verb, *command.collect_usage_pieces(own)]))
    yield from help_blocks(inspect.cleandoc(command.help or ""))
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    if arguments:
        yield "**Arguments**"
        yield "\n".join(bullet(argument_words(argument)) for argument in arguments)
    yield from option_list(command, own)


def help_blocks(text: str) -> Iterator[str]:
    """The paragraphs of a help text; those that click leaves as they are become blocks of code."""
    for block in text.split("\n\n"):
        first, _, rest = block.partition("\n")
        yield code_block(rest) if first.strip() == VERBATIM else paragraph(in_markdown(block))


def in_markdown(text: str) -> str:
    """Words of a help text as Markdown, with the names of options as code."""
    return escaped(outside_code(text, lambda part: OPTION.sub(r"`\g<0>`", part)))


def argument_words(argument: click.Argument) -> str:
    """An argument's name as the usage has it, how often it may be given, and what it must be."""
    name = (argument.metavar or str(argument.name).upper()).strip("[]").removesuffix("...")
    often = "any number" if argument.nargs == -1 else "one"
    words = [f"{often}, required" if argument.required else f"{often}, optional"]
    if isinstance(argument.type, click.Path) and argument.type.exists:
        words.append("an existing file" if not argument.type.dir_okay else "an existing folder")
    if isinstance(argument.type, click.Choice):
        words.append(f"one of {choices_of(argument.type)}")
    return f"`{name}`: {'; '.join(words)}"


def option_list(command: click.Command, context: click.Context) -> Iterator[str]:
    """The options of a command in the order of its help."""
    # click keeps a command's --help with the names of the first context that asked for it.
    shown = click.Option(context.help_option_names, is_flag=True, help="Show this message and exit.")
    options = [option for option in (*command.params, shown) if isinstance(option, click.Option)]
    yield "**Options**"
    yield "\n".join(bullet(option_words(option)) for option in options if not option.hidden)


def option_words(option: click.Option) -> str:
    """The names, the form of the value, the meaning, the choices and the default of an option."""
    names = ", ".join(sorted(option.opts, key=len))  # the order of those of --help differs between versions of click
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    if not option.is_flag and not option.count:
        names += f" {option.metavar or ('N' if isinstance(option.type, NUMBERS) else 'VALUE')}"
    # click adds the default that it shows to the text; so does the help of an option with a default of its own.
    meaning, _, default = (option.help or "").rstrip("]").partition("  [default: ")
    if option.show_default and option.default is not None:
        default = (
            next(iter(option.opts if option.default else option.secondary_opts)) if option.is_flag else option.default
        )
    sentences = [in_markdown(meaning), *limits(option), f"Default: `{default}`." if default != "" else ""]
    return f"`{names}`: {' '.join(filter(None, sentences))}"


def limits(option: click.Option) -> Iterator[str]:
    """The choices or the range of an option, what it means without a value, and whether it may be repeated."""
    kind = option.type
    if isinstance(kind, click.Choice):
        yield f"One of {choices_of(kind)}."
    if isinstance(kind, click.IntRange | click.FloatRange):
        low = "More than" if kind.min_open else "At least"
        yield f"{low} {kind.min:g}." if kind.max is None else f"From {kind.min:g} to {kind.max:g}."
    if not option.is_flag and isinstance(option.flag_value, str):
        yield f"Without a value: `{option.flag_value}`."
    if option.multiple and "repeated" not in (option.help or ""):
        yield "May be repeated."


def choices_of(kind: click.Choice) -> str:  # type: ignore[type-arg]
    """``a``, ``b`` or ``c``, each as code."""
    *first, last = (f"`{choice}`" for choice in kind.choices)
    return f"{', '.join(first)} or {last}" if first else last
