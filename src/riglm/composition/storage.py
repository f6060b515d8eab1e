"""The store, its spool, and the services that record into them and maintain them."""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import data_directory
from riglm.application.recording.maintenance import Maintenance
from riglm.application.recording.recorder import Recorder
from riglm.domain.errors import ConfigurationError
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import AnalyticsPort

if TYPE_CHECKING:
    from riglm.adapters.analytics.prediction_store import SqliteChoices
    from riglm.application.prediction.service import PredictionService
    from riglm.ports.knowledge import KnowledgePort
    from riglm.ports.spool import SpoolPort


def is_shared(settings: Settings) -> bool:
    """Whether other processes may go on with the sessions of this one."""
    return settings.state.kind != "memory"


def stands_in_the_way(settings: Settings) -> bool:
    """True if riglm reads lists and calls: for the filter, even if it is only enabled later, or for `inner_voice`."""
    return settings.filtering.is_on or settings.control.enabled or settings.knowledge.enabled


def is_silent() -> bool:
    """Whether what is about knowledge is not to be logged."""
    return os.environ.get("MCP_NO_LOG", "").lower() not in {"", "0", "false"}


_log: Final = logging.getLogger("riglm")


def store_path(settings: Settings) -> Path:
    """The database file; where the store is elsewhere, riglm still keeps its key in the directory of this file."""
    named = settings.storage.path
    return Path(named).expanduser() if named else data_directory(os.environ) / "riglm.db"


def store_url(settings: Settings) -> str:
    """Where the database is, with its password."""
    url = settings.storage.url
    return f"sqlite:///{store_path(settings)}" if url is None else url.get_secret_value()


def database_url(settings: Settings) -> Iterator[str]:
    """Yield the URL of the database, with its password. One in memory is lost when the generator is closed."""
    if settings.storage.kind != "memory":
        yield store_url(settings)
        return
    from riglm.adapters.analytics.sqlite import memory_database

    with memory_database() as url:
        yield url


def knowledge_store(settings: Settings, url: str) -> "KnowledgePort":
    """Create the store of knowledge in the database at `url`; it is not open yet."""
    from riglm.adapters.analytics.knowledge import SqlKnowledge

    return SqlKnowledge(url, timeout=settings.storage.timeout)


def create_store(
    settings: Settings, url: str, hasher: Callable[[], KeyedHasher], *, is_quarantining: bool = False
) -> AnalyticsPort:
    """Create the store in the database at `url`; it is not open yet."""
    from riglm.adapters.analytics.sql import SqlAnalytics

    storage = settings.storage
    return SqlAnalytics(
        url,
        timeout=storage.timeout,
        durable=storage.durability == "full",
        is_quarantining=is_quarantining,
        names=lambda name: hasher().client_name(name),  # read-only commands need no key
    )


def spool_path(settings: Settings) -> Path:
    """The directory of the spools of all processes that record into this store."""
    from riglm.adapters.spool.file_lock import spool_directory

    url, named = settings.storage.url, settings.storage.spool.path
    store = url.get_secret_value() if url else str(store_path(settings).absolute())
    return spool_directory(Path(named).expanduser() if named else data_directory(os.environ) / "spool", store)


def make_recorder(settings: Settings, open_store: Callable[[], AnalyticsPort]) -> Recorder:
    """What stores records, with a spool where there is a disk for it."""

    def open_spool() -> "SpoolPort":
        from riglm.adapters.spool.sqlite import SqliteSpool

        storage = settings.storage
        durable = storage.durability == "full"
        return SqliteSpool(spool_path(settings), max_bytes=storage.spool.max_bytes, durable=durable)

    return Recorder(open_store, open_spool=None if settings.storage.kind == "memory" else open_spool)


def make_hasher(settings: Settings) -> KeyedHasher:
    """The key of all hashes, made at the first start."""
    from riglm.adapters.keyfile import load_or_create_key

    if settings.privacy.key is not None:
        return KeyedHasher(hashlib.sha256(settings.privacy.key.get_secret_value().encode()).digest())
    if settings.storage.kind == "memory":
        return KeyedHasher(os.urandom(KEY_BYTES))
    try:
        return KeyedHasher(load_or_create_key(store_path(settings).parent / "riglm.key"))
    except ConfigurationError as error:
        _log.warning("%s; until the next start the key is one in memory, and its hashes match no others", error)
        return KeyedHasher(os.urandom(KEY_BYTES))


def sqlite_choices(settings: Settings) -> "SqliteChoices":
    """What people decided and warm sets, read without the weight of the whole store."""
    from riglm.adapters.analytics.prediction_store import SqliteChoices

    return SqliteChoices(store_path(settings))


def kept_open(settings: Settings, url: str, hasher: Callable[[], KeyedHasher]) -> Iterator[AnalyticsPort]:
    """Yield a store that stays open, because overrides are read again and again."""
    with create_store(settings, url, hasher) as store:
        yield store


def make_maintenance(
    settings: Settings,
    recorder: Recorder,
    open_store: Callable[[], AnalyticsPort],
    prediction: "Callable[[], PredictionService]",
) -> Maintenance:
    """Create store maintenance, which also retrains after records were erased."""
    loop = asyncio.get_running_loop()

    def relearn() -> None:
        with contextlib.suppress(RuntimeError):  # it ends just now
            loop.call_soon_threadsafe(lambda: prediction().relearn())

    return Maintenance(
        open_store,
        lambda: recorder.counts().stored,
        expiry=settings.retention.expiry,
        on_forgotten=relearn if stands_in_the_way(settings) else None,
        idle_gap=settings.sessions.idle_gap,
    )
