"""Runs of the suite: against a server or with a client, directly or through riglm."""

import json
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.cache import import_path
from benchmarks.conformance.comparison import Checks
from benchmarks.conformance.judged import Judged
from benchmarks.conformance.kit import Kit
from benchmarks.process import Process, free_port, listens

Role = Literal["server", "client", "auth"]
Way = Literal["direct", "http", "stdio"]

SPECS = ("2025-11-25", "2026-07-28")

_SIGN_IN = tuple(
    f"auth/{name}"
    for name in (
        "metadata-default",
        "metadata-var1",
        "metadata-var2",
        "metadata-var3",
        "basic-cimd",
        "scope-from-www-authenticate",
        "scope-from-scopes-supported",
        "scope-omitted-when-undefined",
        "scope-step-up",
        "scope-retry-limit",
        "token-endpoint-auth-basic",
        "token-endpoint-auth-post",
        "token-endpoint-auth-none",
        "pre-registration",
        "client-credentials-jwt",
        "client-credentials-basic",
        "enterprise-managed-authorization",
    )
)

# In the client role riglm is judged by what it sends to its upstream: headers, _meta, retries. In the auth role it is
# judged by how it signs in; the reference client fails auth/dpop, auth/dpop-nonce and auth/wif-jwt-bearer.
SCENARIOS = {
    ("client", "2025-11-25"): (
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "json-schema-2020-12-preservation",
    ),
    ("client", "2026-07-28"): (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ),
    ("auth", "2025-11-25"): (
        *_SIGN_IN,
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/2025-03-26-oauth-endpoint-fallback",
    ),
    ("auth", "2026-07-28"): (
        *_SIGN_IN,
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
    ),
}

_SCENARIO_SECONDS = 60
_SUITE_SECONDS = 540
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\dZ-]+$")


@dataclass(frozen=True, slots=True)
class Leg:
    """One run: the suite plays the other side of `role`; `way` is `direct`, or how riglm reaches its upstream."""

    role: Role
    spec: str
    way: Way

    def __str__(self) -> str:
        return f"{self.role}-{self.spec}-{self.way}"


def run(leg: Leg, kit: Kit, judged: Judged, directory: Path) -> Checks:
    """Run a leg; what it leaves behind is in `directory`.

    Raises:
        StartFailed: a server or riglm did not start.
        subprocess.TimeoutExpired: the suite hung.
    """
    directory.mkdir(parents=True)
    return (
        _at_server(leg, kit, judged, directory) if leg.role == "server" else _with_client(leg, kit, judged, directory)
    )


def _at_server(leg: Leg, kit: Kit, judged: Judged, directory: Path) -> Checks:
    with ExitStack() as stack:
        port, upstream = 0, ["--", *kit.server_on_stdio()]
        if leg.way != "stdio":
            port = free_port()
            server = Process(kit.server_on_http(port), directory / "server.log", directory=kit.server)
            stack.callback(server.stop)
            server.wait_until(lambda: listens(port))
            upstream = ["--url", f"http://127.0.0.1:{port}/mcp"]
        if leg.way != "direct":
            served = judged.served(upstream, directory / "riglm")
            stack.callback(served.process.stop)
            port = served.port
        # The scenario on DNS rebinding asks for localhost.
        _suite(leg, kit, directory, "server", "--url", f"http://localhost:{port}/mcp", "--suite", "all")
    found = sorted(directory.glob("server-*/checks.json"))
    return {_STAMP.sub("", file.parent.name.removeprefix("server-")): json.loads(file.read_text()) for file in found}


def _with_client(leg: Leg, kit: Kit, judged: Judged, directory: Path) -> Checks:
    client = kit.client
    if leg.way != "direct":
        via = [
            sys.executable,
            "-m",
            "benchmarks.conformance.via",
            str(directory),
            judged.filtering,
            shlex.join(judged.command),
        ]
        client = [*via, *kit.client]
    checks = {}
    for scenario in SCENARIOS[leg.role, leg.spec]:
        to = directory / scenario
        # Extensions and the 2025-03-26 fallbacks belong to neither protocol version, and run only if forced.
        _suite(leg, kit, to, "client", "--command", shlex.join(client), "--scenario", scenario, "--force")
        for file in to.rglob("checks.json"):
            checks[scenario] = json.loads(file.read_text())
    return checks


def _suite(leg: Leg, kit: Kit, directory: Path, *arguments: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    limits = ["--timeout", str(_SCENARIO_SECONDS * 1000), "--spec-version", leg.spec, "--output-dir", str(directory)]
    with (directory / "suite.log").open("wb") as log:
        subprocess.run(
            [*kit.suite, *arguments, *limits],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=kit.environment() | {"PYTHONPATH": import_path()},
            timeout=_SUITE_SECONDS,
        )
