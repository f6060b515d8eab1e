from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from riglm.application.setup.doctor.server_checks import (
    ProbeResult,
    ServerOutput,
    ServerProbe,
    ServerProber,
    check_servers,
)
from riglm.domain.client_support import support_by_key
from riglm.domain.finding import Finding, Severity
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES, UpstreamSpec


class Told(ServerProber):
    """Comes back from visits that took so long."""

    def __init__(self, seconds: dict[str, float], output: ServerOutput) -> None:
        self._took = seconds
        self._output = output

    async def probe(self, upstream: Any) -> ProbeResult:
        spec = UpstreamSpec(name=upstream, kind="stdio", command=("true",))
        return ProbeResult(ServerProbe(spec=spec, seconds=self._took[upstream]), self._output)


async def examined(client: str, *seconds: float, output: ServerOutput | None = None) -> Sequence[Finding]:
    took = {f"slow{number or ''}": each for number, each in enumerate(seconds)}

    @asynccontextmanager
    async def opened() -> Any:
        yield list(took)

    keys = {name: f"mcpServers.{name}" for name in (*took, "other")}
    known = support_by_key(client)
    prober = Told(took, output or ServerOutput())
    found = await check_servers(opened, prober, lambda _: iter(()), timeouts=TimeoutSettings(), keys=keys, client=known)
    return [each for each in found if each.severity is not Severity.OK]


@pytest.mark.parametrize(
    ("client", "seconds", "severity"),
    [
        ("codex", 2.5, Severity.WARNING),
        ("claude-desktop", 11.0, Severity.WARNING),
        ("claude-code", 2.5, Severity.NOTE),
        ("", 11.0, Severity.NOTE),
    ],
)
async def test_a_server_slower_than_its_client_s_lists_wait_is_told(
    client: str, seconds: float, severity: Severity
) -> None:
    (found,) = await examined(client, seconds)
    assert found.severity is severity
    assert f"set timeouts.grace to {seconds + 1:.0f}" in found.fix


async def test_several_slow_servers_lead_to_one_value_of_the_grace() -> None:
    found = await examined("codex", 2.5, 11.0, 4.0)
    assert len(found) == 3
    assert {each.fix.partition("timeouts.grace to ")[2].partition(",")[0] for each in found} == {"12"}


@pytest.mark.parametrize(
    ("framing", "words"), [(FRAMED_BY_HEADERS, "Content-Length headers"), (FRAMED_OVER_LINES, "over several lines")]
)
async def test_a_framing_that_mcp_does_not_have_is_an_error_with_a_fix(framing: str, words: str) -> None:
    (found,) = await examined("codex", 0.1, output=ServerOutput(noise=3, framing=framing))
    assert found.severity is Severity.ERROR
    assert words in found.what
    assert "one line of JSON" in found.fix
