"""Checks whether the servers start, how long they take, and which protocol versions they support."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from riglm.application.doctor.check import Check
from riglm.application.doctor.server_probe import ConfiguredServer, ServerProbe, diagnosis, how_to_install, visit
from riglm.application.doctor.tools import ToolsFindings
from riglm.domain.client_support import ClientBehavior, list_timeout_of
from riglm.domain.finding import DoctorSection, Finding, Severity, finding
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES, UpstreamSpec
from riglm.ports.doctor import LogCapturePort, ServerOutput
from riglm.ports.upstream import UpstreamPort

_BATCH_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe, and the server's output outside of the protocol."""

    visit: ServerProbe
    output: ServerOutput


class ServerProber:
    """Probes servers concurrently; a server that is in several configurations is probed once.

    Different servers with the same name are probed one after the other, because output is captured by name.
    """

    def __init__(self, overhearing: LogCapturePort, seconds: float) -> None:
        """Each probe takes at most `seconds`, and as long again for the server to end."""
        self._overhearing = overhearing
        self._seconds = seconds
        self._room = asyncio.Semaphore(_BATCH_SIZE)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._visits: list[tuple[UpstreamSpec, asyncio.Task[ProbeResult]]] = []

    async def visit(self, upstream: UpstreamPort) -> ProbeResult:
        """Return the result of a probe; the first caller keeps it open until then."""
        spec = upstream.spec
        nameless = replace(spec, name="")
        task = next((task for known, task in self._visits if known == nameless), None)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._visited(upstream))
            self._visits.append((nameless, task))
        found = await asyncio.shield(task)
        return ProbeResult(replace(found.visit, spec=spec), found.output)

    async def _visited(self, upstream: UpstreamPort) -> ProbeResult:
        name = upstream.spec.name
        async with self._turns[name], self._room:
            self._overhearing.forget(name)
            first: list[ServerOutput] = []
            found = await visit(upstream, self._seconds, lambda: first.append(self._overhearing.heard(name)))
            return ProbeResult(found, first[0] if first else self._overhearing.heard(name))


_POINTERS: Final = re.compile(r"; riglm's log has (its last words|its standard error with `logging\.level: debug`)")

OpenUpstreams = Callable[[], AbstractAsyncContextManager[Sequence[UpstreamPort]]]


