"""A real MCP client that plays a scene through `riglm run`."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

from riglm.demo.scene import Scene, Step

_MOST_PAGES = 50
_PATIENCE_S = 30.0
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one step: whether as meant, how long it took, and the beginning of its text."""

    step: Step
    as_meant: bool
    duration_ms: float
    text: str


@dataclass(frozen=True, slots=True)
class Visit:
    """One session of the client: the protocol revision spoken, the tools listed, and the answers in order."""

    protocol_version: str
    tools: tuple[str, ...]
    answers: tuple[Answer, ...]


async def drive(
    scene: Scene,
    *,
    configuration: Path,
    environment: Mapping[str, str],
    errors: TextIO,
    tell: Callable[[str], None],
) -> list[Visit]:
    """Visit riglm as often as the scene says, a new riglm each time; `tell` hears of each step before it is taken."""
    arguments = ["-m", "riglm", "run", "--config", str(configuration)]
    visits: list[Visit] = []
    for steps in scene.visits:
        tell("starting riglm and the servers")
        server = StdioServerParameters(
            command=sys.executable, args=arguments, env=dict(environment), cwd=configuration.parent
        )
        async with Client(stdio_client(server, errlog=errors), read_timeout_seconds=_PATIENCE_S) as client:
            tools = await _all_tools(client, {step.tool for step in steps})
            answers = []
            for step in steps:
                tell(f"calling {step.tool}")
                answers.append(await _take(client, step))
            visits.append(Visit(client.protocol_version, tools, tuple(answers)))
    return visits


async def _all_tools(client: Client, wanted: set[str]) -> tuple[str, ...]:
    """The list once it holds what is wanted: a server that starts late joins it late."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        names = await _list_tools(client)
        if wanted <= set(names) or time.monotonic() > deadline:
            return names
        await asyncio.sleep(_PAUSE_S)


async def _list_tools(client: Client) -> tuple[str, ...]:
    names: list[str] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(names)


async def _take(client: Client, step: Step) -> Answer:
    started = time.perf_counter()
    result = await client.call_tool(step.tool, dict(step.arguments))
    duration_ms = (time.perf_counter() - started) * 1000
    return Answer(step, bool(result.is_error) is step.fails, duration_ms, _beginning(result))


def _beginning(result: CallToolResult) -> str:
    texts = (part.text for part in result.content if isinstance(part, TextContent))
    return " ".join(next(texts, "").split())[:60]
