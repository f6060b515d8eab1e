"""Where riglm keeps its files, and the project that a directory belongs to."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from riglm.domain.errors import ConfigurationError, missing_extra
from riglm.domain.schemas.settings import Settings

ACCOUNTS: Final = "accounts"
"""The name of the file with the accounts of servers that require a sign-in."""


VARIABLE = "RIGLM_DATA_DIR"
"""The environment variable that names another directory."""


def data_directory(environment: Mapping[str, str]) -> Path:
    """The user's data directory for riglm, or the one that RIGLM_DATA_DIR names; it need not exist."""
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("riglm", appauthor=False))


def other_data_directories(environment: Mapping[str, str], home: Path, platform: str = sys.platform) -> list[Path]:
    """Return riglm's data directories without RIGLM_DATA_DIR, with the current XDG_DATA_HOME and without it."""
    usual = {
        "win32": Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local"),
        "darwin": home / "Library" / "Application Support",
    }
    xdg = environment.get("XDG_DATA_HOME") if platform != "win32" else None
    bases = [*([Path(xdg)] if xdg else []), usual.get(platform, home / ".local" / "share")]
    return [base / "riglm" for base in bases]


def configuration_directory(environment: Mapping[str, str]) -> Path:
    """Where `riglm init` keeps its configurations: the user's directory for them, or the one that RIGLM_DATA_DIR names.

    It need not exist.
    """
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir("riglm", appauthor=False, roaming=True))


def default_store(environment: Mapping[str, str]) -> str:
    """The database file that is used when the configuration names no store."""
    return str(data_directory(environment) / "riglm.db")


def accounts_path() -> Path:
    """The file with the accounts, in the user's data directory; the key that encrypts it is in the same directory."""
    return data_directory(os.environ) / ACCOUNTS


def store_path(settings: Settings) -> Path:
    """The database file; where the store is elsewhere, riglm still keeps its key in the directory of this file."""
    named = settings.storage.path
    return Path(named or default_store(os.environ)).expanduser()


def store_url(settings: Settings) -> str:
    """Where the database is, with its password.

    Raises:
        ConfigurationError: the driver of the database is not installed.
    """
    if settings.storage.kind == "postgresql" and importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError(missing_extra("storage.kind: PostgreSQL's driver", "postgresql"))
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


_DIRECTORIES: Final = (".git", ".hg", ".jj", ".svn")
_MAX_POINTER_BYTES: Final = 4_096


def project_root(directory: str) -> str:
    """Return what names the project of a directory, empty without version control.

    It is the nearest directory above with version control, whether or not the given one still exists. All worktrees of
    a Git repository, or workspaces of a Jujutsu one, are one project; a submodule is a separate project.
    """
    try:
        start = Path(os.path.realpath(directory))
    except (OSError, ValueError):  # the working directory was deleted, or this is no path
        return ""
    for above in (start, *start.parents):
        for name in _DIRECTORIES:
            if os.path.exists(above / name):  # noqa: PTH110  # `Path.exists` raises where access is denied
                return str(_repository(above, name))
    return ""


def _repository(root: Path, name: str) -> Path:
    """Return the repository of a root: the root itself, unless it is a worktree or submodule of another."""
    if name == ".git" and (text := _read(root / name)).startswith("gitdir:"):
        own = _resolved(root, text.removeprefix("gitdir:"))
        shared = _resolved(own, _read(own / "commondir") or ".")
    elif name == ".jj" and (text := _read(root / name / "repo")):
        shared = _resolved(root / name, text).parent
    else:
        return root
    if not os.path.isdir(shared):  # noqa: PTH112
        return root
    return shared.parent if shared.name == name else shared


def _resolved(base: Path, text: str) -> Path:
    return Path(os.path.realpath(base / text.strip()))


def _read(file: Path) -> str:
    """Return the text of a small file; empty if it is a directory or cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read(_MAX_POINTER_BYTES).partition("\0")[0]
    except (OSError, ValueError):
        return ""
