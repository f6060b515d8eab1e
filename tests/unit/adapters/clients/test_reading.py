from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.clients.files import ClientFiles
from riglm.adapters.clients.reading import understood
from riglm.domain.installation import ClientServer, Place, name_behind

HOME = Path("/home/me")


def read(client: str, entry: Any, project: Path | None = None) -> ClientServer:
    place = Place(client=client, file=Path("f.json"), path=("mcpServers",), project=project)
    return understood(place, "it", entry, HOME)


@pytest.mark.parametrize(
    ("client", "entry", "why"),
    [
        ("cursor", "npx it", "not written as a server"),
        ("codex", {"command": "sh", "enabled": False}, "switched off"),
        ("zed", {"settings": {}}, "neither a command nor a URL"),
        ("claude-code", {"type": "ws", "url": "ws://h"}, "'ws'"),
        ("windsurf", {"command": "sh", "disabledTools": ["rm"]}, "`disabledTools`"),
        ("codex", {"command": "sh", "enabled_tools": ["ls"]}, "`enabled_tools`"),
        ("codex", {"command": "sh", "tools": {"rm": {"approval_mode": "prompt"}}}, "`tools` limits"),
        ("gemini", {"url": "https://h/mcp", "headers": {"A": "b"}, "authProviderType": "google"}, "`authProviderType`"),
        ("claude-code", {"type": "http", "url": "https://h/mcp", "headersHelper": "it"}, "`headersHelper`"),
        ("vscode", {"command": "sh", "envFile": ".env"}, "`envFile`"),
        ("vscode", {"command": "sh", "env": {"K": "${input:key}"}}, "${input:key}"),
        ("vscode", {"command": "sh", "args": ["${config:a.b}"]}, "${config:a.b}"),
        ("windsurf", {"command": "sh", "env": {"K": "${file:/k}"}}, "${file:/k}"),
        ("opencode", {"type": "local", "command": ["sh", "{file:k}"]}, "{file:k}"),
        ("claude-desktop", {"command": "sh", "args": ["${HOME}"]}, "takes ${HOME} as it is written"),
        ("cursor", {"url": "https://mcp.example.com/mcp"}, "sign in"),
        ("cursor", {"url": "http://[h"}, "cannot be read"),
        ("codex", {"command": "sh", "env_vars": [{"name": "T", "source": "remote"}]}, "`env_vars`"),
    ],
)
def test_what_riglm_could_not_stand_in_for_stays_with_a_word(client: str, entry: Any, why: str) -> None:
    found = read(client, entry)
    assert found.definition is None
    assert why in found.obstacle


@pytest.mark.parametrize(
    ("client", "entry", "definition"),
    [
        ("cursor", {"url": "https://h/mcp?key=1"}, {"url": "https://h/mcp?key=1"}),
        ("gemini", {"httpUrl": "http://localhost/mcp"}, {"type": "http", "url": "http://localhost/mcp"}),
        ("windsurf", {"serverUrl": "http://localhost/sse"}, {"url": "http://localhost/sse"}),
        ("cline", {"type": "streamableHttp", "url": "http://[::1]/"}, {"type": "http", "url": "http://[::1]/"}),
        ("gemini", {"command": "sh", "args": ["$A-${B}"]}, {"command": "sh", "args": ["${A:-}-${B:-}"]}),
        ("claude-code", {"command": "${BIN}", "args": ["$A"]}, {"command": "${BIN:-BIN is not set}", "args": ["$A"]}),
        (
            "opencode",
            {"type": "local", "command": ["sh", "x"], "environment": {"K": "{env:K}", "N": 1, "B": True}},
            {"command": "sh", "args": ["x"], "env": {"K": "${K:-}", "N": "1", "B": "true"}},
        ),
        (
            "codex",
            {"url": "https://h", "env_http_headers": {"X-K": "KEY"}},
            {"url": "https://h", "headers": {"X-K": "${KEY:-}"}},
        ),
    ],
)
def test_a_server_means_the_same_in_the_words_of_riglm(client: str, entry: Any, definition: dict[str, Any]) -> None:
    found = read(client, entry)
    assert (found.obstacle, found.definition) == ("", definition)


