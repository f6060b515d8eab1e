"""Access: who may talk to a listener by Host, Origin and token, and what the groups of callers may see and use.

A page that a browser loaded from elsewhere can reach a listener on this machine by a name that it makes point here; its
Host and Origin headers reveal it.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from riglm.domain.naming import SEPARATOR, NamePatterns
from riglm.domain.schemas.filtering import ANY_GROUP, AccessSettings


class AllowedOrigins:
    """The names under which a listener may be reached, and the origins whose pages may reach it."""

    def __init__(self, host: str, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> None:
        """Settings of a listener on `host`; `hosts` and `origins` are accepted in addition to loopback ones.

        Entries are names with or without a port (`riglm.example:8443`), and whole origins (`https://app.example`).
        """
        self._wildcard = host in ("0.0.0.0", "::", "")  # noqa: S104  # compared, not bound
        self._hosts = {"localhost", host.lower(), *(name.lower() for name in hosts)}
        self._origins = {_normalized(origin) for origin in origins}

    def knows_host(self, host: str) -> bool:
        """Whether a request with this Host header was meant for the listener."""
        host = host.lower()
        name = _without_port(host)
        return host in self._hosts or name in self._hosts or self._is_ours(name)

    def knows_origin(self, origin: str) -> bool:
        """Whether this origin is a named one."""
        return _normalized(origin) in self._origins

    def _is_ours(self, name: str) -> bool:
        """Numeric addresses cannot be made to point elsewhere, so a listener on all addresses takes them all."""
        address = _address(name)
        return address is not None and (address.is_loopback or self._wildcard)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_loopback_origin(origin: str) -> bool:
    """Whether the pages of this origin came from this machine."""
    scheme, authority = _parts(origin)
    return scheme in ("http", "https") and is_loopback(_without_port(authority))


def is_protected(url: str) -> bool:
    """True if no other machine can read or change requests to a URL: it uses https, or is on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def is_origin_of(origin: str, host: str) -> bool:
    """Whether this is the origin of the pages that were asked for with this Host header."""
    scheme, authority = _parts(origin)
    port = _DEFAULT_PORTS.get(scheme, "")
    return bool(port and authority) and authority.removesuffix(port) == host.lower().removesuffix(port)


def bearer_token(authorization: bytes) -> bytes | None:
    """The token in an Authorization header; None when it holds none."""
    scheme, _, given = authorization.partition(b" ")
    return given.strip() if scheme.lower() == b"bearer" else None


_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def _normalized(origin: str) -> str:
    """Return an origin as browsers send it: in lower case, without the default port and a final slash."""
    origin = origin.lower().rstrip("/")
    return origin.removesuffix(_DEFAULT_PORTS.get(origin.partition("://")[0], ""))


def _parts(origin: str) -> tuple[str, str]:
    """Scheme and authority of what is an origin and nothing more; of anything else nothing."""
    try:
        scheme, authority, *rest = urlsplit(origin.lower())
    except ValueError:
        return "", ""
    return ("", "") if any(rest) or "@" in authority else (scheme, authority)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host


RequestHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, with values."""

_MINUTES_10: Final = b"600"
_VARY: Final = ((b"vary", b"origin"),)


class CrossOrigin:
    """Headers that let a page of another origin send requests in a browser, and read the responses."""

    def __init__(
        self, origins: Sequence[str], *, methods: bytes, sent: bytes, exposed: bytes, with_loopback: bool = False
    ) -> None:
        """`origins` are whole (`https://app.example`); `with_loopback` adds those of this machine, on any port.

        `methods` are those that pages may use, `sent` the headers that they may send when they do not say which, and
        `exposed` the headers of answers that they may read; each a list with commas.
        """
        self._origins = {_normalized(origin) for origin in origins}
        self._with_loopback = with_loopback
        self._methods = methods
        self._sent = sent
        self._exposed = exposed

    def grant(self, headers: Mapping[bytes, bytes]) -> RequestHeaders:
        """The headers that let the page which sent a request read the answer, if it may; caches get `vary` always."""
        origin = headers.get(b"origin")
        if origin is None or not self._permits(origin):
            return _VARY
        return ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", self._exposed), *_VARY)

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> RequestHeaders:
        """The headers that answer a browser's question whether it may send a request; none when it asks nothing."""
        is_asked = method == "OPTIONS" and b"access-control-request-method" in headers
        if not is_asked or not self._permits(headers.get(b"origin", b"")):
            return ()
        wanted = headers.get(b"access-control-request-headers", self._sent)
        private = b"access-control-request-private-network" in headers
        return (
            (b"access-control-allow-methods", self._methods),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", _MINUTES_10),
            *([(b"access-control-allow-private-network", b"true")] if private else []),
        )

    def _permits(self, origin: bytes) -> bool:
        name = origin.decode("latin-1")
        return _normalized(name) in self._origins or (self._with_loopback and is_loopback_origin(name))


def issuer_spellings(issuer: str) -> tuple[str, ...]:
    """Return the spellings of an issuer that count as equal: with and without a final slash if its path is empty."""
    origin = re.fullmatch(r"(https?://[^/?#]+)/?", issuer)
    return (origin[1], f"{origin[1]}/") if origin else (issuer,)


def is_same_issuer(one: str, other: str) -> bool:
    """True if two identifiers name one issuer. Any difference but that of `issuer_spellings` makes two issuers."""
    return one in issuer_spellings(other)


_MAX_REMEMBERED: Final = 50_000


class AccessRules:
    """Permits what one rule of a caller's groups permits, and denies everything else.

    The rules that apply to a caller are named by one text, with a line for each rule.
    """

    def __init__(self, rules: Mapping[str, AccessSettings], servers: Iterable[str]) -> None:
        """`servers` are those in use; a rule that permits none of them applies to no caller."""
        self._servers = {group: NamePatterns(rule.servers) for group, rule in rules.items()}
        self._tools = {
            group: NamePatterns(p for p in rule.tools if SEPARATOR not in p) for group, rule in rules.items()
        }
        self._full_names = {
            group: NamePatterns(p for p in rule.tools if SEPARATOR in p) for group, rule in rules.items()
        }
        self._profiles = {group: NamePatterns(rule.profiles) for group, rule in rules.items()}
        in_use = tuple(servers)
        self._groups = tuple(group for group, patterns in self._servers.items() if any(map(patterns.has, in_use)))
        self.permits = lru_cache(_MAX_REMEMBERED)(self._permits)
        self.find = lru_cache(_MAX_REMEMBERED)(self._find)

    def _find(self, groups: frozenset[str], profile: str) -> str:
        """Return the rules that apply to a member of these groups in a profile; empty if there is none."""
        mine = (group for group in self._groups if group == ANY_GROUP or group in groups)
        return "\n".join(group for group in mine if self._profiles[group].has(profile))

    def permits_server(self, access: str, server: str) -> bool:
        """True if the rules `access` permit anything of a server."""
        return any(group in self._servers and self._servers[group].has(server) for group in access.split("\n"))

    def _permits(self, access: str, server: str, tool: str) -> bool:
        """True if the rules `access` permit a server's tool, by the server's name for it."""
        full_name = f"{server}{SEPARATOR}{tool}"
        return any(
            group in self._servers
            and self._servers[group].has(server)
            and (self._tools[group].has(tool) or self._full_names[group].has(full_name))
            for group in access.split("\n")
        )
