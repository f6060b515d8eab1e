"""Who may talk to a listener: the checks on Host, Origin and token that come before anything else."""

import hmac
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from riglm.domain.access import Doors, bearer_token, is_loopback_origin


class Refusal(NamedTuple):
    """An HTTP status, the words that go with it, and a header where the status calls for one."""

    status: int
    words: str
    header: tuple[bytes, bytes] | None = None


class Gate:
    """Lets through requests that were meant for this listener and come from where they may."""

    def __init__(
        self,
        host: str,
        *,
        tokens: Mapping[str, str] | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        """A gate for a listener on `host`; `hosts` and `origins` are accepted in addition to loopback, as `Doors`.

        `tokens` are those of the permitted principals, by name; without any, every client is permitted, without a name.
        """
        self._doors = Doors(host, hosts=hosts, origins=origins)
        self._tokens = {name: token.encode() for name, token in (tokens or {}).items()}

    def admit(self, headers: Mapping[bytes, bytes], *, anonymous: bool = False) -> str | Refusal:
        """The principal of a request with these headers, empty where there is none; or why it is refused.

        `anonymous` spares it the token: a browser asks without one whether it may send a request that has it.
        """
        if not self._doors.knows_host(headers.get(b"host", b"").decode("latin-1")):
            return Refusal(421, "Invalid Host header: add the name to downstream.allowed_hosts if it is yours")
        origin = headers.get(b"origin")
        if origin is not None and not self._knows_origin(origin.decode("latin-1")):
            return Refusal(403, "Invalid Origin header: add it to downstream.allowed_origins if it is yours")
        if anonymous or not self._tokens:
            return ""
        principal = self._known(headers.get(b"authorization", b""))
        if principal is None:
            return Refusal(401, "A bearer token is required", (b"www-authenticate", b'Bearer realm="riglm"'))
        return principal

    def _knows_origin(self, origin: str) -> bool:
        return self._doors.knows_origin(origin) or is_loopback_origin(origin)

    def _known(self, authorization: bytes) -> str | None:
        """Return the principal of a token; all are compared, so that the time reveals nothing."""
        given = bearer_token(authorization) or b""
        found = [name for name, token in self._tokens.items() if hmac.compare_digest(given, token)]
        return found[0] if found else None
