"""Checks of servers: whether they start, how long they take, and which protocol versions they support."""

import asyncio
import contextlib
import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Self

from riglm.application.owners import server_info
from riglm.application.proxy.bridge import BridgeLink, find_bridge
from riglm.application.proxy.catalogs import join_pages
from riglm.application.proxy.era_negotiation import EraProbe
from riglm.application.proxy.request import ask, list_pages
from riglm.application.setup.tool_checks import check_tools
from riglm.domain import jsonrpc, protocol
from riglm.domain.client_setup import ENTRY
from riglm.domain.client_support import ClientBehavior, list_timeout_of, support_by_key
from riglm.domain.doctor import DoctorSection, Finding, Severity
from riglm.domain.jsonrpc import Message
from riglm.domain.redaction import mask_command
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import ToolCatalog, read_catalog
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES, UpstreamSpec
from riglm.ports.upstream import NullServerMessageHandler, UpstreamLink, UpstreamPort

_MAX_LINES: Final = 10
_ERA_SECONDS: Final = 5.0
_NO_CLIENT: Final = NullServerMessageHandler()


@dataclass(slots=True)
class ServerOutput:
    """Output of a server outside of the protocol: the last lines of its standard error, and what else is on stdout.

    `noise` counts the lines on stdout that were no messages. `framing` is `FRAMED_BY_HEADERS` or `FRAMED_OVER_LINES` if
    such a line showed that.
    """

    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    noise: int = 0
    framing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """The result of a probe.

    `failure` is the reason why there is no list, or empty. `revision` is the protocol version of the handshake, empty
    if the server does not support it; `is_modern` is True if the server supports the modern era, None if unknown.
    `seconds` is the time from the first request to the complete list. `is_starting` is True if a launcher such as `npx`
    was still running at the timeout. `output` is that until it had listed its tools.
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
    output: ServerOutput = field(default_factory=ServerOutput)


_LAUNCHERS: Final = frozenset({"npx", "pnpx", "bunx", "uvx", "pipx", "docker", "podman"})
"""Commands that download a server at its first start, which may take minutes."""


async def probe_server(
    upstream: UpstreamPort, seconds: float, take_output: Callable[[str], ServerOutput]
) -> ServerProbe:
    """Probe a server for at most `seconds`, and as long again for it to end.

    `take_output` returns what a server wrote. When its list has arrived it may be started again to check its era.
    """
    spec = upstream.spec
    try:
        async with asyncio.timeout(seconds):
            found = await _probe(upstream)
        if not found.failure and not found.is_modern:
            found = replace(found, output=take_output(spec.name))
            return replace(found, is_modern=await _is_modern(upstream))
    except TimeoutError:
        found = ServerProbe(spec=spec, failure=f"did not give its list of tools within {seconds:g} s")
        if spec.command and PurePath(spec.command[0]).stem in _LAUNCHERS:
            found = ServerProbe(spec=spec, failure=f"is still starting after {seconds:g} s", is_starting=True)
    finally:
        await upstream.close()
    return replace(found, output=take_output(spec.name))


async def _probe(upstream: UpstreamPort) -> ServerProbe:
    started = time.monotonic()
    is_bridged = upstream.supports(ProtocolEra.HANDSHAKE) is False
    link: UpstreamLink = BridgeLink(upstream, _NO_CLIENT) if is_bridged else upstream.connect(_NO_CLIENT)
    version = protocol.HANDSHAKE_VERSIONS[-1]
    params = jsonrpc.encode({"protocolVersion": version, "capabilities": {}, "clientInfo": server_info()})
    answer, _ = await ask(link, "initialize", params, partial(_NO_CLIENT.unsolicited, link))
    if answer.error and not is_bridged and (bridge := await find_bridge(upstream, _NO_CLIENT, answer)) is not None:
        link, is_bridged = bridge, True
        answer, _ = await ask(link, "initialize", params, partial(_NO_CLIENT.unsolicited, link))
    if not answer.result:
        return ServerProbe(spec=upstream.spec, failure=_words(answer))
    greeting = jsonrpc.members(answer.result)
    link.send(jsonrpc.notification("notifications/initialized"))
    has_tools = "tools" in jsonrpc.members(greeting.get("capabilities", b"{}"))
    catalog = ToolCatalog()
    if has_tools:
        pages, last = await list_pages(link, "tools/list", b"{}", partial(_NO_CLIENT.unsolicited, link))
        if not last.result:
            return ServerProbe(spec=upstream.spec, failure=f"has no list of tools: {_words(last)}")
        catalog = join_pages([read_catalog(bytes(page.result)) for page in pages])
    took = time.monotonic() - started
    await link.close()
    info = jsonrpc.members(greeting.get("serverInfo", b"{}"))
    return ServerProbe(
        spec=upstream.spec,
        server=" ".join(filter(None, (jsonrpc.text(info.get("name")), jsonrpc.text(info.get("version"))))),
        revision="" if is_bridged else jsonrpc.text(greeting.get("protocolVersion")) or "",
        is_modern=True if is_bridged else None,
        seconds=took,
        has_tools=has_tools,
        catalog=catalog,
    )


async def _is_modern(upstream: UpstreamPort) -> bool | None:
    known = upstream.supports(ProtocolEra.MODERN)
    if known is not None:
        return known
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ERA_SECONDS):
            return await EraProbe(upstream, upstream.stateless(_NO_CLIENT), silence_counts=False).ask()
    return None


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


_Signs = tuple[tuple[str, str | Callable[[ConfiguredServer, str], str]], ...]
"""Patterns that identify a kind of failure, and the fixes to suggest."""


def how_to_install(program: str) -> str:
    """Return how to install a program that was not found."""
    name = PurePath(program).name
    known = _INSTALLED_WITH.get(name, f"install {name}")
    return f"{known}; or give its full path as `command`: a client may start riglm with a shorter PATH than yours"


def _variable(server: ConfiguredServer, words: str) -> str:
    """Return the fix for a variable that a server misses: it may be configured, and come out empty."""
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


_IN_OUTPUT: Final[_Signs] = (
    (r"content-length", "have it read and write one line of JSON a message, as MCP's stdio transport requires"),
    (r"cannot connect to the docker daemon|docker daemon is not running", "start Docker"),
    (r"\bE404\b|404 not found - get|no matching version|not found in the package registry|No solution found",
          "correct the name of the package in `args`"),
    (r"\bEAI_AGAIN\b|\bENOTFOUND\b|Temporary failure in name resolution|dns error",
          "connect to the network, or install the package beforehand: its runner downloads it at the first start"),
    (r"EADDRINUSE|address already in use", "end the other process that has its port: one copy of it runs already"),
    (r"ModuleNotFoundError|Cannot find module|ERR_MODULE_NOT_FOUND", "install what it needs, or correct `args`"),
    (r"\b(missing|required|not set|undefined)\b.{0,60}\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b"
          r"|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|api.?key|token)\b.{0,60}\b(missing|required|not set|undefined)\b",
          _variable),
    (r"permission denied|EACCES", "let the user who runs riglm do what it says"),
)  # fmt: skip
_IN_REASONS: Final[_Signs] = (
    (r"no further process", "end processes that are not needed, or raise the limit (`ulimit -u`)"),
    (r"^cannot run .*(no such file|not found)", lambda server, _: how_to_install(server.spec.command[0])),
    (r"^cannot run .*permission", lambda server, _: f"make it executable: chmod +x {server.spec.command[0]}"),
    (r"HTTP 30\d and redirects", "set `url` to where the server redirects, if you trust that"),
    (r"HTTP 40[13]\b", _token),
    (r"WRONG_VERSION_NUMBER", "write http:// in `url`: the server does not use TLS on this port"),
    (r"CERTIFICATE_VERIFY_FAILED|certificate",
          "name the authority's certificates in the variable SSL_CERT_FILE, NODE_EXTRA_CA_CERTS or REQUESTS_CA_BUNDLE, "
          "here and where the client starts riglm, or correct the host in `url`"),
    (r"\bssl\b|\btls\b", "check that the server uses TLS on this port, or write http:// in `url`"),
    (r"HTTP 40[456]\b|no JSON-RPC|no endpoint",
          "correct the path in `url` (often /mcp), or set `type: sse` for a server of the older kind"),
    (r"Name or service not known|nodename nor servname|getaddrinfo|No address", "correct the host in `url`"),
    (r"refused|Connect call failed", "start it, or correct the port in `url`"),
    (r"did not take the connection", "see that it runs and no firewall is in the way, or raise timeouts.connect"),
    (r"HTTP 429|HTTP 5\d\d", "see the server's own log; try again later"),
    (r"did not (answer|give)",
          lambda server, _: f"{_first_look(server)}; if it is only slow, raise {server.key}.timeouts.initialize"),
    (r"exited|ended by signal|closed its", _by_hand),
)  # fmt: skip


def diagnose(server: ConfiguredServer, reason: str, stderr: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the most informative of the last lines of a failed server's standard error, and the fix to suggest.

    The fix is found by these lines, or else by the reason that riglm has.
    """
    lines = tuple(line for line in dict.fromkeys(stderr) if line.strip())
    last = lines[-_MAX_SAID:]
    for pattern, fix in _IN_OUTPUT:
        found = next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), None)
        if found is not None:
            said = last if found in last else (found, *last[1:])
            return said, fix if isinstance(fix, str) else fix(server, found)
    for pattern, fix in _IN_REASONS:
        if re.search(pattern, reason, re.IGNORECASE):
            return last, fix if isinstance(fix, str) else fix(server, reason)
    return last, _first_look(server)


