from dataclasses import replace

import pytest

from riglm.application.setup.doctor.server_checks import ConfiguredServer, diagnose
from riglm.domain.upstream import UpstreamSpec

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
        (COMMAND, "exited with code 1", "ModuleNotFoundError: No module named 'x'", "install what it needs"),
        (COMMAND, "exited with code 1", "ValueError: GITHUB_TOKEN is required", "`mcpServers.one.env`"),
        (
            given(OTHER=""),
            "exited with code 1",
            "GITHUB_TOKEN is required",
            "give it the variable in `mcpServers.one.env`",
        ),
        (given(R9_TOK=""), "exited with code 1", "R9_TOK is required", "set the variable that it comes from"),
        (given(R9_TOK="x"), "exited with code 1", "R9_TOK missing or bad", "correct `mcpServers.one.env.R9_TOK`"),
        (COMMAND, "exited with code 1", "npm error EAI_AGAIN registry", "connect to the network"),
        (COMMAND, "exited with code 125", "docker: Cannot connect to the Docker daemon at unix:", "start Docker"),
        (COMMAND, "cannot run 'npx': No such file or directory", "", "install Node.js"),
        (COMMAND, "was ended by signal 9", "", "run it by hand to see what it lacks: npx -y one"),
        (URL, "refused the credentials (HTTP 401): run `riglm", "", "riglm login one"),
        (URL, "refused the credentials (HTTP 403): see `auth`", "", "set `upstream.auth"),
        (KNOWN, "refused the credentials (HTTP 401): see `auth`", "", "the token was refused"),
        (URL, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "", "SSL_CERT_FILE"),
        (URL, "Cannot connect to https://host: [SSL: WRONG_VERSION_NUMBER] wrong", "", "write http://"),
        (URL, "answered HTTP 404", "", "often /mcp"),
        (URL, "Cannot connect to https://h: [Errno -2] Name or service not known", "", "correct the host"),
        (URL, "did not answer initialize within 30 s", "", "the server's own log"),
        (URL, "something new", "", "the server's own log"),
    ],
)
def test_what_went_wrong_leads_to_what_to_do(server: ConfiguredServer, reason: str, said: str, fix: str) -> None:
    assert fix in diagnose(server, reason, [said])[1]


def test_the_line_that_tells_most_is_told_though_others_came_after_it():
    lines = ("start", "npm error code E404", *(f"npm error {number}" for number in range(5)))
    assert diagnose(COMMAND, "exited", lines)[0] == ("npm error code E404", "npm error 3", "npm error 4")
