"""The tokens that riglm makes for itself: in the clear until they were shown, from then on only their hashes.

They are random and long, so that a plain hash reveals nothing.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from riglm.domain.access import is_loopback
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.downstream import ControlSettings
from riglm.domain.shortage import failed_write

FILE_NAME: Final = "control-tokens.json"
"""Their file, in the data directory."""

SCOPES: Final = ("write", "read")
"""What tokens are for."""

_log: Final = logging.getLogger("riglm.control")

_RANDOM_BYTES: Final = 32
_OF_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """One token: `plain` is None when it was shown before, `digest` the SHA-256 of it."""

    digest: bytes
    plain: str | None = None

    @property
    def entry(self) -> dict[str, str]:
        """The token as it is stored."""
        return {"sha256": self.digest.hex()} if self.plain is None else {"token": self.plain}


CreateResult = dict[str, CreatedToken]
"""Tokens by scope."""


def make() -> CreateResult:
    """A new token for each scope."""
    return {scope: _made(f"riglm_{scope}_{secrets.token_urlsafe(_RANDOM_BYTES)}") for scope in SCOPES}


def digest(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token).digest()


class TokenFile:
    """The file in which they are kept; readable by its owner alone from its first byte on."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def read(self) -> CreateResult | None:
        """The tokens; None when there is no file yet. A file that others could use is closed to them.

        Raises:
            ConfigurationError: it cannot be read, or holds something else.
        """
        try:
            with self.path.open("rb") as file:
                self._close_to_others(file.fileno())
                return {scope: _parsed(entry) for scope, entry in json.loads(file.read()).items()}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(f"cannot be read ({error.strerror})", "make it readable for who runs riglm") from error
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise self._unusable("does not hold tokens", "make new ones with `riglm control token --new`") from error

    def stamp(self) -> object:
        """Return a value that differs after each write of the file; None if there is none."""
        with contextlib.suppress(OSError):
            status = self.path.stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        return None

    def _close_to_others(self, handle: int) -> None:
        if os.name != "posix" or not os.fstat(handle).st_mode & _OF_OTHERS:
            return
        try:
            os.fchmod(handle, 0o600)
            outcome = "it is closed to them now"
        except OSError as error:
            outcome = f"it cannot be closed to them ({error.strerror})"
        _log.warning(
            "others on this machine could use the file of the control API's tokens %s; %s — fix: make new ones with "
            "`riglm control token --new`",
            self.path,
            outcome,
        )

    def write(self, made: CreateResult, *, replace: bool = True) -> None:
        """Store these tokens; without `replace`, an existing file is kept.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        content = json.dumps({scope: token.entry for scope, token in made.items()}, indent=2) + "\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # with mode 0600
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    (os.replace if replace else os.link)(draft, self.path)
            finally:
                Path(draft).unlink(missing_ok=True)
        except OSError as error:
            fix = "make its directory writable for who runs riglm, or name another in RIGLM_DATA_DIR"
            raise ConfigurationError(failed_write(self.path, error, fix)) from error

    def _unusable(self, what: str, fix: str) -> ConfigurationError:
        return ConfigurationError(f"the file of the control API's tokens {self.path} {what} — fix: {fix}")


def hashed(made: CreateResult) -> CreateResult:
    """The tokens as they are kept once they were shown."""
    return {scope: CreatedToken(token.digest) for scope, token in made.items()}


def _made(plain: str) -> CreatedToken:
    return CreatedToken(digest(plain.encode()), plain)


def _parsed(entry: Any) -> CreatedToken:
    if "sha256" in entry:
        return CreatedToken(bytes.fromhex(entry["sha256"]))
    if not entry["token"]:
        raise ValueError("an empty token")
    return _made(entry["token"])


class Right(IntEnum):
    """What a token permits."""

    READ = 1
    WRITE = 2


_RIGHTS: Final = (Right.WRITE, Right.READ)


class Tokens:
    """The tokens that count: for each scope the configured one or, without one, the one that riglm made."""

    def __init__(self, control: ControlSettings, made: TokenFile) -> None:
        """The file is read again whenever it was written; while it is unusable, its tokens are rejected."""
        configured = zip(SCOPES, (control.token, control.read_token), strict=True)
        self._configured: Final = {
            scope: digest(token.get_secret_value().encode()) for scope, token in configured if token is not None
        }
        self._made = made
        self._stamp: object = object()
        self._digests: dict[str, bytes] = {}
        self.required: Final = bool(self._configured) or not is_loopback(control.host)

    def right(self, token: bytes) -> Right | None:
        """Return the rights of a token; None for a wrong one. A token without characters is always wrong."""
        if not token:
            return None
        given, current = digest(token), self._current()
        matches = [hmac.compare_digest(given, current.get(scope, b"")) for scope in SCOPES]
        return next((right for right, matched in zip(_RIGHTS, matches, strict=True) if matched), None)

    def _current(self) -> dict[str, bytes]:
        stamp = self._made.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            found: CreateResult = {}
            try:
                found = self._made.read() or {}
            except ConfigurationError as error:
                _log.warning("%s; until then its tokens are rejected", error)
            self._digests = {scope: token.digest for scope, token in found.items()} | self._configured
        return self._digests


def guarded(control: ControlSettings, directory: Path) -> Tokens:
    """Return the accepted tokens; they are created in the data directory if it has none.

    Raises:
        ConfigurationError: other machines could use the API, and there is no token for it yet.
    """
    made = TokenFile(directory / FILE_NAME)
    tokens = Tokens(control, made)
    is_configured = control.token is not None or control.read_token is not None
    if not is_loopback(control.host) and not is_configured and made.read() is None:
        raise ConfigurationError(
            f"control.host: {control.host} can be reached from other machines, and there are no tokens yet — fix: run "
            "`riglm control token` once, or set control.token, or listen on 127.0.0.1"
        )
    try:
        if not made.path.exists():
            made.write(make(), replace=False)
    except ConfigurationError as error:
        _log.warning("%s; the control API goes on without tokens in its data directory", error)
    return tokens
