"""The accounts of the user's data directory."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.loading import data_directory
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.adapters.mcp.oauth.accounts import AccountFile
    from riglm.domain.schemas.server import ServerSettings

FILE_NAME: Final = "accounts"
_MAX_WAIT_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.02


def account_file() -> "AccountFile":
    """Return the accounts, encrypted with a key derived from `riglm.key` in the same directory."""
    from riglm.adapters.mcp.oauth.accounts import AccountFile

    directory = data_directory(os.environ)

    def key() -> bytes:
        from riglm.adapters.keyfile import load_or_create_key
        from riglm.domain.hashing import KeyedHasher

        return KeyedHasher(load_or_create_key(directory / "riglm.key")).derived_key("accounts")

    return AccountFile(directory / FILE_NAME, key, _hold)


def find_sign_ins(servers: "Mapping[str, ServerSettings]") -> dict[str, bool | None]:
    """Return True for servers that require a sign-in and have no account, and None for those that do not respond.

    Raises:
        RiglmError: the accounts cannot be read.
    """
    from riglm.adapters.mcp.oauth.ping import require_tokens

    accounts = account_file()
    specs = {name: settings.spec(name) for name, settings in servers.items()}
    absent = {name: spec for name, spec in specs.items() if accounts.find(spec.account_key) is None}
    return dict.fromkeys(specs, False) | dict(zip(absent, asyncio.run(require_tokens(absent.values())), strict=True))


@contextlib.contextmanager
def _hold(path: Path) -> Iterator[None]:
    from riglm.adapters.spool.file_lock import FileLock, LockHeldError

    until = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        try:
            lock = FileLock(path)
        except LockHeldError:
            if time.monotonic() > until:
                raise RiglmError(
                    f"{path} is held by a different process for over {_MAX_WAIT_SECONDS:g} s — fix: end that process"
                ) from None
            time.sleep(_RETRY_SECONDS)
        else:
            break
    with lock:
        yield
