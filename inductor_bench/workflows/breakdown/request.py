"""What a request of a breakdown says of itself: in the record, in titles and in the names of folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...records.model_sources import COMPILED_HERE, LIBRARIES
from ...records.run import Request
from ...store.redaction import Redaction
from ..modules.program import DEFAULT_BATCH_SIZE
from ..modules.targets import Target
from ..options import BreakdownOptions


def find_secrets(options: BreakdownOptions) -> Redaction:
    """What nothing that is written may hold."""
    return Redaction.find([sys.argv[1:] if is_command() else (), options.arguments], os.environ, options.redact)


def is_command() -> bool:
    """Whether the words of this process are those of the tool, and not of a program that calls it."""
    return Path(sys.argv[0]).name in ("inductor-bench", "__main__.py")


def request_of(target: Target, options: BreakdownOptions) -> Request:
    """The request as the record holds it, with its secrets."""
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
    )


def title_of(target: Target, options: BreakdownOptions) -> str:
    """What was measured, for people."""
    model = target.kind in LIBRARIES
    name = target.name.removeprefix(f"{target.kind}:") if model else Path(target.name).name
    parts = [name, *options.arguments]
    if target.kind in COMPILED_HERE:
        if options.training is not None or model:
            parts.append("training" if options.training else "inference")
        if model:
            parts.append(f"batch {options.batch_size or DEFAULT_BATCH_SIZE}")
        parts += [f"{options.amp} autocast"] if options.amp else []
        parts += [options.mode] if options.mode else []
    return " · ".join(parts)


def folder_title_of(target: Target, options: BreakdownOptions) -> str:
    """What names a folder that nobody named."""
    name = target.name.removeprefix(f"{target.kind}:")
    stem = name if target.kind in LIBRARIES else Path(name.partition(":")[0]).stem
    return stem + ("-training" if options.training else "")
