"""What the tokens are worth that somebody sends."""

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
    """What somebody may do."""

    READ = 1
    WRITE = 2


class Tokens:
    """The tokens that count: for each scope the configured one or, without one, the one that riglm made."""

    def __init__(self, control: Control, made: TokenFile) -> None:
        """The file is looked at again whenever it was written; while it is not usable, its tokens count for nobody."""
        configured = (("write", control.token), ("read", control.read_token))
        self._configured: Final = {
            scope: digest(token.get_secret_value().encode()) for scope, token in configured if token is not None
        }
        self._made = made
        self._stamp: object = object()
        self._digests: dict[str, bytes] = {}
        self.required: Final = bool(self._configured) or not is_loopback(control.host)

    def right(self, token: bytes) -> Right | None:
        """What whoever sends this token may do; None when it is no right one, as one without characters never is."""
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
            _log.warning("%s; until then they count for nobody", error)
            return {}
        return {scope: token.digest for scope, token in found.items()}


def guarded(control: Control, directory: Path) -> Tokens:
    """The tokens that count; those of riglm's own are made when there are none in the data directory.

    Raises:
        ConfigurationError: other machines could use the API, and nobody has got a token for it yet.
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
        _log.warning("%s; the control API goes on without tokens of its own", error)
    return tokens