_BATCH_SIZE: Final = 16
_LOGGER: Final = "riglm"
_NOISE: Final = "skipped a line that is no message"
_finding: Final = partial(Finding, DoctorSection.SERVERS)


class ServerOutputLog(logging.Handler):
    """Collects the output of servers from riglm's log, as a context manager; meanwhile nothing else is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._outputs: defaultdict[str, ServerOutput] = defaultdict(ServerOutput)
        self._before = (logging.NOTSET, True)

    def __enter__(self) -> Self:
        logger = logging.getLogger(_LOGGER)
        self._before = (logger.level, logger.propagate)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        """Note what a record quotes of a server."""
        about = record.__dict__
        if "upstream" not in about:
            return
        output = self._outputs[about["upstream"]]
        if record.msg == "stderr":
            output.stderr.append(str(about.get("line", "")).rstrip())
        elif record.msg == _NOISE:
            output.noise += 1
            output.framing = about.get("framing") or output.framing

    def take(self, server: str) -> ServerOutput:
        """Return the output of a server since it was taken last."""
        return self._outputs.pop(server, None) or ServerOutput()


class ServerProber:
    """Probes servers concurrently; a server that is in several configurations is probed once.

    Different servers with the same name are probed one after the other, because output is collected by name.
    """

    def __init__(self, log: ServerOutputLog, seconds: float) -> None:
        """Each probe takes at most `seconds`, and as long again for the server to end."""
        self._log = log
        self._seconds = seconds
        self._capacity = asyncio.Semaphore(_BATCH_SIZE)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._probes: list[tuple[UpstreamSpec, asyncio.Task[ServerProbe]]] = []

    async def probe(self, upstream: UpstreamPort) -> ServerProbe:
        """Return the result of a probe; the first caller keeps it open until then."""
        spec = upstream.spec
        nameless = replace(spec, name="")
        task = next((task for known, task in self._probes if known == nameless), None)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._probe(upstream))
            self._probes.append((nameless, task))
        return replace(await asyncio.shield(task), spec=spec)

    async def _probe(self, upstream: UpstreamPort) -> ServerProbe:
        async with self._turns[upstream.spec.name], self._capacity:
            self._log.take(upstream.spec.name)
            return await probe_server(upstream, self._seconds, self._log.take)


OpenUpstreams = Callable[[], AbstractAsyncContextManager[Sequence[UpstreamPort]]]


async def check_servers(
    open_upstreams: OpenUpstreams,
    prober: ServerProber,
    settings: Settings,
    find_schema_fault: Callable[[Any], str | None],
    client: str = "",
    entry: str = ENTRY,
) -> list[Finding]:
    """Probe all servers at once, and check the tools of those that list them.

    `find_schema_fault`, `client` and `entry` are those of `check_tools`.
    """
    async with open_upstreams() as upstreams:
        probes = await asyncio.gather(*map(prober.probe, upstreams))
    slowest = max((probe.seconds for probe in probes), default=0.0)
    known = support_by_key(client)
    list_timeout = list_timeout_of(known, settings.timeouts.grace, settings.timeouts.list)
    findings: list[Finding] = []
    for probe in probes:
        findings += _check_probe(probe, "upstream" if settings.upstream else f"mcpServers.{probe.spec.name}")
        if not probe.failure and probe.seconds > list_timeout and len(settings.upstream_specs()) > 1:
            findings.append(_slow(probe, list_timeout, slowest, known))
    catalogs = {probe.spec.name: probe.catalog for probe in probes if not probe.failure}
    return [*findings, *check_tools(catalogs, find_schema_fault, settings, client=client, entry=entry)]


_POINTERS: Final = re.compile(r"; riglm's log has (its last words|its standard error with `logging\.level: debug`)")
_FRAMINGS: Final = {
    FRAMED_BY_HEADERS: "frames its messages with Content-Length headers, as the Language Server Protocol does",
    FRAMED_OVER_LINES: "writes a message over several lines of its standard output, or one that is not valid JSON",
}
_ONE_LINE_EACH: Final = (
    "have it write each message as one line of JSON that ends with a line break, as MCP's stdio transport requires"
)


def _check_probe(probe: ServerProbe, key: str) -> Iterator[Finding]:
    name, output = probe.spec.name, probe.output
    if probe.is_starting:
        what = f"{probe.failure}; its first start may download packages"
        yield _finding(Severity.NOTE, name, what, "run `riglm doctor` again later, or with --deadline 300")
    elif probe.failure:
        reason = _POINTERS.sub("", probe.failure).removeprefix(f"upstream {name!r} ")
        said, fix = diagnose(ConfiguredServer(probe.spec, key), reason, output.stderr)
        what = f"{reason}; it said: {' | '.join(said)}" if said else reason
        if output.framing:
            what, fix = f"{reason}: it {_FRAMINGS[output.framing]}", _ONE_LINE_EACH
        yield _finding(Severity.ERROR, name, what, fix)
    else:
        eras = [f"handshake ({probe.revision})"] if probe.revision else []
        eras += ["modern"] if probe.is_modern else []
        count = len(probe.catalog.tools)
        tools = f"{count} tool{'' if count == 1 else 's'}" if probe.has_tools else "no tools, only other things"
        who = f"{probe.server}: " if probe.server else ""
        yield _finding(Severity.OK, name, f"{who}{tools} in {1000 * probe.seconds:.0f} ms; era {' and '.join(eras)}")
        if output.framing:
            yield _finding(Severity.ERROR, name, _FRAMINGS[output.framing], _ONE_LINE_EACH)
    if output.noise and not output.framing:
        lines = "1 line" if output.noise == 1 else f"{output.noise} lines"
        what = f"writes what is no message on its standard output ({lines} until it had listed); riglm skips it"
        yield _finding(Severity.WARNING, name, what, "have it write its log to standard error")


def _slow(probe: ServerProbe, list_timeout: float, slowest: float, client: ClientBehavior | None) -> Finding:
    """Report that a server takes longer than lists wait for it."""
    name, fix = probe.spec.name, f"if it is as slow the next time, set timeouts.grace to {slowest + 1:.0f}"
    what = f"took {probe.seconds:.1f} s: a first list comes without these tools after {list_timeout:g} s"
    if client is None:
        return _finding(Severity.NOTE, name, f"{what}, and a client that does not ask again never sees them", fix)
    if client.follows_changes:
        return _finding(Severity.NOTE, name, f"{what}; {client.title} asks again when they have come", fix)
    fix = f"{fix}, and see that {client.title} waits as long for its first list"
    return _finding(Severity.WARNING, name, f"{what}, and {client.title} never sees them: it ignores later lists", fix)


def check_missing_parts(spec: UpstreamSpec, what: str, fix: str, *, is_program: bool) -> Finding:
    """Report a server that cannot be started; `is_program` is True if its program was not found."""
    return _finding(Severity.ERROR, spec.name, what, how_to_install(spec.command[0]) if is_program else fix)


def check_without_start(spec: UpstreamSpec, fix: str = "") -> Finding:
    """Report a server that could be started and is not; `fix` is how to have it checked."""
    what = "its program is there; it was not started" if spec.kind == "stdio" else f"{spec.place} was not asked"
    return _finding(Severity.NOTE, spec.name, what, fix)
