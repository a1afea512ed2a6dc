"""The documents as a site: mkdocs builds it from the same pages, strictly. Without mkdocs these tests are skipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e .[docs]")

PARTS = ("docs", "examples", "inductor_bench/schemas", "scripts/documentation")
FILES = ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(root / "mkdocs.yml"), "-d", str(site)]
    return subprocess.run(words, capture_output=True, text=True)


def test_the_site_is_built_strictly_and_has_every_page(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "site" / page.stem / "index.html").is_file(), page.name
    overview = (tmp_path / "site" / "index.html").read_text()
    assert 'href="tutorial/"' in overview and 'href="SECURITY/"' in overview
    assert 'src="../images/' in (tmp_path / "site" / "step" / "index.html").read_text()
    assert (tmp_path / "site" / "inductor_bench" / "schemas" / "run.json").is_file(), "a page links it"
    assert "docs/" not in "".join(part.partition('"')[0] for part in overview.split('href="')[1:])


def test_a_dead_link_ends_the_build(tmp_path: Path) -> None:
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    page = tmp_path / "docs" / "step.md"
    links = ("layers.md#no-such-heading", "nothing.md", "../nothing.json")
    page.write_text("\n".join([page.read_text(), *(f"[a]({link})" for link in links)]))
    done = build(tmp_path, tmp_path / "site")
    warnings = [line for line in done.stderr.splitlines() if "step.md" in line]
    assert done.returncode != 0
    assert [link for link in links if any(link.removeprefix("../") in line for line in warnings)] == list(links)
