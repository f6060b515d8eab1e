"""The proxies that the environment asks for: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY."""

import ipaddress
from collections.abc import Mapping

from riglm.adapters.mcp.wire.target import Target, is_address
from riglm.domain.errors import ConfigurationError


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
