import pytest

from riglm.domain.upstream import UpstreamSpec, derive_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-memory@1.2"], "server-memory"),
        (["uvx", "mcp-server-git==2.0"], "mcp-server-git"),
        (["uv", "tool", "run", "mcp-server-time"], "mcp-server-time"),
        (["python3.11", "-m", "my_server"], "my_server"),
        (["/usr/bin/node", "/srv/build/index.mjs"], "srv-index"),
        (["node", "/srv/notes/dist/index.js"], "notes-index"),
        (["python3", "./server.py"], "server"),
        (["/opt/notes/bin/server"], "notes-server"),
        (["docker", "run", "-i", "--rm", "ghcr.io/github/server:latest"], "github-server"),
        (["/opt/My Server!"], "My-Server"),
        (["npx"], "npx"),
        (["???"], "upstream"),
        ([], "upstream"),
    ],
)
def test_a_nameless_command_is_called_after_its_package_or_program(command: list[str], name: str) -> None:
    assert derive_name(command) == name


def test_a_nameless_url_is_called_after_its_host() -> None:
    assert derive_name((), "https://me:pw@mcp.example.org:8443/mcp") == "mcp.example.org"
    assert derive_name((), "http:///") == "upstream"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_nameless_url_of_this_machine_is_called_after_its_port_too(host: str) -> None:
    assert derive_name((), f"http://{host}:8001/mcp") == f"{host}-8001"
    assert derive_name((), f"http://{host}/mcp") == host


def test_the_place_of_a_server_holds_no_secret() -> None:
    http = UpstreamSpec(name="a", kind="http", url="https://h/p?key=canary", headers={"X": "canary"})
    stdio = UpstreamSpec(name="b", kind="stdio", command=("srv", "--token", "canary"), env={"K": "canary"})
    assert (http.place, stdio.place) == ("https://h/p?***", "srv")
    assert "canary" not in repr((http, stdio))
