"""A visit to one server: it is opened as a client would open it, asked for its tools, and left again."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, NamedTuple

from riglm.application.connections.bridge import BridgeLink, find_bridge, link_for
from riglm.application.connections.modern_handler import EraProbe
from riglm.application.forwarding.riglm_requests import Asking
from riglm.application.identity import server_info
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.domain.redaction import mask_command
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import ToolCatalog, read_catalog
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.doctor import ServerOutput
from riglm.ports.upstream import NullServerMessageHandler, UpstreamPort

_ERA_SECONDS: Final = 5.0
_NO_CLIENT: Final = NullServerMessageHandler()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """What came of a visit.

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


async def visit(upstream: UpstreamPort, seconds: float, on_list: Callable[[], None]) -> ServerProbe:
    """Probe a server for at most `seconds`, and as long again for it to end.

    `on_list` is called when its list has arrived; after that the server may be started again to check its era.
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
        if spec.command and PurePath(spec.command[0]).stem in _LAUNCHERS:
            return ServerProbe(spec=spec, failure=f"is still starting after {seconds:g} s", is_starting=True)
        return ServerProbe(spec=spec, failure=f"did not give its list of tools within {seconds:g} s")
    finally:
        await upstream.close()


async def _visit(upstream: UpstreamPort) -> ServerProbe:
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


_MAX_SAID: Final = 3
_NODE: Final = "install Node.js, which brings it: https://nodejs.org"
_UV: Final = "install uv, which brings it: https://docs.astral.sh/uv"
_DOCKER: Final = "install Docker: https://docs.docker.com/get-docker"
_INSTALLED_WITH: Final = {
    "npx": _NODE,
    "npm": _NODE,
    "node": _NODE,
    "bunx": "install Bun, which brings it: https://bun.sh",
    "uvx": _UV,
    "uv": _UV,
    "pipx": "install pipx: https://pipx.pypa.io",
    "docker": _DOCKER,
    "podman": "install Podman: https://podman.io",
    "python": "name the interpreter that there is, often `python3`",
    "deno": "install Deno: https://deno.com",
}


class ConfiguredServer(NamedTuple):
    """A server, and the key under which it is configured."""

    spec: UpstreamSpec
    key: str


class _Sign(NamedTuple):
    """A pattern that identifies a kind of failure in a server's output, and the fix to suggest."""

    pattern: re.Pattern[str]
    fix: Callable[[ConfiguredServer, str], str]


def _sign(pattern: str, fix: str | Callable[[ConfiguredServer, str], str]) -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE), fix if callable(fix) else lambda *_: fix)


def how_to_install(program: str) -> str:
    """What brings a program that was not found."""
    name = PurePath(program).name
    known = _INSTALLED_WITH.get(name, f"install {name}")
    return f"{known}; or give its full path as `command`: a client may start riglm with a shorter PATH than yours"


def _variable(server: ConfiguredServer, words: str) -> str:
    """What to do about a variable that a server misses: it may be configured, and come out empty."""
    place, env = f"{server.key}.env", server.spec.env
    named = [name for name in env if re.search(rf"\b{re.escape(name)}\b", words, re.IGNORECASE)]
    if not named:
        return f"give it the variable in `{place}`"
    if env[named[0]]:
        return f"correct `{place}.{named[0]}`"
    return f"`{place}.{named[0]}` is empty: set the variable that it comes from, here and where the client starts riglm"


def _token(server: ConfiguredServer, reason: str) -> str:
    place = server.key
    if server.spec.has_credentials:
        return f"the token was refused: set a valid one in `{place}.auth.token`, or in the variable that it comes from"
    if "401" in reason:
        return f"riglm login {server.spec.name}; for a fixed token, set `{place}.auth: {{token: ${{VARIABLE}}}}`"
    return f"set `{place}.auth: {{token: ${{VARIABLE}}}}`, or sign in with `riglm login {server.spec.name}`"


def _by_hand(server: ConfiguredServer, _: str) -> str:
    return f"run it by hand to see what it lacks: {' '.join(mask_command(server.spec.command))}"


