"""The SDK's client, in the handshake era, in front of a server that only speaks the modern one."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests.interaction.stage import Stage
from tests.waiting import WAIT_SECONDS

pytestmark = [
    pytest.mark.usefixtures("riglm_is_forked"),
    # what the SDK warns of is what the handshake era is made of
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
MODERN = ("--eras", "modern")
ROUTES = [("stdio", "http"), ("http", "stdio")]
QUESTIONS = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}


class Ears:
    """Keeps the notifications that a client gets."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self._more = asyncio.Condition()

    async def __call__(self, message: Any) -> None:
        async with self._more:
            self.heard.append(getattr(message, "root", message))
            self._more.notify_all()

    async def wait_for(self, kind: type, count: int = 1) -> Any:
        """The `count`-th notification of this kind."""
        async with asyncio.timeout(WAIT_SECONDS), self._more:
            await self._more.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home", name="home")])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One stage for all: what listens is shared, and the store is made once."""
    made = Stage(tmp_path_factory.mktemp("bridge"))
    yield made
    made.close()


@asynccontextmanager
async def connected(
    stage: Stage, route: tuple[str, str], flags: tuple[str, ...] = MODERN, **options: Any
) -> AsyncIterator[Client]:
    """The SDK's client, greeted through riglm."""
    front, back = route
    told = stage.back(back, *flags)
    with (stage.folder / "child.stderr").open("a") as errors:
        server: Any
        if front == "stdio":
            parameters = StdioServerParameters(
                command=sys.executable, args=["-m", "riglm", "run", *told], env=stage.env
            )
            server = stdio_client(parameters, errlog=errors)
        else:
            server = stage.serve(*told) + "/mcp"
        async with Client(server, mode="legacy", read_timeout_seconds=20, **options) as client:
            yield client


def words(result: types.CallToolResult) -> list[str]:
    return [content.text for content in result.content if isinstance(content, types.TextContent)]


@pytest.mark.parametrize("route", ROUTES, ids="-".join)
async def test_what_a_handshake_client_refuses_to_say_fails_its_call(stage: Stage, route: tuple[str, str]) -> None:
    async def refuse(_: Any, params: types.CreateMessageRequestParams) -> types.ErrorData:
        return types.ErrorData(code=-31998, message="not today")

    async with connected(stage, route, sampling_callback=refuse) as client:
        method = "sampling/createMessage"
        with pytest.raises(MCPError, match="not today"):
            await client.call_tool("ask", {"method": method, "params": QUESTIONS[method]})
        assert words(await client.call_tool("nonce", {"nonce": "still here"})) == ["still here"]


@pytest.mark.parametrize("route", ROUTES, ids="-".join)
async def test_a_handshake_client_hears_of_changes_and_updates_until_it_wants_no_more(
    stage: Stage, route: tuple[str, str]
) -> None:
    uri, ears = "note://scripted/one", Ears()
    log = stage.log(*MODERN)
    async with connected(stage, route, message_handler=ears) as client:
        await log.wait_for(lambda entry: entry.event == "received" and entry.method == "subscriptions/listen")
        await client.subscribe_resource(uri)
        await client.call_tool("change", {"what": "tools"})
        await ears.wait_for(types.ToolListChangedNotification)
        assert "extra" in [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
        await client.call_tool("change", {"what": uri})
        updated = await ears.wait_for(types.ResourceUpdatedNotification)
        assert str(updated.params.uri) == uri
        await client.unsubscribe_resource(uri)
        await client.call_tool("change", {"what": uri})
        await client.call_tool("change", {"what": "prompts"})
        await ears.wait_for(types.PromptListChangedNotification)
        assert len(ears.of(types.ResourceUpdatedNotification)) == 1
        await client.call_tool("change", {"what": "tools"})
        await ears.wait_for(types.ToolListChangedNotification, 2)
    await log.wait_for(lambda entry: entry.details.get("method") == "subscriptions/listen")


@pytest.mark.parametrize("back", ["stdio", "http"])
async def test_the_second_client_costs_no_handshake_that_must_fail(stage: Stage, back: str) -> None:
    flags = (*MODERN, "--name", "fresh")
    log = stage.log(*flags)
    for _ in range(2):
        async with connected(stage, ("http", back), flags) as client:
            await client.list_tools()
    assert len(log.received("initialize")) == 1
    assert len(log.received("tools/list")) == 2
