"""Describes the request of a breakdown for the record, for titles and for the names of folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...records.model_sources import COMMAND, COMPILED_HERE, LIBRARIES
from ...records.run import Request
from ...store.redaction import Redaction
from ..options import BreakdownOptions
from .program_run import DEFAULT_BATCH_SIZE, arguments_of
from .targets import Target


def find_secrets(options: BreakdownOptions) -> Redaction:
    """The values that must not be written anywhere."""
    commands = [sys.argv[1:] if is_command() else (), options.arguments]
    return Redaction.find(commands, {**os.environ, **dict(options.variables)}, options.redact)


def is_command() -> bool:
    """Whether this process is the command-line tool; false in a program that calls the tool from Python."""
    return Path(sys.argv[0]).name in ("inductor-bench", "__main__.py")


def request_of(target: Target, options: BreakdownOptions) -> Request:
    """The request for the record, unredacted."""
    return Request(
        target=target.name,
        kind=target.kind,
        arguments=options.arguments,
        training=options.training,
        batch_size=options.batch_size,
        amp=options.amp,
        mode=options.mode,
        dynamic=options.dynamic,
        device=options.device,
        seed=options.seed,
        live=options.live,
        timeout_s=options.timeout_s,
        python=options.python,
        repeat=options.repeat,
        steps=options.steps,
        skip=options.skip,
        stop=options.stop,
        eager=options.eager,
    )


def title_of(target: Target, options: BreakdownOptions) -> str:
    """The title of a breakdown, for people."""
    if target.kind == COMMAND:
        return " ".join([Path(target.name).name, *arguments_of(options.arguments)])
    model = target.kind in LIBRARIES
    name = target.name.removeprefix(f"{target.kind}:") if model else Path(target.name).name
    parts = [" ".join([name, *options.arguments])]
    if target.kind in COMPILED_HERE:
        if options.training is not None or model:
            parts.append("training" if options.training else "inference")
        if model:
            parts.append(f"batch {options.batch_size or DEFAULT_BATCH_SIZE}")
        parts += [f"{options.amp} autocast"] if options.amp else []
        parts += [options.mode] if options.mode else []
    return " · ".join(parts)


def folder_title_of(target: Target, options: BreakdownOptions) -> str:
    """The title from which the name of a RUN folder is made where the user gives none."""
    if target.kind == COMMAND:
        return Path(target.name).name.removesuffix(".py").rpartition(".")[2]
    name = target.name.removeprefix(f"{target.kind}:")
    stem = name if target.kind in LIBRARIES else Path(name.partition(":")[0]).stem
    return stem + ("-training" if options.training else "")
