"""Probe of one server: it is opened as a client would open it, its tools are listed, and it is closed."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from riglm.application.connections.bridge import BridgeLink, find_bridge, link_for
from riglm.application.connections.single_server_modern import EraProbe
from riglm.application.forwarding.riglm_requests import Asking
from riglm.application.identity import server_info
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import ToolCatalog, read_catalog
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import NullServerMessageHandler, UpstreamPort

_ERA_SECONDS: Final = 5.0
_NO_CLIENT: Final = NullServerMessageHandler()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """The result of a probe.

    `failure` is the reason why there is no list, or empty. `revision` is the protocol version of the handshake, empty
    if the server does not support it; `is_modern` is True if the server supports the modern era, None if unknown.
    `seconds` is the time from the first request to the complete list. `is_starting` is True if a launcher such as `npx`
    was still running at the timeout.
    """

    spec: UpstreamSpec
    failure: str = ""
    is_starting: bool = False
    server: str = ""
    revision: str = ""
    is_modern: bool | None = None
    seconds: float = 0.0
    has_tools: bool = True
    catalog: ToolCatalog = field(default_factory=ToolCatalog)


_LAUNCHERS: Final = frozenset({"npx", "pnpx", "bunx", "uvx", "pipx", "docker", "podman"})
"""Commands that download a server at its first start, which may take minutes."""


async def probe_server(upstream: UpstreamPort, seconds: float, on_list: Callable[[], None]) -> ServerProbe:
    """Probe a server for at most `seconds`, and as long again for it to end.

    `on_list` is called when its list has arrived; after that the server may be started again to check its era.
    """
    spec = upstream.spec
    try:
        async with asyncio.timeout(seconds):
            found = await _probe(upstream)
        if found.failure or found.is_modern:
            return found
        on_list()
        return replace(found, is_modern=await _speaks_modern(upstream))
    except TimeoutError:
        if spec.command and PurePath(spec.command[0]).stem in _LAUNCHERS:
            return ServerProbe(spec=spec, failure=f"is still starting after {seconds:g} s", is_starting=True)
        return ServerProbe(spec=spec, failure=f"did not give its list of tools within {seconds:g} s")
    finally:
        await upstream.close()


async def _probe(upstream: UpstreamPort) -> ServerProbe:
    asking, started = Asking(), time.monotonic()
    link = link_for(upstream, _NO_CLIENT)
    answer = await asking.ask(link, "initialize", _handshake())
    if answer.error:
        bridge = await _bridge(upstream, answer)
        if bridge is not None:
            link = bridge
            answer = await asking.ask(link, "initialize", _handshake())
    if not answer.result:
        return ServerProbe(spec=upstream.spec, failure=_words(answer))
    greeting = jsonrpc.members(answer.result)
    link.send(jsonrpc.notification("notifications/initialized"))
    has_tools = "tools" in jsonrpc.members(greeting.get("capabilities", b"{}"))
    catalog = ToolCatalog()
    if has_tools:
        entries, last = await asking.pages(link, "tools/list", "tools", b"{}")
        if not last.result:
            return ServerProbe(spec=upstream.spec, failure=f"has no list of tools: {_words(last)}")
        catalog = read_catalog(b'{"tools":[%b]}' % b",".join(map(bytes, entries)))
    took = time.monotonic() - started
    await link.close()
    is_bridged = isinstance(link, BridgeLink)
    return ServerProbe(
        spec=upstream.spec,
        server=_server(greeting),
        revision="" if is_bridged else jsonrpc.text(greeting.get("protocolVersion")) or "",
        is_modern=True if is_bridged else None,
        seconds=took,
        has_tools=has_tools,
        catalog=catalog,
    )


async def _bridge(upstream: UpstreamPort, refusal: Message) -> BridgeLink | None:
    found: asyncio.Future[BridgeLink | None] = asyncio.get_running_loop().create_future()
    find_bridge(upstream, _NO_CLIENT, refusal, lambda bridge: None if found.done() else found.set_result(bridge))
    return await found


async def _speaks_modern(upstream: UpstreamPort) -> bool | None:
    known = upstream.supports(ProtocolEra.MODERN)
    if known is not None:
        return known
    found: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
    probe = EraProbe(upstream, upstream.stateless(_NO_CLIENT), silence_tells=False)
    probe.ask(lambda modern: None if found.done() else found.set_result(modern))
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(found, _ERA_SECONDS)
    return None


def _handshake() -> bytes:
    version = protocol.HANDSHAKE_VERSIONS[-1]
    return jsonrpc.encode({"protocolVersion": version, "capabilities": {}, "clientInfo": server_info()})


def _server(greeting: "dict[str, jsonrpc.Raw]") -> str:
    info = jsonrpc.members(greeting.get("serverInfo", b"{}"))
    told = (jsonrpc.text(info.get("name")), jsonrpc.text(info.get("version")))
    return " ".join(word for word in told if word)


def _words(answer: Message) -> str:
    return jsonrpc.text(jsonrpc.members(answer.error).get("message")) or "its answer was no result"
