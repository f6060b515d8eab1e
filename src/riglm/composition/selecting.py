"""Opens what selects for an agent in the same process."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from riglm.adapters.configuration.loading import Configuration, Options, load
from riglm.adapters.configuration.presence import require_all, require_embedder, require_predictor
from riglm.adapters.embedding.plugged import available as embedders_there
from riglm.adapters.prediction.selection import available as predictors_there
from riglm.application.selecting.service import SelectingService
from riglm.composition.container import build
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings
from riglm.domain.schemas.state import State

_OVERRIDES_SECONDS: Final = 0.25
_NOWHERE: Final = Path(os.devnull)  # a directory without any file
_LIBRARY: Final = "ToolSelector"
_ARGUMENTS: Final = {"kind": "predictor", "provider": "embedder", "denylist": "denied"}
_OWN_TOOLS: Final = ("set_context", "search_available_tools", "call_tool", "index_status", "mark_tool")


class UserStore(Enum):
    """Stands for the store of the user's own riglm."""

    RIGLM = "riglm"


USER_STORE: Final = UserStore.RIGLM
"""The store that `riglm run` uses without a configuration file: what the proxy learned counts, and the other way."""

Place = str | os.PathLike[str]
Store = Place | UserStore | None
_Values = list[tuple[str, tuple[str, ...], Any]]


def settings_for(store: Store, config: Place | None, asked: Mapping[str, Mapping[str, Any]]) -> Settings:
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
    values += [(_LIBRARY, ("filtering", "meta_tools", name), False) for name in _OWN_TOOLS]
    if config is None:
        values += _suited(asked.get("filtering", {}))
        values += _stored(store)
    configuration = _loaded(store, config, values)
    require_all(
        lambda: require_predictor(configuration, predictors_there),
        lambda: require_embedder(configuration, embedders_there),
    )
    return configuration.settings.model_copy(update={"state": State()})


@contextlib.asynccontextmanager
async def selecting(settings: Settings) -> AsyncIterator[SelectingService]:
    """What selects by these settings, open; it is closed in reverse order."""
    container = build(settings, is_guest=True)
    recorder, prediction = container.recorder(), container.prediction()
    container.tracking().when_listed(recorder.begin)
    with contextlib.ExitStack() as stack:
        stack.enter_context(recorder)
        stack.enter_context(container.maintenance())
        stack.callback(container.shutdown_resources)
        stack.enter_context(container.worker())
        stack.enter_context(container.asking())
        overrides = container.overrides()
        following = asyncio.create_task(overrides.follow())
        try:
            await overrides.ready(_OVERRIDES_SECONDS)
            asked = settings.embedder
            patience = asked.start_deadline + asked.deadline
            yield SelectingService(container.filtering(), prediction, container.services(), patience=patience)
        finally:
            following.cancel()
            container.sessions().close()
            await prediction.close()


def _loaded(store: Store, config: Place | None, values: _Values) -> Configuration:
    file = None if config is None else Path(config).expanduser()
    options = Options(config=file, values=values, with_servers=False)
    environment = os.environ if config is not None or store is USER_STORE else {}
    return load(options, environment=environment, directory=_NOWHERE)


def _stored(store: Store) -> _Values:
    if isinstance(store, UserStore):
        return []
    if store is None:
        return [("store", ("storage", "kind"), "memory")]
    return [("store", ("storage", "path"), str(Path(store).expanduser()))]


def _suited(filtering: Mapping[str, Any]) -> _Values:
    """An agent is given a short list from the first moment: what is not in it, it can search for."""
    usual = Settings().filtering
    most = filtering.get("max_tools") or usual.max_tools
    return [
        (_LIBRARY, ("filtering", "cold_start_limit"), most),
        (_LIBRARY, ("filtering", "passthrough_below", "tools"), min(most, usual.passthrough_below.tools)),
    ]


def _argument(key: str) -> str:
    return f"{_LIBRARY}({_ARGUMENTS.get(key, key)}=...)"
