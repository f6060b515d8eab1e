"""Tokens of the control API: created by `riglm control token`, which shows them once, and kept as hashes.

They are random and long, so that a plain hash reveals nothing.
"""

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final

from riglm.adapters.private_files import replace_private_file
from riglm.domain.access import is_loopback
from riglm.domain.errors import ConfigurationError, failed_write
from riglm.domain.schemas.downstream import ControlSettings

FILE_NAME: Final = "control-tokens.json"
"""Name of their file, in the data directory."""

_RANDOM_BYTES: Final = 32

_log: Final = logging.getLogger("riglm.control")


class Right(IntEnum):
    """What a token permits."""

    READ = 1
    WRITE = 2


SCOPES: Final = {"write": Right.WRITE, "read": Right.READ}
"""The right of each token by its name."""


def create_tokens() -> Mapping[str, str]:
    """Return a new token for each scope."""
    return {scope: f"riglm_{scope}_{secrets.token_urlsafe(_RANDOM_BYTES)}" for scope in SCOPES}


def digest(token: bytes) -> bytes:
    """Return the hash that is kept of a token."""
    return hashlib.sha256(token).digest()


class TokenFile:
    """The file with the hashes of tokens, which only its owner can read or write from its first byte on."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def read(self) -> Mapping[str, bytes] | None:
        """Return the hashes by scope; None if there is no file.

        Raises:
            ConfigurationError: it cannot be read, or holds something else.
        """
        try:
            entries = json.loads(self.path.read_bytes())
            return {scope: bytes.fromhex(entry["sha256"]) for scope, entry in entries.items()}
        except FileNotFoundError:
            return None
        except OSError as error:
            problem, fix = f"cannot be read ({error.strerror})", "make it readable for the user of riglm"
        except (ValueError, AttributeError, LookupError, TypeError):
            problem, fix = "does not hold tokens", "create new ones with `riglm control token --new`"
        raise ConfigurationError(f"the file of the control API's tokens {self.path} {problem} — fix: {fix}")

    def stamp(self) -> object:
        """Return a value that differs after each write of the file; None if there is none."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def write(self, tokens: Mapping[str, str]) -> None:
        """Store the hashes of these tokens.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        entries = {scope: {"sha256": digest(token.encode()).hex()} for scope, token in tokens.items()}
        try:
            replace_private_file(self.path, (json.dumps(entries, indent=2) + "\n").encode())
        except OSError as error:
            fix = "make its directory writable for the user of riglm, or name another in RIGLM_DATA_DIR"
            raise ConfigurationError(failed_write(self.path, error, fix)) from error


class Tokens:
    """The tokens that count: for each scope the configured one or, without one, the created one."""

    def __init__(self, control: ControlSettings, created: TokenFile) -> None:
        """The file is read again whenever it was written; while it is unusable, its tokens are rejected."""
        configured = zip(SCOPES, (control.token, control.read_token), strict=True)
        self._configured: Final = {
            scope: digest(token.get_secret_value().encode()) for scope, token in configured if token is not None
        }
        self._created = created
        self._stamp: object = object()
        self._digests: Mapping[str, bytes] = {}
        self.required: Final = bool(self._configured) or not is_loopback(control.host)

    def right(self, token: bytes) -> Right | None:
        """Return the rights of a token; None for a wrong one. An empty token is always wrong."""
        given, current = digest(token), self._current()
        matches = [right for scope, right in SCOPES.items() if hmac.compare_digest(given, current.get(scope, b""))]
        return max(matches, default=None) if token else None

    def _current(self) -> Mapping[str, bytes]:
        stamp = self._created.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            found: Mapping[str, bytes] = {}
            try:
                found = self._created.read() or {}
            except ConfigurationError as error:
                _log.warning("%s; until then its tokens are rejected", error)
            self._digests = {**found, **self._configured}
        return self._digests


def load_tokens(control: ControlSettings, directory: Path) -> Tokens:
    """Return the tokens of the configuration and of the data directory.

    Raises:
        ConfigurationError: other machines could use the API, and there is no token for it yet.
    """
    created = TokenFile(directory / FILE_NAME)
    is_configured = control.token is not None or control.read_token is not None
    if not is_loopback(control.host) and not is_configured and created.read() is None:
        raise ConfigurationError(
            f"control.host: {control.host} can be reached from other machines, and there are no tokens yet — fix: run "
            "`riglm control token` once, or set control.token, or listen on 127.0.0.1"
        )
    return Tokens(control, created)
