"""What an agent asks the server of ``inductor-bench mcp``, and what that answers, on recorded RUNs.

``docs/agents.md`` shows it. It needs the package ``mcp``, and neither torch nor a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

COMMAND = "scripts/transcript"
"""What a page says that made a transcript."""

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("what_next", {"folder": "runs/train"}),
    ("query", {"folder": "runs/train", "sql": "SELECT id, saving_s, command FROM findings WHERE level = 'advice'"}),
    ("show_kernel", {"run": "runs/train", "kernel": "3"}),
    ("breakdown", {"command": ["python", "examples/train_feed_forward.py"]}),
    ("compare", {"targets": ["runs/train", "runs/loss"], "fail_above": "0%"}),
    ("what_next", {"folder": "../elsewhere"}),
    ("what_next", {"folder": "runs/loss"}),
)
"""The calls, in their order."""

LONGEST = 116
"""Characters of a line."""


def can_be_made() -> bool:
    """Whether the SDK is installed."""
    return find_spec("mcp_types") is not None


def transcript(folder: Path) -> str:
    """The calls and the answers on the RUNs of a folder."""
    import anyio
    from mcp import Client

    from inductor_bench.cli.mcp import Service, make_server
    from inductor_bench.cli.mcp_tools import Permissions

    lines: list[str] = []

    async def talk() -> None:
        async with Client(make_server(Service(Permissions(folder.resolve())))) as client:
            for name, words in CALLS:
                lines.append(f"> {name} {json.dumps(words, ensure_ascii=False)}")
                lines.extend(_answer((await client.call_tool(name, words)).structured_content))

    anyio.run(talk)
    return "".join(f"{line if len(line) <= LONGEST else line[:LONGEST] + '…'}\n" for line in lines)


def _answer(data: dict[str, Any]) -> Iterator[str]:
    """The lines of an answer: what it holds as JSON, without how long it took, and its text."""
    text = data.pop("text", "").splitlines()
    data.pop("time_s", None)
    yield from json.dumps(data, indent=1, ensure_ascii=False).splitlines()
    yield from (f"| {line}".rstrip() for line in text)
