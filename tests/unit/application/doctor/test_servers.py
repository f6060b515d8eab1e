from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from riglm.adapters.doctor import JsonSchemaValidator
from riglm.application.doctor.server_probe import ServerProbe
from riglm.application.doctor.servers import ProbeResult, ServerProber, ServersCheck
from riglm.application.doctor.tools import ToolsFindings
from riglm.domain.client_support import support_by_key
from riglm.domain.finding import Finding, Severity
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.doctor import ServerOutput


class Told(ServerProber):
    """Comes back from a visit that took so long."""

    def __init__(self, seconds: float) -> None:
        self._took = seconds

    async def visit(self, upstream: Any) -> ProbeResult:
        spec = UpstreamSpec(name=upstream, kind="stdio", command=("true",))
        return ProbeResult(ServerProbe(spec=spec, seconds=self._took), ServerOutput())


async def examined(client: str, seconds: float) -> Sequence[Finding]:
    @asynccontextmanager
    async def opened() -> Any:
        yield ["slow"]

    tools = ToolsFindings(
        JsonSchemaValidator(), naming="prefix", filtering=FilteringSettings(), client=client, is_alone=False
    )
    keys = {"slow": "mcpServers.slow", "other": "mcpServers.other"}
    known = support_by_key(client)
    check = ServersCheck(opened, Told(seconds), tools, timeouts=TimeoutSettings(), keys=keys, client=known)
    return [each for each in await check.examine() if "took" in each.what]


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


@pytest.mark.parametrize("client", ["", "claude-desktop"])
async def test_a_server_that_comes_in_time_for_a_client_that_lists_once_is_no_finding(client: str) -> None:
    assert await examined(client, 2.5) == []
