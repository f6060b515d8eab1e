"""A visit to one server: it is opened as a client would open it, asked for its tools, and left again."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from riglm.application.conversations.bridge import BridgeLink, find_bridge, link_for
from riglm.application.conversations.stateless import EraProbe
from riglm.application.forwarding.asking import Asking
from riglm.application.identity import server_info
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Era
from riglm.domain.tool import Catalogue, read_catalogue
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import EventMark, Outlet, UpstreamLink, UpstreamPort

_ERA_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What came of a visit.

    `failure` says why there is no list, empty when there is one. `revision` is the protocol's that the handshake
    settled on, empty when the server does not know the handshake; `is_modern` whether it speaks the modern era, None
    when that is not known. `seconds` is the time from the first word to the whole list.
    """

    spec: UpstreamSpec
    failure: str = ""
    server: str = ""
    revision: str = ""
    is_modern: bool | None = None
    seconds: float = 0.0
    has_tools: bool = True
    catalogue: Catalogue = field(default_factory=Catalogue)


async def visit(upstream: UpstreamPort, seconds: float, on_list: Callable[[], None]) -> Visit:
    """Visit a server for at most so many seconds, and as many again for it to end.

    `on_list` is called when its list is there: what follows may start it once more, to see which era it speaks.
    """
    spec = upstream.spec
    try:
        async with asyncio.timeout(seconds):
            found = await _visit(upstream)
        if found.failure or found.is_modern:
            return found
        on_list()
        return replace(found, is_modern=await _speaks_modern(upstream))
    except TimeoutError:
        return Visit(spec=spec, failure=f"did not give its list of tools within {seconds:g} s")
    finally:
        await upstream.close()


async def _visit(upstream: UpstreamPort) -> Visit:
    asking, started = Asking(), time.monotonic()
    link = link_for(upstream, _UNHEARD)
    answer = await asking.ask(link, "initialize", _handshake())
    if answer.error:
        bridge = await _bridge(upstream, answer)
        if bridge is not None:
            link = bridge
            answer = await asking.ask(link, "initialize", _handshake())
    if not answer.result:
        return Visit(spec=upstream.spec, failure=_words(answer))
    greeting = jsonrpc.members(answer.result)
    link.send(jsonrpc.notification("notifications/initialized"))
    has_tools = "tools" in jsonrpc.members(greeting.get("capabilities", b"{}"))
    catalogue = Catalogue()
    if has_tools:
        entries, last = await asking.pages(link, "tools/list", "tools", b"{}")
        if not last.result:
            return Visit(spec=upstream.spec, failure=f"has no list of tools: {_words(last)}")
        catalogue = read_catalogue(b'{"tools":[%b]}' % b",".join(map(bytes, entries)))
    took = time.monotonic() - started
    await link.close()
    is_bridged = isinstance(link, BridgeLink)
    return Visit(
        spec=upstream.spec,
        server=_server(greeting),
        revision="" if is_bridged else jsonrpc.text(greeting.get("protocolVersion")) or "",
        is_modern=True if is_bridged else None,
        seconds=took,
        has_tools=has_tools,
        catalogue=catalogue,
    )


async def _bridge(upstream: UpstreamPort, refusal: Message) -> BridgeLink | None:
    found: asyncio.Future[BridgeLink | None] = asyncio.get_running_loop().create_future()
    find_bridge(upstream, _UNHEARD, refusal, lambda bridge: None if found.done() else found.set_result(bridge))
    return await found


async def _speaks_modern(upstream: UpstreamPort) -> bool | None:
    known = upstream.supports(Era.MODERN)
    if known is not None:
        return known
    found: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
    probe = EraProbe(upstream, upstream.stateless(_UNHEARD), silence_tells=False)
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


class _Unheard(Outlet):
    """Nobody wants to know what a server says of its own accord."""

    def unsolicited(self, link: UpstreamLink, message: Message, event: EventMark | None = None) -> None:
        """Ignored."""


_UNHEARD: Final = _Unheard()
