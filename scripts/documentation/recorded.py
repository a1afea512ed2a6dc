"""Recorded RUNs of the documentation: what a report and a comparison need of a RUN, without the machine's paths."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

RECORD = "record.json"
KEPT = (RECORD, "modules/*.py", "optimized/optimization.json")
"""``report``, ``query`` and ``apply`` read only the record, ``compare`` the kernels' code, too, and ``report`` of what
``optimize`` found the search."""

DAY = (1980, 1, 1, 0, 0, 0)
"""The date of each file in an archive, so that equal RUNs give equal archives."""

PROJECT = "/project"
"""The folder in which the recorded programs were started, as the archives call it."""


def pack(run: Path, archive: Path, masks: Mapping[str, str] | None = None) -> None:
    """Writes the parts of a RUN that the documentation needs.

    Args:
        run: the RUN folder.
        archive: the zip file to write.
        masks: what stands in the texts for paths of the machine, by these paths.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    paths = sorted(path for pattern in KEPT for path in run.glob(pattern))
    texts = {path.relative_to(run).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    record = json.loads(texts[RECORD])
    words = record["request"]["arguments"]
    hidden = {**(masks or {}), **({words[0]: Path(words[0]).name.rstrip("0123456789.")} if words else {})}
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as opened:
        for name, text in texts.items():
            for old in sorted(hidden, key=len, reverse=True):
                text = re.sub(re.escape(old) + r"(?![\w.-])", lambda _, new=hidden[old]: new, text)
            file = ZipInfo(name, DAY)
            file.compress_type = ZIP_DEFLATED
            opened.writestr(file, text)