def _first_look(server: ConfiguredServer) -> str:
    return _by_hand(server, "") if server.spec.kind == "stdio" else "see the server's own log"


_IN_COMPLAINTS: Final = (
    _sign(r"content-length", "have it read and write one line of JSON a message, as MCP's stdio transport requires"),
    _sign(r"cannot connect to the docker daemon|docker daemon is not running", "start Docker"),
    _sign(r"\bE404\b|404 not found - get|no matching version|not found in the package registry|No solution found",
          "correct the name of the package in `args`"),
    _sign(r"\bEAI_AGAIN\b|\bENOTFOUND\b|Temporary failure in name resolution|dns error",
          "connect to the network, or install the package beforehand: its runner downloads it at the first start"),
    _sign(r"EADDRINUSE|address already in use", "end the other process that has its port: one copy of it runs already"),
    _sign(r"ModuleNotFoundError|Cannot find module|ERR_MODULE_NOT_FOUND", "install what it needs, or correct `args`"),
    _sign(r"\b(missing|required|not set|undefined)\b.{0,60}\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b"
          r"|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b.{0,60}\b(missing|required|not set|undefined)\b",
          _variable),
    _sign(r"permission denied|EACCES", "let the user who runs riglm do what it says"),
)  # fmt: skip
_IN_REASONS: Final = (
    _sign(r"no further process", "end processes that are not needed, or raise the limit (`ulimit -u`)"),
    _sign(r"^cannot run .*(no such file|not found)", lambda server, _: how_to_install(server.spec.command[0])),
    _sign(r"^cannot run .*permission", lambda server, _: f"make it executable: chmod +x {server.spec.command[0]}"),
    _sign(r"HTTP 30\d and redirects", "set `url` to where the server redirects, if you trust that"),
    _sign(r"HTTP 40[13]\b", _token),
    _sign(r"WRONG_VERSION_NUMBER", "write http:// in `url`: the server does not use TLS on this port"),
    _sign(r"CERTIFICATE_VERIFY_FAILED|certificate",
          "name the authority's certificates in the variable SSL_CERT_FILE, NODE_EXTRA_CA_CERTS or REQUESTS_CA_BUNDLE, "
          "here and where the client starts riglm, or correct the host in `url`"),
    _sign(r"\bssl\b|\btls\b", "check that the server uses TLS on this port, or write http:// in `url`"),
    _sign(r"HTTP 40[456]\b|no JSON-RPC|no endpoint",
          "correct the path in `url` (often /mcp), or set `type: sse` for a server of the older kind"),
    _sign(r"Name or service not known|nodename nor servname|getaddrinfo|No address", "correct the host in `url`"),
    _sign(r"refused|Connect call failed", "start it, or correct the port in `url`"),
    _sign(r"did not take the connection", "see that it runs and no firewall is in the way, or raise timeouts.connect"),
    _sign(r"HTTP 429|HTTP 5\d\d", "see the server's own log; try again later"),
    _sign(r"did not (answer|give)",
          lambda server, _: f"{_first_look(server)}; if it is only slow, raise {server.key}.timeouts.initialize"),
    _sign(r"exited|ended by signal|closed its", _by_hand),
)  # fmt: skip


class FailureDiagnosis(NamedTuple):
    """Return the most informative line of a failed server's output, and the fix to suggest."""

    said: tuple[str, ...]
    fix: str


def diagnosis(server: ConfiguredServer, reason: str, heard: ServerOutput) -> FailureDiagnosis:
    """What is known of a failure: by what the server said itself, or else by the reason that riglm has for it."""
    lines = tuple(line for line in dict.fromkeys(heard.rate_limited_log) if line.strip())
    last = lines[-_MAX_SAID:]
    for sign in _IN_COMPLAINTS:
        telling = next((line for line in lines if sign.pattern.search(line)), None)
        if telling is not None:
            return FailureDiagnosis(last if telling in last else (telling, *last[1:]), sign.fix(server, telling))
    known = next((sign for sign in _IN_REASONS if sign.pattern.search(reason)), None)
    return FailureDiagnosis(last, known.fix(server, reason) if known else _first_look(server))
