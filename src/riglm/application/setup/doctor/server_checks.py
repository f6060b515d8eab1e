"""Checks of servers: whether they start, how long they take, and which protocol versions they support."""

import asyncio
import logging
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, Self

from riglm.application.setup.doctor.server_failures import ConfiguredServer, diagnose, how_to_install
from riglm.application.setup.doctor.server_probe import ServerProbe, probe_server
from riglm.domain.client_support import ClientBehavior, list_timeout_of
from riglm.domain.finding import DoctorSection, Finding, Severity
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.tool import ToolCatalog
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES, UpstreamSpec
from riglm.ports.upstream import UpstreamPort

_BATCH_SIZE: Final = 16
_MAX_LINES: Final = 10
_LOGGER: Final = "riglm"
_NOISE: Final = "skipped a line that is no message"
_finding: Final = partial(Finding, DoctorSection.SERVERS)


@dataclass(slots=True)
class ServerOutput:
    """Output of a server outside of the protocol: the last lines of its standard error, and what else is on stdout.

    `noise` counts the lines on stdout that were no messages. `framing` is `FRAMED_BY_HEADERS` or `FRAMED_OVER_LINES` if
    such a line showed that.
    """

    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    noise: int = 0
    framing: str = ""


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


class ProbeResult(NamedTuple):
    """The result of a probe, and the server's output until it had listed its tools."""

    probe: ServerProbe
    output: ServerOutput


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
        self._probes: list[tuple[UpstreamSpec, asyncio.Task[ProbeResult]]] = []

    async def probe(self, upstream: UpstreamPort) -> ProbeResult:
        """Return the result of a probe; the first caller keeps it open until then."""
        spec = upstream.spec
        nameless = replace(spec, name="")
        task = next((task for known, task in self._probes if known == nameless), None)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._probe(upstream))
            self._probes.append((nameless, task))
        found = await asyncio.shield(task)
        return found._replace(probe=replace(found.probe, spec=spec))

    async def _probe(self, upstream: UpstreamPort) -> ProbeResult:
        name = upstream.spec.name
        async with self._turns[name], self._capacity:
            self._log.take(name)
            first: list[ServerOutput] = []
            found = await probe_server(upstream, self._seconds, lambda: first.append(self._log.take(name)))
            return ProbeResult(found, first[0] if first else self._log.take(name))


OpenUpstreams = Callable[[], AbstractAsyncContextManager[Sequence[UpstreamPort]]]


async def check_servers(
    open_upstreams: OpenUpstreams,
    prober: ServerProber,
    check_catalogs: Callable[[Mapping[str, ToolCatalog]], Iterator[Finding]],
    *,
    timeouts: TimeoutSettings,
    keys: Mapping[str, str],
    client: ClientBehavior | None = None,
) -> list[Finding]:
    """Probe all servers at once; `check_catalogs` reports on the tools of those that list them.

    `keys` are those under which the servers are configured, by name. `client` is the one that these servers are for, if
    it is known.
    """
    async with open_upstreams() as upstreams:
        results = await asyncio.gather(*map(prober.probe, upstreams))
    slowest = max((each.probe.seconds for each in results), default=0.0)
    list_timeout = list_timeout_of(client, timeouts.grace, timeouts.list)
    findings: list[Finding] = []
    for probe, output in results:
        findings += _check_probe(probe, output, keys[probe.spec.name])
        if not probe.failure and probe.seconds > list_timeout and len(keys) > 1:
            findings.append(_slow(probe, list_timeout, slowest, client))
    return [*findings, *check_catalogs({each.spec.name: each.catalog for each, _ in results if not each.failure})]


_POINTERS: Final = re.compile(r"; riglm's log has (its last words|its standard error with `logging\.level: debug`)")
_FRAMINGS: Final = {
    FRAMED_BY_HEADERS: "frames its messages with Content-Length headers, as the Language Server Protocol does",
    FRAMED_OVER_LINES: "writes a message over several lines of its standard output, or one that is not valid JSON",
}
_ONE_LINE_EACH: Final = (
    "have it write each message as one line of JSON that ends with a line break, as MCP's stdio transport requires"
)


def _check_probe(probe: ServerProbe, output: ServerOutput, key: str) -> Iterator[Finding]:
    name = probe.spec.name
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
