"""Riglm as a library: for agents that own their loop, the tools for now instead of all of them."""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from riglm.adapters.analytics.store_file import is_ours
from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.locations import store_path
from riglm.adapters.configuration.presence import require_all, require_embedder, require_predictor, require_store_file
from riglm.adapters.embedding.embedders import select_embedder
from riglm.application.selector.offer import ToolReader, shortly, text
from riglm.application.selector.selecting_service import SelectingService
from riglm.application.selector.session import BackgroundLoop, ToolSession
from riglm.application.store_follower import StoreFollower
from riglm.container import Container
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.section import OWN_KINDS, OWN_PROVIDERS, StateSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import ClientInfo

_OVERRIDES_SECONDS: Final = 0.25
_NOWHERE: Final = Path(os.devnull)  # a directory without any file
_COVERAGE: Final = 0.95
_LIBRARY: Final = "ToolSelector"
_ARGUMENTS: Final = {"kind": "predictor", "provider": "embedder", "denylist": "denied"}
_META_TOOLS: Final = ("set_context", "search_available_tools", "call_tool", "index_status", "mark_tool")


class UserStore(Enum):
    """Marks the store of the user's riglm."""

    RIGLM = "riglm"


USER_STORE: Final = UserStore.RIGLM
"""The store that `riglm run` uses without a configuration file: what the proxy learned counts, and the other way."""

PathLike = str | os.PathLike[str]
StoreOption = PathLike | UserStore | None
_Values = list[tuple[str, tuple[str, ...], Any]]


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
        settings = _settings_for(store, config, asked)
        self._read: ToolReader[T] = ToolReader()
        self._offer = self._read(tools)
        self._client = ClientInfo(name=text(name, "ToolSelector(name=...)"))
        self._background: BackgroundLoop[SelectingService] = BackgroundLoop(
            lambda: _selecting(settings), "riglm-selector"
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


def _settings_for(store: StoreOption, config: PathLike | None, asked: Mapping[str, Mapping[str, Any]]) -> Settings:
    """The settings of a selector: what is asked for, over the configuration file, over what suits an agent.

    Environment variables count where the user's store or a configuration is meant.

    Raises:
        ConfigurationError: they are not usable.
    """
    if config is not None and store is not None:
        raise ConfigurationError(
            "ToolSelector: `store` and `config` are both given — fix: keep one of them; a configuration names its store"
        )
    values: _Values = [
        (_argument(key), (section, key), value) for section, keys in asked.items() for key, value in keys.items()
    ]
    values += [(_LIBRARY, ("filtering", "surface"), "dynamic"), (_LIBRARY, ("control", "enabled"), False)]
    values += [(_LIBRARY, ("filtering", "meta_tools", name), False) for name in _META_TOOLS]
    if config is None:
        values += _suited(asked.get("filtering", {}))
        values += _stored(store)
    configuration = load(
        Options(config=None if config is None else _place(config, "config"), values=values, with_servers=False),
        environment=os.environ if config is not None or store is USER_STORE else {},
        directory=_NOWHERE,
    )
    settings = configuration.settings.model_copy(update={"state": StateSettings.model_construct()})
    checks = [partial(require_predictor, configuration), partial(require_embedder, configuration)]
    if settings.storage.kind == "sqlite":
        checks.append(partial(require_store_file, configuration, store_path(settings), is_ours))
    require_all(*checks)
    making: list[Callable[[], object]] = []  # what a package brings can be made as it is asked for; not opened
    if settings.predictor.kind not in OWN_KINDS:
        making.append(Container(settings=settings).predictor)
    if settings.embedder.provider not in OWN_PROVIDERS:
        making.append(partial(select_embedder, settings.embedder.provider, settings.embedder.options))
    require_all(*making)
    return settings


@contextlib.asynccontextmanager
async def _selecting(settings: Settings) -> AsyncIterator[SelectingService]:
    """What selects by these settings, open; it is closed in reverse order."""
    asked = settings.embedder
    container = Container(settings=settings, owns_process=False, prediction_timeout=asked.deadline)
    recorder, prediction = container.recorder(), container.prediction()
    follower = StoreFollower(container.overrides().refresh)
    workers = (
        container.prediction_worker(),
        container.store_worker(),
        container.learning_worker(),
        container.estimating_worker(),
    )
    container.tracking().on_listed(recorder.begin)
    with contextlib.ExitStack() as stack:
        stack.callback(container.shutdown_resources)
        for part in (recorder, container.maintenance(), *workers):
            stack.enter_context(part)
        following = asyncio.create_task(follower.follow())
        try:
            await follower.ready(_OVERRIDES_SECONDS)
            timeout_seconds = asked.start_deadline + asked.deadline
            yield SelectingService(
                container.filtering(), prediction, container.proxy_parts(), timeout_seconds=timeout_seconds
            )
        finally:
            following.cancel()
            container.sessions().close()
            await container.warm_sets().close()
            await prediction.close()


def _place(place: PathLike, argument: str) -> Path:
    try:
        return Path(place).expanduser()
    except (TypeError, RuntimeError) as error:  # it is no path, or the home directory is unknown
        raise ConfigurationError(f"ToolSelector({argument}=...): {error} — fix: give the path of a file") from error


def _stored(store: StoreOption) -> _Values:
    if isinstance(store, UserStore):
        return []
    if store is None:
        return [("store", ("storage", "kind"), "memory")]
    return [("ToolSelector(store=...)", ("storage", "path"), str(_place(store, "store")))]


def _suited(filtering: Mapping[str, Any]) -> _Values:
    """An agent is given as many tools as it asks for from the first moment: it can search for the others."""
    defaults = Settings().filtering
    most = filtering.get("max_tools") or defaults.max_tools
    least = min(most, defaults.min_tools)
    return [
        (_LIBRARY, ("filtering", "cold_start_limit"), most),
        (_LIBRARY, ("filtering", "coverage"), _COVERAGE),
        *([(_LIBRARY, ("filtering", "min_tools"), least)] if filtering.get("min_tools") is None else []),
    ]


def _argument(key: str) -> str:
    return f"{_LIBRARY}({_ARGUMENTS.get(key, key)}=...)"
