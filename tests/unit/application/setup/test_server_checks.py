from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from riglm.adapters.doctor import find_schema_fault
from riglm.application.setup.server_checks import (
    ConfiguredServer,
    ServerOutput,
    ServerProbe,
    ServerProber,
    check_servers,
    diagnose,
    probe_server,
)
from riglm.domain import jsonrpc
from riglm.domain.doctor import Finding, Severity
from riglm.domain.schemas.settings import Settings
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES, UpstreamSpec
from tests.unit.application.fakes import Server, asks, opened, tools


class Told(ServerProber):
    """Comes back from visits that took so long."""

    def __init__(self, seconds: dict[str, float], output: ServerOutput) -> None:
        self._took = seconds
        self._output = output

    async def probe(self, upstream: Any) -> ServerProbe:
        spec = UpstreamSpec(name=upstream, kind="stdio", command=("true",))
        return ServerProbe(spec=spec, seconds=self._took[upstream], output=self._output)


async def examined(client: str, *seconds: float, output: ServerOutput | None = None) -> Sequence[Finding]:
    took = {f"slow{number or ''}": each for number, each in enumerate(seconds)}

    @asynccontextmanager
    async def opened() -> Any:
        yield list(took)

    settings = Settings.model_validate({"mcpServers": {name: {"command": "true"} for name in (*took, "other")}})
    prober = Told(took, output or ServerOutput())
    found = await check_servers(opened, prober, settings, find_schema_fault, client)
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


COMMAND = ConfiguredServer(UpstreamSpec(name="one", kind="stdio", command=("npx", "-y", "one")), "mcpServers.one")
URL = ConfiguredServer(UpstreamSpec(name="one", kind="http", url="https://host/mcp"), "upstream")
KNOWN = ConfiguredServer(
    UpstreamSpec(name="one", kind="http", url="https://host/mcp", headers={"Authorization": "x"}), "upstream"
)


def given(**env: str) -> ConfiguredServer:
    return COMMAND._replace(spec=replace(COMMAND.spec, env=env))


@pytest.mark.parametrize(
    ("server", "reason", "said", "fix"),
    [
        (COMMAND, "exited with code 1", "npm error code E404", "correct the name of the package"),
        (COMMAND, "exited with code 1", "Error: listen EADDRINUSE: address already in use :::3000", "end the other"),
        (COMMAND, "exited with code 1", "ValueError: GITHUB_TOKEN is required", "`mcpServers.one.env`"),
        (
            given(OTHER=""),
            "exited with code 1",
            "GITHUB_TOKEN is required",
            "give it the variable in `mcpServers.one.env`",
        ),
        (given(R9_TOK=""), "exited with code 1", "R9_TOK is required", "set the variable that it comes from"),
        (given(R9_TOK="x"), "exited with code 1", "R9_TOK missing or bad", "correct `mcpServers.one.env.R9_TOK`"),
        (COMMAND, "exited with code 125", "docker: Cannot connect to the Docker daemon at unix:", "start Docker"),
        (COMMAND, "cannot run 'npx': No such file or directory", "", "install Node.js"),
        (COMMAND, "was ended by signal 9", "", "run it by hand to see what it lacks: npx -y one"),
        (URL, "refused the credentials (HTTP 401): run `riglm", "", "riglm login one"),
        (URL, "refused the credentials (HTTP 403): see `auth`", "", "set `upstream.auth"),
        (KNOWN, "refused the credentials (HTTP 401): see `auth`", "", "the token was refused"),
        (URL, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "", "SSL_CERT_FILE"),
        (URL, "answered HTTP 404", "", "often /mcp"),
        (URL, "did not answer initialize within 30 s", "", "the server's own log"),
    ],
)
def test_what_went_wrong_leads_to_what_to_do(server: ConfiguredServer, reason: str, said: str, fix: str) -> None:
    assert fix in diagnose(server, reason, [said])[1]


def test_the_line_that_tells_most_is_told_though_others_came_after_it():
    lines = ("start", "npm error code E404", *(f"npm error {number}" for number in range(5)))
    assert diagnose(COMMAND, "exited", lines)[0] == ("npm error code E404", "npm error 3", "npm error 4")


# --- doctor's probe of one server ---


@pytest.mark.parametrize(
    ("method", "code"),
    [("ping", None), ("roots/list", -32601), ("sampling/createMessage", -32601), ("vendor/unknown", -32601)],
)
@pytest.mark.parametrize("own", ["initialize", "tools/list", "server/discover"])
async def test_a_server_that_asks_during_the_probe_is_answered_by_riglm(own, method, code):
    answers = {"initialize": opened("tools"), "tools/list": tools("t"), "server/discover": b'{"supportedVersions":[]}'}
    server, said = Server("a", answers), []

    def asking(asked):
        link = server.shared if own == "server/discover" else server.link
        asked.says(asks(5, method).line)
        said.append(jsonrpc.decode(link.sent[-1]))
        asked.result(answers[own])

    server.answers[own] = asking
    found = await probe_server(server, 5.0, lambda _: ServerOutput())
    assert (found.failure, found.catalog.names) == ("", ("t",))
    assert [(answer.id, jsonrpc.error_code(answer)) for answer in said] == [(b"5", code)]
