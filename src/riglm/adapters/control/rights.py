"""The rights that tokens grant."""

import hmac
import logging
from enum import IntEnum
from pathlib import Path
from typing import Final

from riglm.adapters.control.tokens import FILE_NAME, TokenFile, digest
from riglm.domain.access import is_loopback
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.control import Control

_log: Final = logging.getLogger("riglm.control")


class Right(IntEnum):
    """What a token permits."""

    READ = 1
    WRITE = 2


class Tokens:
    """The tokens that count: for each scope the configured one or, without one, the one that riglm made."""

    def __init__(self, control: Control, made: TokenFile) -> None:
        """The file is read again whenever it was written; while it is unusable, its tokens are rejected."""
        configured = (("write", control.token), ("read", control.read_token))
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
        may_write = hmac.compare_digest(given, current.get("write", b""))
        may_read = hmac.compare_digest(given, current.get("read", b""))
        if may_write:
            return Right.WRITE
        return Right.READ if may_read else None

    def _current(self) -> dict[str, bytes]:
        stamp = self._made.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._digests = self._read() | self._configured
        return self._digests

    def _read(self) -> dict[str, bytes]:
        try:
            found = self._made.read() or {}
        except ConfigurationError as error:
            _log.warning("%s; until then its tokens are rejected", error)
            return {}
        return {scope: token.digest for scope, token in found.items()}


def guarded(control: Control, directory: Path) -> Tokens:
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
        made.ensure()
    except ConfigurationError as error:
        _log.warning("%s; the control API goes on without tokens in its data directory", error)
    return tokens
