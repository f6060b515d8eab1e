"""The settings and the store as commands open them: to look at what was recorded, and to maintain it."""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from riglm.adapters.configuration.loading import FILE_NAME, Configuration, Options, load, with_setting_changes
from riglm.adapters.configuration.locations import store_path
from riglm.adapters.private_files import load_or_create_key
from riglm.container import Container
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError, RiglmError, UnusableInputError
from riglm.domain.hashing import KeyedHasher
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import AnalyticsPort

_TIMEOUT_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 0.25

_HASH = re.compile(r"[0-9a-f]{32}")

DatabaseOption = Annotated[
    Path | None, typer.Option("--db", metavar="F", help="The database; by default the one of the configuration.")
]
PrincipalOption = Annotated[
    str | None,
    typer.Option(
        "--principal",
        "--owner",
        metavar="NAME|HASH",
        help='Owner, by default the local user; "bearer": the callers of a `riglm serve` with a token.',
    ),
]


def read_settings(config: Path | None) -> Settings:
    """Return the settings that a configuration file makes, with what was changed at run time."""
    return overlaid(load(Options(config=config, with_servers=False))).settings


def find_configurations(config: Path | None) -> list[Path]:
    """Return the file that is named, else ./riglm.yaml, else those that `riglm init` made."""
    if config is not None:
        return [config]
    here = Path(FILE_NAME)
    if here.is_file():
        return [here]
    from riglm.cli.setup_access import installations

    return list(dict.fromkeys(one.configuration for one in installations() if one.configuration.is_file()))


def settings_in_use(config: Path | None) -> Settings:
    """Return the settings of the first configuration that is found, for a command that reads what was recorded."""
    files = find_configurations(config)
    return read_settings(files[0] if files else None)


def settings_of(config: Path | None) -> Settings:
    """The settings, for a command that needs no server.

    Raises:
        ConfigurationError: they cannot be used, or the store is in the memory of another process.
    """
    return configuration_of(config).settings


def configuration_of(config: Path | None, *, about_knowledge: bool = False) -> Configuration:
    """The same with its warnings, for a command that may be about knowledge.

    Raises:
        ConfigurationError: as `settings_of`.
    """
    configuration = overlaid(load(Options(config=config, with_servers=False, about_knowledge=about_knowledge)))
    if configuration.settings.storage.kind == "memory":
        raise ConfigurationError(
            "storage.kind: a store in memory ends with its process, and no other one reaches it — fix: use sqlite or "
            "postgresql"
        )
    return configuration


def overlaid(configuration: Configuration) -> Configuration:
    """Return a configuration with the settings that were changed at run time, or a warning if they are not known."""
    try:
        return with_setting_changes(configuration, read_setting_changes(configuration.settings))
    except AnalyticsUnavailableError as error:
        warning = f"settings that were changed at run time are not known: {error}"
        return replace(configuration, warnings=(*configuration.warnings, warning))


def read_setting_changes(settings: Settings) -> Mapping[str, Any]:
    """Return the settings that were changed at run time, by key; none if there is no store yet.

    Raises:
        AnalyticsUnavailableError: the store cannot be used.
    """
    if not settings.storage.outlives_process:
        return {}
    container = Container(settings=settings)
    try:
        return container.choices().list_setting_changes()
    finally:
        container.shutdown_resources()


def find_store(settings: Settings, db: Path | None = None) -> AnalyticsPort | None:
    """Return the store of the settings, or the file that is named, not yet open; None if nothing was ever recorded.

    Raises:
        UnusableInputError: there is no such file.
        AnalyticsUnavailableError: nothing could be recorded where the store would be.
    """
    if db is not None:
        if not db.is_file():
            raise UnusableInputError(f"--db {db}: there is no such database — fix: name a file that riglm recorded to")
        storage = settings.storage.model_copy(update={"kind": "sqlite", "path": str(db)})
        settings = settings.model_copy(update={"storage": storage})
    kind = settings.storage.kind
    if kind == "memory" or (kind == "sqlite" and not is_there(store_path(settings))):
        return None
    return Container(settings=settings).analytics()


def require_store(settings: Settings) -> Container:
    """Return the container for the store of the settings.

    Raises:
        RiglmError: there is no file; whether a server has the tables is seen when it is asked.
    """
    if settings.storage.kind == "sqlite" and not is_there(store_path(settings)):
        raise RiglmError(
            f"there is no store at {store_path(settings)} yet — fix: name the one you mean in storage.path or "
            "RIGLM_DATA_DIR, or record something first"
        )
    return Container(settings=settings)


@contextmanager
def alone(store: AnalyticsPort) -> Iterator[None]:
    """Hold the maintenance lease; wait a while for the process that holds it.

    Raises:
        RiglmError: another process holds it all the time.
    """
    until = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        with store.maintenance_lease() as mine:
            if mine:
                yield
                return
        if time.monotonic() > until:
            raise RiglmError("another process is running store maintenance — fix: try again in a few minutes")
        time.sleep(_TRY_AGAIN_SECONDS)


def owner_of(settings: Settings, principal: str | None) -> str:
    """The keyed hash by which a principal owns knowledge; empty for the local user.

    Raises:
        ConfigurationError: the key cannot be kept, so what is stored under the hash could not be found.
    """
    if not principal or is_hash(principal):
        return principal or ""
    return load_hasher(settings).principal(principal)


def load_hasher(settings: Settings) -> KeyedHasher:
    """Return the hasher of the store, whose key must be stored: with a new one nothing would be found again.

    Raises:
        ConfigurationError: the key cannot be kept.
    """
    if settings.privacy.key is None:
        load_or_create_key(store_path(settings).parent / "riglm.key")
    return Container(settings=settings).hasher()


def is_hash(text: str) -> bool:
    """Whether it reads like a keyed hash, as the store has them in the place of names."""
    return _HASH.fullmatch(text) is not None


def is_there(file: Path) -> bool:
    """Whether the database file is there; nothing is made.

    Raises:
        AnalyticsUnavailableError: it does not exist and could not be created, or its directory cannot be read.
    """
    try:
        file.lstat()
    except FileNotFoundError:
        place = next(parent for parent in file.absolute().parents if parent.exists())
        if os.access(place, os.W_OK | os.X_OK):
            return False
        reason = f"{place} is not writable"
    except OSError as error:
        reason = str(error.strerror)
    else:
        return True
    raise AnalyticsUnavailableError(
        f"the data directory {file.parent} cannot be used ({reason}) — fix: make it a directory that you may write "
        "in, or name another in RIGLM_DATA_DIR or storage.path"
    )
