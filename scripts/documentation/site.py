"""A hook of mkdocs, named in ``mkdocs.yml``: the site has the same Markdown as the repository, and the same links.

Pages beside the folder ``docs`` and the files that any page links are part of the site at their path in the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from documentation.markdown import anchor  # noqa: E402

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""The pages of the site that do not lie in ``docs``."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^(`{3,}|~{3,}).*?^\2$|(?<!`)`[^`\n]+`(?!`))", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Names headings as GitHub does, so that the same anchors hold."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda heading, separator: anchor(heading)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages beside ``docs``, and the files that pages link."""
    linked = {place for page in texts() for _, place in links(*page) if (ROOT / place).is_file()}
    known = {file.src_uri for file in files}
    for place in sorted({*PAGES, *linked}):
        if place_on_site(place) not in known:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def texts() -> Iterator[tuple[str, str]]:
    """The folder and the text of each page."""
    for path in (*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").glob("*.md"))):
        yield ("docs" if path.parent.name == "docs" else ""), path.read_text(encoding="utf-8")


def links(folder: str, text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The links of a text in a folder of the repository, each with the path that it leads to."""
    for found in _LINK.finditer(_FENCE.sub(lambda code: "x" * len(code[0]), text)):
        yield found, normpath(f"{folder}/{unquote(found[3])}").lstrip("/")


def place_on_site(place: str) -> str:
    """The path on the site of a file of the repository."""
    return place.removeprefix("docs/")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links of a page. One to a folder is left out, because the site has no page for it."""
    parts, end = [], 0
    for found, place in links("" if page.file.src_uri in PAGES else "docs", markdown):
        whole = markdown[found.start() : found.end()]
        text = whole[len(found[1]) + 1 : whole.rindex("](")]
        link = f"{found[1]}[{text}]({place_on_site(place)}{found[4] or ''})"
        parts += [markdown[end : found.start()], text if (ROOT / place).is_dir() else link]
        end = found.end()
    return "".join([*parts, markdown[end:]])
