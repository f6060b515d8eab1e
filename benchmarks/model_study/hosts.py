"""How each arm of the study gives tools to the model and runs its calls: with riglm, or as clients do without it."""

import hashlib
import json
import logging
import shutil
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import Implementation, ToolListChangedNotification

from benchmarks.cache import import_path
from benchmarks.model_study.upstream import NOTHING_FOUND
from benchmarks.subject import RIGLM, Served, isolated
from riglm.application.tool_lists.list_writer import ALWAYS_LOAD, SEARCH, SET_CONTEXT
from riglm.domain.jsonrpc import Raw
from riglm.domain.retrieval.scoring import LexicalIndex
from riglm.domain.retrieval.words import words
from riglm.domain.tool import Tool, profile

HOST_SEARCH: Final = "tool_search"
"""Name of the emulated tool search of a client."""

SEARCHES: Final = frozenset((SEARCH, SET_CONTEXT, HOST_SEARCH))
"""Tools that find other tools."""

_HOST_SEARCH_RESULTS: Final = 5
_TIMEOUT_SECONDS: Final = 60

Definition = dict[str, Any]
"""A tool as an MCP server lists it."""


class Arm(StrEnum):
    """A way to load tools."""

    ALL = "all tools"
    RIGLM = "riglm"
    SEARCH = "search only"
    HINTS = "riglm's hints"


_CLIENTS: Final = {Arm.RIGLM: "model-study", Arm.HINTS: "claude-code"}
"""Names with which a client introduces itself to riglm, which chooses the surface by them."""


class StudyHost(Protocol):
    """An MCP client with its tools: `definitions` are those in the next request to the model."""

    definitions: list[Definition]

    @property
    @abstractmethod
    def note(self) -> str:
        """Text for the system prompt, as clients name the tools there that they defer; empty without any."""

    @abstractmethod
    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a call by the model and return the text of the result."""


class PlainHost:
    """A client that gives its model all tools."""

    note = ""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self.definitions = list(definitions)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a call: the server finds nothing."""
        return NOTHING_FOUND if name in _names(self.definitions) else _unknown(name)


class SearchingHost:
    """A client that defers tools: the model knows their names, and a search by words loads their definitions.

    It emulates clients such as Claude Code. `loaded` are definitions that it loads at once.
    """

    def __init__(self, definitions: Sequence[Definition], loaded: Sequence[Definition] = ()) -> None:
        self._deferred = [each for each in definitions if each not in loaded]
        self._index = LexicalIndex(
            [profile(Tool(each["name"], Raw(json.dumps(each).encode()))) for each in self._deferred]
        )
        self.definitions = [_HOST_SEARCH_DEFINITION, *loaded]

    @property
    def note(self) -> str:
        """Return the names of the deferred tools, all of them in every request, so that the prompt stays the same."""
        names = "\n".join(_names(self._deferred))
        return f"These tools are deferred. Load one with {HOST_SEARCH} before you call it:\n{names}"

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Search, or run a call of a loaded tool."""
        if name != HOST_SEARCH:
            return NOTHING_FOUND if name in _names(self.definitions) else _unknown(name)
        scores = self._index.scores(words(str(arguments.get("query", ""))))
        order = sorted(range(len(scores)), key=lambda row: -scores[row])[:_HOST_SEARCH_RESULTS]
        found = [self._deferred[row] for row in order if scores[row] > 0]
        self.definitions = [*self.definitions, *(each for each in found if each not in self.definitions)]
        return f"Loaded: {', '.join(_names(found))}" if found else "No tool matches."


class RiglmHost:
    """A client of riglm that gives its model the list of riglm, as it was last sent."""

    note = ""

    def __init__(self, client: Client, definitions: list[Definition]) -> None:
        self._client = client
        self._is_stale = False
        self.definitions = definitions

    def on_list_changed(self) -> None:
        """Called when riglm sends a list-changed notification: the list is requested again after the call."""
        self._is_stale = True

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a call through riglm."""
        if name not in _names(self.definitions):
            return _unknown(name)
        result = await self._client.call_tool(name, dict(arguments))
        if self._is_stale:
            self._is_stale, self.definitions = False, await _list_tools(self._client)
        return "\n".join(part.text for part in result.content if part.type == "text")


