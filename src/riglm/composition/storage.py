"""What the settings say about the store, sessions and traces."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import data_directory
from riglm.application.sessions.registry import IdentificationSettings
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:
    from riglm.domain.tool_pin import ToolPin

_OTLP_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_shared(settings: Settings) -> bool:
    """Whether other processes may go on with the sessions of this one."""
    return settings.state.kind != "memory"


def intercepts_lists(settings: Settings) -> bool:
    """True if riglm reads lists and calls: for the filter, even if it is only enabled later, or for `inner_voice`."""
    return settings.filtering.is_on or settings.control.enabled or settings.knowledge.enabled or bool(settings.access)


def is_silent() -> bool:
    """Whether what is about knowledge is not to be logged."""
    return os.environ.get("MCP_NO_LOG", "").lower() not in {"", "0", "false"}


def wants_traces(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether spans are wanted: the standard's variables can switch them off, and on where nothing is configured."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    named = any(environment.get(name) for name in _OTLP_ENDPOINTS)
    return named if settings.tracing.enabled is None else settings.tracing.enabled


def session_evidence(settings: Settings) -> IdentificationSettings:
    """Return the settings by which sessions are identified."""
    sessions = settings.sessions
    return IdentificationSettings(
        meta_keys=sessions.meta_keys,
        environment_keys=sessions.environment_keys,
        environment=os.environ,
        idle_gap=sessions.idle_gap,
        most_kept=settings.downstream.max_sessions,
        profile=settings.filtering.profile,
    )


def store_path(settings: Settings) -> Path:
    """The database file; where the store is elsewhere, riglm still keeps its key in the directory of this file."""
    named = settings.storage.path
    return Path(named).expanduser() if named else data_directory(os.environ) / "riglm.db"


def store_url(settings: Settings) -> str:
    """Where the database is, with its password."""
    url = settings.storage.url
    return f"sqlite:///{store_path(settings)}" if url is None else url.get_secret_value()


def spool_path(settings: Settings, url: str = "") -> Path:
    """The directory of the spools of all processes that record into this store, or into a different one at a URL."""
    from riglm.adapters.spool.file_lock import spool_directory

    configured, named = settings.storage.url, settings.storage.spool.path
    store = url or (configured.get_secret_value() if configured else str(store_path(settings).absolute()))
    return spool_directory(Path(named).expanduser() if named else data_directory(os.environ) / "spool", store)


def list_spooled_pins(settings: Settings) -> "Sequence[ToolPin]":
    """Return the tool pins that wait in the spools of all processes for the store."""
    directory = spool_path(settings)
    if settings.storage.kind == "memory" or not directory.is_dir():
        return ()
    from riglm.adapters.spool.sqlite import spooled_pins

    return spooled_pins(directory)


def spool_paths(settings: Settings) -> Sequence[Path]:
    """The directories of all spools: those of the store, and of ClickHouse if that is configured."""
    url = settings.clickhouse.url
    return (spool_path(settings), *([spool_path(settings, url.get_secret_value())] if url else []))
