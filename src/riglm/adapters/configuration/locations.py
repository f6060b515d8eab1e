"""Where riglm keeps its files, by the settings and the environment."""

import importlib.util
import os
from pathlib import Path
from typing import Final

from riglm.adapters.configuration.loading import data_directory
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

ACCOUNTS: Final = "accounts"
"""The name of the file with the accounts of servers that require a sign-in."""


def accounts_path() -> Path:
    """The file with the accounts, in the user's data directory; the key that encrypts it is in the same directory."""
    return data_directory(os.environ) / ACCOUNTS


def store_path(settings: Settings) -> Path:
    """The database file; where the store is elsewhere, riglm still keeps its key in the directory of this file."""
    named = settings.storage.path
    return Path(named).expanduser() if named else data_directory(os.environ) / "riglm.db"


def store_url(settings: Settings) -> str:
    """Where the database is, with its password.

    Raises:
        ConfigurationError: the driver of the database is not installed.
    """
    if settings.storage.kind == "postgresql" and importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError(
            "storage.kind: PostgreSQL's driver is not installed — fix: pip install 'riglm[postgresql]'"
        )
    url = settings.storage.url
    return f"sqlite:///{store_path(settings)}" if url is None else url.get_secret_value()


def store_identity(settings: Settings) -> str:
    """The URL or the absolute path of the store: processes that record into it find each other's spools by it."""
    url = settings.storage.url
    return str(store_path(settings).absolute()) if url is None else url.get_secret_value()


def local_store_path(settings: Settings) -> Path | None:
    """The database file; None if the database is elsewhere."""
    return store_path(settings) if settings.storage.url is None else None


def spool_root(settings: Settings) -> Path:
    """The directory of the spools of all stores."""
    named = settings.storage.spool.path
    return Path(named).expanduser() if named else data_directory(os.environ) / "spool"
