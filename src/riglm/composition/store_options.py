"""Opens what selects for an agent in the same process."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from riglm.adapters.analytics.store_file import is_ours
from riglm.adapters.configuration.loading import Configuration, Options, load
from riglm.adapters.configuration.presence import require_all, require_embedder, require_predictor, require_store_file
from riglm.adapters.embedding.factory import available as embedders_there
from riglm.adapters.embedding.factory import select_embedder
from riglm.adapters.prediction.selection import available as predictors_there
from riglm.application.selector.service import SelectingService
from riglm.composition.container import Container
from riglm.composition.prediction import build_predictor
from riglm.composition.storage import store_path
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.section import OWN_KINDS, OWN_PROVIDERS
from riglm.domain.schemas.settings import Settings
from riglm.domain.schemas.storage import StateSettings

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


def settings_for(store: StoreOption, config: PathLike | None, asked: Mapping[str, Mapping[str, Any]]) -> Settings:
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
    configuration = _loaded(store, config, values)
    settings = configuration.settings.model_copy(update={"state": StateSettings()})
    require_all(
        lambda: require_predictor(configuration, predictors_there),
        lambda: require_embedder(configuration, embedders_there),
        lambda: _require_store(configuration),
    )
    require_all(lambda: _require_predictor_made(settings), lambda: _require_embedder_made(settings))
    return settings


@contextlib.asynccontextmanager
async def selecting(settings: Settings) -> AsyncIterator[SelectingService]:
    """What selects by these settings, open; it is closed in reverse order."""
    container = Container(settings, is_guest=True)
    recorder, prediction = container.recorder, container.prediction
    container.tracking.on_listed(recorder.begin)
    with contextlib.ExitStack() as stack:
        stack.callback(container.close)
        stack.enter_context(recorder)
        stack.enter_context(container.maintenance)
        for worker in (container.worker, container.asking, container.learning, container.estimating):
            stack.enter_context(worker)
        overrides = container.overrides
        following = asyncio.create_task(overrides.follow())
        try:
            await overrides.ready(_OVERRIDES_SECONDS)
            asked = settings.embedder
            timeout_seconds = asked.start_deadline + asked.deadline
            yield SelectingService(container.filtering, prediction, container.services, timeout_seconds=timeout_seconds)
        finally:
            following.cancel()
            container.sessions.close()
            await container.warm_sets.close()
            await prediction.close()


def _loaded(store: StoreOption, config: PathLike | None, values: _Values) -> Configuration:
    file = None if config is None else _place(config, "config")
    options = Options(config=file, values=values, with_servers=False)
    environment = os.environ if config is not None or store is USER_STORE else {}
    return load(options, environment=environment, directory=_NOWHERE)


def _require_store(configuration: Configuration) -> None:
    if configuration.settings.storage.kind == "sqlite":
        require_store_file(configuration, store_path(configuration.settings), is_ours)


def _require_predictor_made(settings: Settings) -> None:
    """Raise ConfigurationError unless a predictor that a package brings can be made as it is asked for."""
    if settings.predictor.kind not in OWN_KINDS:
        build_predictor(settings)


def _require_embedder_made(settings: Settings) -> None:
    """Raise ConfigurationError unless an embedder that a package brings can be made as it is asked for; not opened."""
    if settings.embedder.provider not in OWN_PROVIDERS:
        select_embedder(settings.embedder.provider, settings.embedder.options)


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
