"""Riglm as a library: for agents that own their loop, the tools for now instead of all of them."""

import asyncio
import weakref
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

from riglm.application.selector.background import BackgroundLoop
from riglm.application.selector.offer import ToolReader, shortly, text
from riglm.application.selector.service import SelectingService
from riglm.application.selector.session import ToolSession
from riglm.composition.store_options import PathLike, StoreOption, selecting, settings_for
from riglm.domain.errors import ConfigurationError
from riglm.domain.session import ClientInfo

T = TypeVar("T")


class ToolSelector(Generic[T]):
    """Selects the tools that each step of an agent probably needs, and learns from those that were used.

    It returns the objects that it is given: definitions as MCP, OpenAI and Anthropic write them, tools of the MCP SDK,
    pydantic-ai, LangChain and the OpenAI Agents SDK, and plain functions.

        with ToolSelector(tools) as selector:
            session = selector.session()
            selection = session.select("find out why the build fails")
            answer = ask_the_model(tools=selection.tools)
            session.used(answer.tool)

    A background thread does the work. A selector can be used from any thread. Without a `store`, what it learns stays
    in memory. It uses no network.
    """

    def __init__(
        self,
        tools: Iterable[T] = (),
        *,
        store: StoreOption = None,
        config: PathLike | None = None,
        max_tools: int | None = None,
        min_tools: int | None = None,
        pinned: Iterable[str] = (),
        denied: Iterable[str] = (),
        predictor: str | None = None,
        embedder: str | None = None,
        name: str = "agent",
    ) -> None:
        """Create a selector. Nothing is opened before the first use.

        Args:
            tools: all tools; `select` replaces them for a session.
            store: SQLite file of the learned state, or `USER_STORE` for that of the user's riglm.
            config: a `riglm.yaml` to use, with its store. Its servers are not started.
            max_tools: maximum number of tools in addition to pinned and recently used ones; 20 by default.
            min_tools: minimum number of tools; 5 by default, and at most `max_tools`.
            pinned: names or glob patterns of tools that are always selected.
            denied: names or glob patterns of tools that are never selected or found.
            predictor: the strategy, built-in or from a package: `predictor.kind` of the configuration.
            embedder: `embedder.provider` of the configuration; `static` needs no model.
            name: name of the agent in the records.

        Raises:
            ConfigurationError: something of this cannot be used.
            UnusableToolError: one of the tools is none, or two have the same name.
            UnusableInputError: the name is no text.
        """
        asked: dict[str, dict[str, Any]] = {
            "filtering": {
                "max_tools": max_tools,
                "min_tools": min_tools,
                "pinned": _names(pinned, "pinned") or None,
                "denylist": _names(denied, "denied") or None,
            },
            "predictor": {"kind": predictor},
            "embedder": {"provider": embedder},
        }
        settings = settings_for(store, config, asked)
        self._read: ToolReader[T] = ToolReader()
        self._offer = self._read(tools)
        self._client = ClientInfo(name=text(name, "ToolSelector(name=...)"))
        self._background: BackgroundLoop[SelectingService] = BackgroundLoop(
            lambda: selecting(settings), "riglm-selector"
        )
        weakref.finalize(self, self._background.stop).atexit = False  # garbage collection must not block

    def offer(self, tools: Iterable[T]) -> None:
        """Replace the tools, except for sessions that have separate ones.

        Raises:
            UnusableToolError: one of them is none, or two have the same name.
        """
        self._offer = self._read(tools)

    def session(self, key: str | None = None, *, user: str | None = None) -> ToolSession[T]:
        """Begin a session, which is one piece of work.

        A `key`, such as a conversation's id, continues the last session with it, up to half an hour after that was
        closed. What a `user` uses is learned for that user alone. Both are stored as hashes.

        Raises:
            UnusableInputError: one of them is no text.
        """
        handle = "" if key is None else text(key, "session(key=...)")
        principal = "" if user is None else text(user, "session(user=...)")
        return ToolSession(self._background, lambda: self._offer, self._client, handle, principal)

    def status(self) -> dict[str, Any]:
        """Return the model in use and the numbers of tools and learned pairs, as the meta-tool `index_status`."""
        return self._background.ask(_status)

    async def astatus(self) -> dict[str, Any]:
        """As `status`, without holding up the event loop."""
        return await self._background.ask_soon(_status)

    def close(self) -> None:
        """Learn and store pending calls, and release all resources."""
        self._background.close()

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop."""
        await asyncio.wrap_future(self._background.stop())

    def __enter__(self) -> Self:
        self._background.open().result()
        self._expect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.wrap_future(self._background.open())
        self._expect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _expect(self) -> None:
        offer = self._offer
        self._background.post(lambda service: service.expect(offer.catalog, offer.owners))


async def _status(service: SelectingService) -> dict[str, Any]:
    return service.status()


def _names(given: Iterable[str], argument: str) -> list[str]:
    """What was given as names; one text would be taken for as many as it has letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"ToolSelector({argument}=...): {shortly(given)} is no list of names — fix: {argument}=[{shortly(given)}]"
        )
    return list(given)
