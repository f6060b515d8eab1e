"""Who may talk to a listener: the checks on Host, Origin and token that come before anything else."""

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit


class Refusal(NamedTuple):
    """An HTTP status, the words that go with it, and a header where the status calls for one."""

    status: int
    words: str
    header: tuple[bytes, bytes] | None = None


class Gate:
    """Lets through requests that were meant for this listener and come from where they may.

    A page that a browser loaded from elsewhere can reach a listener on this machine by a name that it makes point
    here; its Host and Origin give it away.
    """

    def __init__(
        self, host: str, *, token: str | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        """A gate for a listener on `host`; `hosts` and `origins` are accepted besides the loopback ones.

        Entries are names with or without a port (`riglm.example:8443`), and whole origins (`https://app.example`).
        """
        self._wildcard = host in ("0.0.0.0", "::", "")  # noqa: S104  # compared, not bound
        self._hosts = {"localhost", host.lower(), *(name.lower() for name in hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._token = token.encode() if token else None

    def check(self, headers: Mapping[bytes, bytes], *, anonymous: bool = False) -> Refusal | None:
        """Why a request with these headers is refused; None when it may pass.

        `anonymous` spares it the token: a browser asks without one whether it may send a request that has it.
        """
        if not self._knows_host(headers.get(b"host", b"").decode("latin-1").lower()):
            return Refusal(421, "Invalid Host header: add the name to downstream.allowed_hosts if it is yours")
        origin = headers.get(b"origin")
        if origin is not None and not self._knows_origin(origin.decode("latin-1").lower()):
            return Refusal(403, "Invalid Origin header: add it to downstream.allowed_origins if it is yours")
        if self._token is not None and not anonymous and not self._knows_token(headers.get(b"authorization", b"")):
            return Refusal(401, "A bearer token is required", (b"www-authenticate", b'Bearer realm="riglm"'))
        return None

    def _knows_host(self, host: str) -> bool:
        name = _without_port(host)
        return host in self._hosts or name in self._hosts or self._is_ours(name)

    def _knows_origin(self, origin: str) -> bool:
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and (name == "localhost" or _is_loopback(name))

    def _is_ours(self, name: str) -> bool:
        """Numeric addresses cannot be made to point elsewhere, so a listener on all addresses takes them all."""
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or self._wildcard

    def _knows_token(self, authorization: bytes) -> bool:
        scheme, _, given = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token or b"")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
