"""A scripted client that makes the calls of a session, and counts which tools it did not have to look for."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import mcp_types as types
from mcp import Client

from benchmarks.learning_curve.workflows import Step, Work

Surface = Literal["dynamic", "stable"]

MODES: Final[dict[Surface, str]] = {"dynamic": "legacy", "stable": "2026-07-28"}
"""The era of the SDK's client that gets the surface by itself."""

ROOM: Final = 15
"""So many tools of the upstream the agent can hold; of what it is shown beyond that it sees nothing."""

_OWN: Final = ("set_context", "search_available_tools", "call_tool", "mark_tool", "index_status")
_CONVERSATION: Final = "vscode.conversationId"


@dataclass(slots=True)
class Count:
    """What came of some sessions."""

    sessions: int = 0
    calls: int = 0
    zero_hop: int = 0
    others: int = 0
    zero_hop_others: int = 0
    searches: int = 0
    found: int = 0
    shown: int = 0
    list_changes: int = 0
    most_list_changes: int = 0

    def __add__(self, more: "Count") -> "Count":
        total = Count(*(getattr(self, name) + getattr(more, name) for name in Count.__slots__))
        total.most_list_changes = max(self.most_list_changes, more.most_list_changes)
        return total


class Agent:
    """One session.

    It holds at most ROOM tools: on `dynamic` the first ones of the list that it was last told to get, on `stable` those
    that `set_context` returned and then those of the list that it got at its start. A call is zero-hop when its tool is
    among them. For any other tool it searches once, by what the tool says of itself, and calls it whatever was found;
    what a search found is never counted as held.
    """

    def __init__(self, url: str, surface: Surface) -> None:
        self._client = Client(
            url, mode=MODES[surface], read_timeout_seconds=60, message_handler=self._heard, cache=None
        )
        self._surface = surface
        self._meta: Any = {_CONVERSATION: uuid.uuid4().hex}
        self._listed: tuple[str, ...] = ()
        self._given: tuple[str, ...] = ()
        self._stale = True
        self._count = Count(sessions=1)

    async def work(self, work: Work) -> Count:
        """Do it, and say what came of it."""
        async with self._client:
            await self._list()
            answer = await self._call("set_context", {"context": work.context})
            if self._surface == "stable":
                self._given = _names(answer)
            for step in work.steps:
                await self._list()
                self._count.shown = max(self._count.shown, len(self._held))
                await self._take(step)
        self._count.most_list_changes = self._count.list_changes
        return self._count

    @property
    def _held(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._given, *self._listed)))[:ROOM]

    async def _take(self, step: Step) -> None:
        held = step.tool in self._held
        if step.other:
            self._count.others += 1
            self._count.zero_hop_others += held
        else:
            self._count.calls += 1
            self._count.zero_hop += held
        if not held:
            self._count.searches += 1
            self._count.found += step.tool in _names(await self._call("search_available_tools", {"query": step.need}))
        if step.tool in self._listed:
            await self._call(step.tool, {"text": "it"})
        else:
            await self._call("call_tool", {"name": step.tool, "arguments": {"text": "it"}})

    async def _call(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        return await self._client.call_tool(name, arguments, meta=self._meta)

    async def _list(self) -> None:
        """Get the list, if there was none yet or riglm has announced another one."""
        if self._stale:
            self._stale = False
            tools = (await self._client.list_tools()).tools
            self._listed = tuple(tool.name for tool in tools if tool.name not in _OWN)

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._count.list_changes += 1
            self._stale = True


def _names(answer: types.CallToolResult) -> tuple[str, ...]:
    """Return the names of the tools that a meta-tool's result holds as text."""
    [content] = answer.content
    if answer.is_error or not isinstance(content, types.TextContent):
        return ()
    tools: Iterable[Any] = json.loads(content.text).get("tools", ())
    return tuple(str(tool["name"]) for tool in tools)