def test_the_folder_of_a_project_is_known_and_what_the_client_alone_understands_is_named() -> None:
    entry = {"command": "sh", "args": ["${workspaceFolder}/s.js", "${/}"], "cwd": "${workspaceFolder}", "dev": {"w": 1}}
    found = read("vscode", entry, Path("/work/app"))
    assert found.definition == {"command": "sh", "args": ["/work/app/s.js", "/"], "cwd": "/work/app"}
    assert found.unused == ("dev",)


def test_gemini_lists_of_names_are_heeded() -> None:
    place = Place(client="gemini", file=Path("settings.json"), path=("mcpServers",))
    files = ClientFiles(environment={}, home=HOME, platform="linux")
    servers = '"mcpServers": {"a": {"command": "sh"}, "b": {"command": "sh"}}'

    def obstacles(mcp: str) -> list[str]:
        found = files.servers(place, f'{{"mcp": {mcp}, {servers}}}'.encode())
        return [server.obstacle.partition(" ")[0] for server in found]

    assert obstacles('{"excluded": ["b"]}') == ["", "`mcp.excluded`"]
    assert obstacles('{"allowed": ["b"]}') == ["`mcp.allowed`"] * 2


def test_long_waits_go_along_and_short_ones_do_not() -> None:
    place = Place(client="codex", file=Path("config.toml"), path=("mcp_servers",))
    files = ClientFiles(environment={}, home=HOME, platform="linux")
    content = b'[mcp_servers.a]\ncommand = "sh"\nstartup_timeout_sec = 5\ntool_timeout_sec = 600\n'
    (server,) = files.servers(place, content)
    assert server.waits == {"startup_timeout_sec": 5, "tool_timeout_sec": 600}
    after = files.with_riglm(place, content, ["a"], entry="riglm", starts=["/r"], waits=server.waits)
    assert after == b'[mcp_servers.riglm]\ncommand = "/r"\nargs = []\ntool_timeout_sec = 600\n'


def test_what_claude_code_says_of_servers_elsewhere_is_told(tmp_path: Path) -> None:
    project = tmp_path / "app"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.local.json").write_text('{"disabledMcpjsonServers": ["b"]}', "utf-8")
    (tmp_path / ".claude").mkdir()
    rules = '{"permissions": {"allow": ["Bash(ls)", "mcp__a__read", "mcp__bb"], "deny": ["mcp__d__rm"]}}'
    (tmp_path / ".claude" / "settings.json").write_text(rules, "utf-8")
    own = f'{{"projects": {{"{project}": {{"disabledMcpServers": ["a"], "disabledMcpjsonServers": ["c"]}}}}}}'
    (tmp_path / ".claude.json").write_text(own, "utf-8")
    files = ClientFiles(environment={}, home=tmp_path, platform="linux")
    user = Place(client="claude-code", file=tmp_path / ".claude.json", path=("mcpServers",))
    permitted, off = files.remarks(user, ["a", "b"], "riglm")
    assert "permission rules name the tools of a as mcp__a__" in permitted
    assert off == f"switched off in {project} and not so behind riglm: a"
    place = Place(client="claude-code", file=project / ".mcp.json", path=("mcpServers",), project=project)
    content = b'{"mcpServers": {"a": {"command": "sh"}, "b": {"command": "sh"}, "c": {"command": "sh"}}}'
    assert [bool(server.obstacle) for server in files.servers(place, content)] == [False, True, True]
    (denied,) = files.servers(user, b'{"mcpServers": {"d": {"command": "sh"}}}')
    assert denied.obstacle.startswith("`permissions.deny` has rules for its tools")


def test_rules_of_opencode_for_tools_by_name_keep_their_server_where_they_hold() -> None:
    place = Place(client="opencode", file=Path("opencode.json"), path=("mcp",))
    files = ClientFiles(environment={}, home=HOME, platform="linux")
    servers = '"mcp": {"a": {"type": "local", "command": ["sh"]}, "b": {"type": "local", "command": ["sh"]}}'
    for rules in ('"tools": {"a_*": false}', '"agent": {"x": {"permission": {"a_rm": "ask"}}}'):
        found = files.servers(place, f"{{{servers}, {rules}}}".encode())
        assert [bool(server.obstacle) for server in found] == [True, False]


def test_names_that_riglm_does_not_take_are_made_so_and_stay_apart() -> None:
    assert [name_behind(name, ["x"]) for name in ("a b", "riglm", "x", "é", "a__b", "-", "n" * 99)] == [
        "a-b",
        "riglm-server",
        "x-2",
        "server",
        "a_b",
        "server",
        "n" * 48,
    ]