class StudyHosts:
    """Opens the hosts of all arms. riglm starts each time with the same learned state, in a process for each task."""

    def __init__(self, catalog: Sequence[Definition], directory: Path) -> None:
        """`directory` keeps the catalog and the learned state, and the data of the running riglm processes."""
        self._catalog = catalog
        self._directory = directory = directory.resolve()
        self._learned = directory / "learned"
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "catalog.json"
        file.write_text(json.dumps(catalog))
        self._upstream = ("--", sys.executable, "-m", "benchmarks.model_study.upstream", str(file))

    async def learn(self, sessions: Sequence[Sequence[str]]) -> None:
        """Make the calls of these sessions through riglm, once.

        Raises:
            StartFailed: riglm does not start.
        """
        done, digest = self._learned / "done", hashlib.sha256(json.dumps(sessions).encode()).hexdigest()
        if done.exists() and done.read_text() == digest:
            return
        shutil.rmtree(self._learned, ignore_errors=True)
        logging.getLogger("client").setLevel(logging.ERROR)  # the client warns of each call of a tool that is hidden
        served = Served(RIGLM, self._upstream, self._learned, arguments=(), PYTHONPATH=import_path())
        try:
            for calls in sessions:
                async with Client(f"http://127.0.0.1:{served.port}/mcp", mode="legacy") as client:
                    await client.list_tools()
                    for call in calls:
                        await client.call_tool(call, {})
        finally:
            served.process.stop()
        for name in _CLIENTS.values():  # an earlier session of each client, which estimates what its lists are made of
            async with self._client(self._learned, name):
                pass
        done.write_text(digest)

    @asynccontextmanager
    async def open(self, arm: Arm) -> AsyncIterator[StudyHost]:
        """Open a host for one task."""
        if arm is Arm.ALL:
            yield PlainHost(self._catalog)
        elif arm is Arm.SEARCH:
            yield SearchingHost(self._catalog)
        else:
            with TemporaryDirectory(dir=self._directory, ignore_cleanup_errors=True) as temporary:
                data = shutil.copytree(self._learned, Path(temporary) / "data")
                async with self._client(data, _CLIENTS[arm]) as host:
                    if arm is Arm.HINTS:
                        loaded = [each for each in host.definitions if each.pop("_meta", {}).get(ALWAYS_LOAD[1])]
                        yield SearchingHost(host.definitions, loaded)
                    else:
                        yield host

    @asynccontextmanager
    async def _client(self, data: Path, name: str) -> AsyncIterator[RiglmHost]:
        environment = isolated(data) | {"PYTHONPATH": import_path()}
        command, *arguments = (*RIGLM, "run", *self._upstream)
        server = StdioServerParameters(command=command, args=arguments, env=environment)
        host: RiglmHost

        async def on_message(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                host.on_list_changed()

        with (data / "riglm.log").open("w") as log:
            async with Client(
                stdio_client(server, errlog=log),
                mode="legacy",
                client_info=Implementation(name=name, version="1.0"),
                message_handler=on_message,
                read_timeout_seconds=_TIMEOUT_SECONDS,
            ) as client:
                host = RiglmHost(client, await _list_tools(client))
                yield host


_HOST_SEARCH_DEFINITION: Final[Definition] = {
    "name": HOST_SEARCH,
    "description": "Load deferred tools, so that you can call them.",
    "inputSchema": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Words that describe the tool, or its name"}},
        "required": ["query"],
    },
}


async def _list_tools(client: Client) -> list[Definition]:
    found = await client.list_tools()
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in found.tools]


def _names(definitions: Sequence[Definition]) -> list[str]:
    return [str(each["name"]) for each in definitions]


def _unknown(name: str) -> str:
    return f"Error: there is no tool {name}."
