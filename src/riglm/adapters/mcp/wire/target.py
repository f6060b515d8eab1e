"""Where an HTTP request goes, worked out once."""

import ipaddress
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from riglm.domain.errors import ConfigurationError

PORTS = {"http": 80, "https": 443}

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_PATH = "/%:=&?~+!$,;'@()*[]"
"""What stays as it is in a path or a query; all else outside ASCII's unreserved letters is percent-encoded."""


class Target:
    """An http or https URL, taken apart, with the parts of a request's head that never change.

    Credentials in the URL become a Basic `Authorization` header. `str()` of a target is safe to log: it shows neither
    credentials nor the query, which may hold a key.

    Raises:
        ConfigurationError: the URL is not one to send requests to. The message does not repeat the URL.
    """

    __slots__ = (
        "_printable",
        "absolute_form",
        "authority",
        "authorization",
        "host",
        "moved",
        "origin",
        "origin_form",
        "port",
        "tls",
    )

    def __init__(self, url: str) -> None:
        parts, port = _split(url)
        host = _ascii(parts.hostname or "")
        self.moved: dict[bytes, Target] = {}
        """Where the server redirects requests, by method."""
        self.tls = parts.scheme == "https"
        self.host = host
        """The host to connect to: lower case, no brackets around an IPv6 address."""
        self.port = port or PORTS[parts.scheme]
        name = f"[{host}]" if ":" in host else host
        self.authority = f"{name}:{self.port}"
        """Host and port as a proxy's CONNECT names them."""
        self.origin = f"{parts.scheme}://{self.authority}"
        """Scheme, host and port: targets with the same origin share connections."""
        site = name if self.port == PORTS[parts.scheme] else self.authority
        path = quote(parts.path, safe=_PATH) or "/"
        query = f"?{quote(parts.query, safe=_PATH)}" if parts.query else ""
        self._printable = f"{parts.scheme}://{site}{path}{'?…' if query else ''}"
        self.authorization = _basic(parts)
        """The header line for the URL's credentials, with its ending; empty without any."""
        rest = f" HTTP/1.1\r\nHost: {site}\r\nAccept-Encoding: identity\r\n"
        self.origin_form = f" {path}{query}{rest}".encode()
        """The request line after its method, and the headers that every request to this target has."""
        self.absolute_form = f" {parts.scheme}://{site}{path}{query}{rest}".encode()
        """The same as a forwarding proxy wants it."""

    def __str__(self) -> str:
        return self._printable

    def __repr__(self) -> str:
        return f"Target({self._printable!r})"

    def redirected(self, location: bytes) -> "Target":
        """Return the target of a redirect from here; the credentials of this URL stay at its origin.

        Raises:
            ConfigurationError: it is no URL to send requests to.
        """
        path = self.origin_form.split(b" ", 2)[1].decode()
        try:
            found = Target(urljoin(self.origin + path, location.decode("utf-8", "replace").strip()))
        except ValueError:
            raise ConfigurationError("The redirect names no valid URL") from None
        found.authorization = self.authorization if found.origin == self.origin else b""
        return found

    @property
    def numeric(self) -> bool:
        """Whether the host is an IP address, so that there is nothing to look up."""
        return is_address(self.host)

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine."""
        if self.numeric:
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost" or self.host.endswith(".localhost")


def is_address(host: str) -> bool:
    """Whether the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _split(url: str) -> tuple[SplitResult, int | None]:
    if _UNPRINTABLE.search(url):
        raise ConfigurationError("The URL holds a space or a control character: remove it or percent-encode it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The cause may repeat the credentials.
        raise ConfigurationError("The URL's host or port is not valid: write it as http://host:port/path") from None
    if parts.scheme not in PORTS:
        raise ConfigurationError("The URL must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise ConfigurationError("The URL names no host to connect to: write it as http://host:port/path")
    return parts, port


def _ascii(host: str) -> str:
    try:
        return host if ":" in host else host.encode("idna").decode()
    except UnicodeError as error:
        raise ConfigurationError("The URL's host is not a valid name") from error


def _basic(parts: SplitResult) -> bytes:
    if parts.username is None and parts.password is None:
        return b""
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return b"Authorization: Basic %b\r\n" % b64encode(credentials.encode())


def proxy_for(target: Target, environment: Mapping[str, str]) -> Target | None:
    """The proxy to reach a target through; None for the straight way, which loopback always takes.

    Lower-case names win over upper-case ones, as in curl.

    Raises:
        ConfigurationError: the variable names a proxy that is not reached by plain http.
    """
    if target.loopback or _exempt(target, _value(environment, "no_proxy")):
        return None
    for name in ("https_proxy" if target.tls else "http_proxy", "all_proxy"):
        if url := _value(environment, name):
            return _parse(name, url)
    return None


def _value(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.upper()) or "").strip()


def _parse(name: str, url: str) -> Target:
    try:
        proxy = Target(url if "://" in url else f"http://{url}")
    except ConfigurationError as error:
        raise ConfigurationError(f"{name.upper()} is not usable: {error}") from error
    if proxy.tls:
        raise ConfigurationError(f"{name.upper()} names an https proxy: only http:// proxies are supported")
    return proxy


def _exempt(target: Target, no_proxy: str) -> bool:
    return any(_covers(entry.strip().lower(), target) for entry in no_proxy.split(","))


def _covers(entry: str, target: Target) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return target.numeric and _in_network(target.host, entry)
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and not is_address(entry):
        if int(port) != target.port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").removeprefix(".")
    return bool(entry) and (target.host == entry or target.host.endswith(f".{entry}"))


def _in_network(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
