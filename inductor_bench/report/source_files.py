"""Standalone files as a page shows them: the kernel's own text first."""

from __future__ import annotations

import re

from .document import SourceFile

_OWN = re.compile(r"^(?:# The kernel, as it stands in the compiled module\.\n+|SOURCE = r?'''\n?)", re.MULTILINE)
_OWN_END = re.compile(r"\n*^(?:open_tuning_cache\(|''')", re.MULTILINE)
"""Where a standalone file's own kernel begins and ends: a Triton kernel, or the text of a C++ kernel."""


def source_file(text: str) -> SourceFile:
    """A standalone file, of which the kernel's own text is shown first."""
    begin = _OWN.search(text)
    end = _OWN_END.search(text, begin.end()) if begin else None
    return SourceFile(text, (begin.end(), end.start()) if begin and end else None)