class ServersCheck(Check):
    """Visits all servers at once; what they list is judged by `tools`."""

    sections = (DoctorSection.SERVERS, DoctorSection.TOOLS)

    def __init__(
        self,
        open_all: OpenUpstreams,
        visitor: ServerProber,
        tools: ToolsFindings,
        *,
        timeouts: TimeoutSettings,
        keys: Mapping[str, str],
        client: ClientBehavior | None = None,
    ) -> None:
        """`client` is the one that these servers are for, if it is one that is known.

        `keys` are those under which the servers are configured, by name.
        """
        self._client = client
        self._keys = keys
        self._open_all = open_all
        self._visitor = visitor
        self._tools = tools
        self._list_timeout = list_timeout_of(client, timeouts.grace, timeouts.list)
        self._slowest = 0.0

    async def examine(self) -> Sequence[Finding]:
        async with self._open_all() as upstreams:
            visited = await asyncio.gather(*map(self._visitor.visit, upstreams))
        self._slowest = max((each.visit.seconds for each in visited), default=0.0)
        findings = [finding for each in visited for finding in self._told(each, is_alone=len(self._keys) == 1)]
        return [*findings, *await self._tools.about([each.visit for each in visited if not each.visit.failure])]

    def _told(self, visited: ProbeResult, *, is_alone: bool) -> list[Finding]:
        found, output = visited.visit, visited.output

        def finding(severity: Severity, what: str, fix: str = "") -> Finding:
            return Finding(section=DoctorSection.SERVERS, severity=severity, place=found.spec.name, what=what, fix=fix)

        findings = []
        if found.is_starting:
            what = f"{found.failure}; its first start may download packages"
            findings.append(finding(Severity.NOTE, what, "run `riglm doctor` again later, or with --deadline 300"))
        elif found.failure:
            reason = _POINTERS.sub("", found.failure).removeprefix(f"upstream {found.spec.name!r} ")
            known = diagnosis(ConfiguredServer(found.spec, self._keys[found.spec.name]), reason, output)
            what = f"{reason}; it said: {' | '.join(known.said)}" if known.said else reason
            if output.framing:
                what, known = f"{reason}: it {_FRAMINGS[output.framing]}", known._replace(fix=_ONE_LINE_EACH)
            findings.append(finding(Severity.ERROR, what, known.fix))
        else:
            findings.append(finding(Severity.OK, _greeting(found)))
            if found.seconds > self._list_timeout and not is_alone:
                findings.append(finding(*self._slow(found.seconds)))
            if output.framing:
                findings.append(finding(Severity.ERROR, _FRAMINGS[output.framing], _ONE_LINE_EACH))
        if output.noise and not output.framing:
            lines = "1 line" if output.noise == 1 else f"{output.noise} lines"
            what = f"writes what is no message on its standard output ({lines} until it had listed); riglm skips it"
            findings.append(finding(Severity.WARNING, what, "have it write its log to standard error"))
        return findings

    def _slow(self, seconds: float) -> tuple[Severity, str, str]:
        """What it means that a server takes longer than lists wait for it."""
        what = f"took {seconds:.1f} s: a first list comes without these tools after {self._list_timeout:g} s"
        fix = f"if it is as slow the next time, set timeouts.grace to {self._slowest + 1:.0f}"
        if self._client is None:
            return Severity.NOTE, f"{what}, and a client that does not ask again never sees them", fix
        if self._client.follows_changes:
            return Severity.NOTE, f"{what}; {self._client.title} asks again when they have come", fix
        fix = f"{fix}, and see that {self._client.title} waits as long for its first list"
        return Severity.WARNING, f"{what}, and {self._client.title} never sees them: it does not go by later lists", fix


def _greeting(found: ServerProbe) -> str:
    eras = [f"handshake ({found.revision})"] if found.revision else []
    eras += ["modern"] if found.is_modern else []
    count = len(found.catalog.tools)
    tools = f"{count} tool{'' if count == 1 else 's'}" if found.has_tools else "no tools, only other things"
    who = f"{found.server}: " if found.server else ""
    return f"{who}{tools} in {1000 * found.seconds:.0f} ms; era {' and '.join(eras)}"


_FRAMINGS: Final = {
    FRAMED_BY_HEADERS: "frames its messages with Content-Length headers, as the Language Server Protocol does",
    FRAMED_OVER_LINES: "writes a message over several lines of its standard output, or one that is not valid JSON",
}
_ONE_LINE_EACH: Final = (
    "have it write each message as one line of JSON that ends with a line break, as MCP's stdio transport requires"
)
_finding: Final = partial(finding, DoctorSection.SERVERS)


class UnstartableServer(NamedTuple):
    """A server that cannot be started, with the reason and the fix; `is_program` is True if no program was found."""

    spec: UpstreamSpec
    what: str
    fix: str
    is_program: bool


class SkippedServersCheck(Check):
    """Reports on servers without starting them."""

    sections = (DoctorSection.SERVERS,)

    def __init__(self, missing: Sequence[UnstartableServer], skipped: Sequence[UpstreamSpec], *, fix: str = "") -> None:
        """`missing` cannot be started, `skipped` could; `fix` is how to check the latter."""
        self._missing = missing
        self._skipped = skipped
        self._fix = fix

    async def examine(self) -> Sequence[Finding]:
        broken = [_finding(Severity.ERROR, each.spec.name, each.what, _fix(each)) for each in self._missing]
        return [*broken, *(_finding(Severity.NOTE, spec.name, _words(spec), self._fix) for spec in self._skipped)]


def _fix(missing: UnstartableServer) -> str:
    return how_to_install(missing.spec.command[0]) if missing.is_program else missing.fix


def _words(spec: UpstreamSpec) -> str:
    return "its program is there; it was not started" if spec.kind == "stdio" else f"{spec.place} was not asked"
