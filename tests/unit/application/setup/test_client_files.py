import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.clients.places import SafeFiles, find_files
from riglm.application.setup.client_entries import parse_entry
from riglm.application.setup.client_files import ClientFiles
from riglm.application.setup.client_rules import ClaudeCodeRules
from riglm.domain.client_setup import ClientServer, ConfigLocation
from riglm.domain.client_support import FORMATS

HOME = Path("/home/me")


def make_files(home: Path = HOME) -> ClientFiles:
    find = partial(find_files, platform="linux", environment={}, home=home)
    return ClientFiles(find, SafeFiles().read, home=home, environment={}, platform="linux")


def read(client: str, entry: Any, project: Path | None = None) -> ClientServer:
    place = ConfigLocation(client=client, file=Path("f.json"), path=("mcpServers",), project=project)
    return parse_entry(place, "it", entry, HOME)


@pytest.mark.parametrize(
    ("client", "entry", "why"),
    [
        ("cursor", "npx it", "not written as a server"),
        ("codex", {"command": "sh", "enabled": False}, "disabled"),
        ("zed", {"settings": {}}, "neither a command nor a URL"),
        ("claude-code", {"type": "ws", "url": "ws://h"}, "'ws'"),
        ("codex", {"command": "sh", "tools": {"rm": {"approval_mode": "prompt"}}}, "`tools` limits"),
        ("gemini", {"url": "https://h/mcp", "headers": {"A": "b"}, "authProviderType": "google"}, "`authProviderType`"),
        ("vscode", {"command": "sh", "envFile": ".env"}, "`envFile`"),
        ("vscode", {"command": "sh", "env": {"K": "${input:key}"}}, "${input:key}"),
        ("opencode", {"type": "local", "command": ["sh", "{file:k}"]}, "{file:k}"),
        ("claude-desktop", {"command": "sh", "args": ["${HOME}"]}, "takes ${HOME} as it is written"),
        ("claude-code", {"type": "http", "url": "https://h/mcp", "oauth": {"callbackPort": 8}}, "`callbackPort`"),
        ("cursor", {"url": "http://[h"}, "cannot be read"),
        ("codex", {"command": "sh", "env_vars": [{"name": "T", "source": "remote"}]}, "`env_vars`"),
        ("cursor", {"command": "sh", "args": True}, "its `args` is not a list of texts"),
        ("zed", {"command": {"path": "sh", "env": {"A": {"b": "c"}}}}, "its `env` does not give names with texts"),
        ("opencode", {"type": "local", "command": ["sh", True]}, "its `command` is not a list of texts"),
        ("cursor", {"command": "sh", "env": ["A=b"]}, "its `env` does not give names with texts"),
        ("cursor", {"url": True}, "its `url` is not a text"),
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
        *(
            ("cursor", {"url": "https://h/mcp", "auth": auth}, {"url": "https://h/mcp"})
            for auth in ("oauth", True, False, {"type": "oauth"}, {"enabled": True})
        ),
        ("gemini", {"httpUrl": "http://localhost/mcp"}, {"type": "http", "url": "http://localhost/mcp"}),
        ("windsurf", {"serverUrl": "http://localhost/sse"}, {"url": "http://localhost/sse"}),
        ("cline", {"type": "streamableHttp", "url": "http://[::1]/"}, {"type": "http", "url": "http://[::1]/"}),
        ("gemini", {"command": "sh", "args": ["$A-${B}"]}, {"command": "sh", "args": ["${A:-}-${B:-}"]}),
        ("claude-code", {"command": "${BIN}", "args": ["$A"]}, {"command": "${BIN:-BIN is not set}", "args": ["$A"]}),
        ("cursor", {"command": "sh", "args": None, "env": None, "url": None}, {"command": "sh"}),
        ("cursor", {"command": "sh", "args": ["-p", 80]}, {"command": "sh", "args": ["-p", "80"]}),
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


OPENING = ("initialize", "list")
ALL = (*OPENING, "call")


@pytest.mark.parametrize(
    ("client", "given", "seconds"),
    [
        (
            "codex",
            {"startup_timeout_sec": 120, "tool_timeout_sec": 3600},
            {"initialize": 120, "list": 120, "call": 3600},
        ),
        ("codex", {"startup_timeout_sec": 20, "startup_timeout_ms": 90_000}, dict.fromkeys(OPENING, 20)),
        ("codex", {"startup_timeout_sec": 0, "tool_timeout_sec": True}, {}),
        ("cline", {"timeout": 600}, {"call": 600}),
        ("gemini", {"timeout": 1_800_000}, dict.fromkeys(ALL, 1800)),
        ("gemini", {"timeout": 10**400}, {}),
        ("qwen", {"discoveryTimeoutMs": 120_000}, dict.fromkeys(OPENING, 120)),
        ("opencode", {"timeout": 45_000}, dict.fromkeys(ALL, 45)),
        ("opencode", {"timeout": {"startup": 90_000, "request": 60_000}}, {"initialize": 90, "list": 90, "call": 60}),
        ("crush", {"timeout": 120}, dict.fromkeys(OPENING, 120)),
        ("claude-code", {"timeout": 500}, {}),
        ("cline", {"timeout": 10**9}, {"call": 31_536_000}),
    ],
)
def test_timeouts_of_an_entry_become_those_of_the_server(
    client: str, given: dict[str, Any], seconds: dict[str, float]
) -> None:
    found = read(client, {"command": ["sh"] if client == "opencode" else "sh", **given})
    assert found.definition is not None
    assert found.definition.get("timeouts", {}) == seconds
    assert found.unused == ()
    place = ConfigLocation(client=client, file=Path("f.toml" if client == "codex" else "f.json"), path=("servers",))
    content = b'[servers.a]\ncommand = "sh"\n' if client == "codex" else b'{"servers": {"a": {"command": "sh"}}}'
    files = make_files()
    after = files.with_riglm(place, content, ["a"], entry="riglm", starts=["/r"], waits=found.waits)
    (entry,) = files.servers(place, after)
    known = FORMATS[client].timeouts
    for key, timeout in known.items():
        if key in found.waits and found.waits[key] > timeout.default:
            assert entry.waits[key] >= found.waits[key]


@pytest.mark.parametrize(
    ("timeouts", "written"),
    [
        ([900_000, {"startup": 45_000, "request": 700_000}], {"startup": 900_000, "request": 900_000}),
        ([{"request": 900_000}, 40_000, {"startup": 50_000}], {"startup": 50_000, "request": 900_000}),
        ([7_000, {"startup": 45_000}], {"startup": 45_000}),
        ([900_000, 600_000], {"startup": 900_000, "request": 900_000}),
    ],
)
def test_an_entry_of_opencode_waits_as_long_as_the_longest_form(timeouts: list[Any], written: Any) -> None:
    place = ConfigLocation(client="opencode", file=Path("opencode.json"), path=("mcp",))
    files = make_files()
    entries = {f"s{at}": {"type": "local", "command": ["sh"], "timeout": each} for at, each in enumerate(timeouts)}
    content = json.dumps({"mcp": entries}).encode()
    found = {each.name: each.waits for each in files.servers(place, content)}
    longest = {key: max(each.get(key, 0) for each in found.values()) for waits in found.values() for key in waits}
    together = files.with_riglm(place, content, [*entries], entry="riglm", starts=["/r"], waits=longest)
    for name in entries:
        content = files.with_riglm(place, content, [name], entry="riglm", starts=["/r"], waits=found[name])
    for after in (together, content):
        timeout = json.loads(after)["mcp"]["riglm"]["timeout"]
        assert written == (timeout if isinstance(timeout, dict) else {"startup": timeout, "request": timeout})


def test_what_claude_code_says_of_servers_elsewhere_is_told(tmp_path: Path) -> None:
    project = tmp_path / "app"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.local.json").write_text('{"disabledMcpjsonServers": ["b"]}', "utf-8")
    (tmp_path / ".claude").mkdir()
    rules = '{"permissions": {"allow": ["Bash(ls)", "mcp__a__read", "mcp__bb"], "deny": ["mcp__d__rm"]}}'
    (tmp_path / ".claude" / "settings.json").write_text(rules, "utf-8")
    said = {"disabledMcpServers": ["a"], "disabledMcpjsonServers": ["c"], "enabledMcpjsonServers": ["a"]}
    own = json.dumps({"projects": {str(project): said}})
    (tmp_path / ".claude.json").write_text(own, "utf-8")
    files = make_files(tmp_path)
    user = ConfigLocation(client="claude-code", file=tmp_path / ".claude.json", path=("mcpServers",))
    permitted, off = files.remarks(user, ["a", "b"], "riglm")
    assert "permission rules name the tools of a as mcp__a__" in permitted
    assert off == f"disabled in {project} and not so behind riglm: a"
    place = ConfigLocation(client="claude-code", file=project / ".mcp.json", path=("mcpServers",), project=project)
    (_, asked) = files.remarks(place, ["a"], "riglm-app")
    assert asked.endswith("it asks again for riglm-app")
    content = b'{"mcpServers": {"a": {"command": "sh"}, "b": {"command": "sh"}, "c": {"command": "sh"}}}'
    assert [bool(server.obstacle) for server in files.servers(place, content)] == [False, True, True]
    (denied,) = files.servers(user, b'{"mcpServers": {"d": {"command": "sh"}}}')
    assert denied.obstacle.startswith("`permissions.deny` has rules for its tools")


@pytest.mark.parametrize(
    ("said", "stay"),
    [
        ({"deniedMcpServers": [{"serverName": "glob"}]}, {"glob"}),
        ({"deniedMcpServers": [{"serverCommand": ["sh", "-c", "db"]}]}, {"db"}),
        ({"deniedMcpServers": [{"serverUrl": "http://localhost:*/mcp"}]}, {"near"}),
        ({"allowedMcpServers": [{"serverName": "db"}]}, {"glob", "db", "near"}),
        ({"permissions": {"ask": ["mcp__d*__drop"], "deny": ["mcp__nea", "mcp__globe__x"]}}, {"db"}),
        ({"permissions": {"deny": ["mcp__*", "mcp__*__drop", "Bash(mcp__db)"]}}, set()),
        (
            {"hooks": {"PreToolUse": [{"matcher": "Write|mcp__db__.*"}, {"matcher": "mcp__(glob|x)__r"}]}},
            {"db", "glob"},
        ),
        ({"hooks": {"PostToolUse": [{"matcher": "mcp__(near"}]}}, {"near"}),
    ],
)
@pytest.mark.parametrize("where", [".claude", "app/.claude"])
def test_a_server_with_a_policy_of_claude_code_stays_where_that_holds(
    tmp_path: Path, where: str, said: Any, stay: set[str]
) -> None:
    (tmp_path / where).mkdir(parents=True)
    (tmp_path / where / "settings.json").write_text(json.dumps(said), "utf-8")
    file = tmp_path / ".claude.json"
    file.write_text(json.dumps({"projects": {str(tmp_path / "app"): {}}}), "utf-8")
    place = ConfigLocation(client="claude-code", file=file, path=("mcpServers",))
    servers = {
        "glob": {"command": "sh"},
        "db": {"command": "sh", "args": ["-c", "db"]},
        "near": {"type": "http", "url": "http://localhost:9/mcp"},
    }
    found = make_files(tmp_path).servers(place, json.dumps({"mcpServers": servers}).encode())
    assert {server.name for server in found if server.obstacle} == stay
    assert all(str(tmp_path / where / "settings.json") in server.obstacle for server in found if server.obstacle)


@pytest.mark.parametrize(
    ("platform", "file"),
    [
        ("linux", "/etc/claude-code/managed-settings.json"),
        ("darwin", "/Library/Application Support/ClaudeCode/managed-settings.json"),
        ("win32", "C:/Program Files/ClaudeCode/managed-settings.json"),
    ],
)
def test_the_settings_of_an_organization_are_read_on_every_platform(platform: str, file: str) -> None:
    denied = {Path(file): {"deniedMcpServers": [{"serverName": "a"}]}}
    place = ConfigLocation(client="claude-code", file=HOME / ".claude.json", path=("mcpServers",))
    rules = ClaudeCodeRules(place.file, HOME / ".claude", platform, lambda each: denied.get(each, {}))
    assert set(rules.find_obstacles(place, [ClientServer(name="a")])) == {"a"}


@pytest.mark.parametrize(
    ("client", "said", "stay"),
    [
        ("opencode", {"tools": {"cat_*": False}}, ["cat"]),
        ("opencode", {"agent": {"x": {"permission": {"cat_rm": "ask"}}}}, ["cat"]),
        ("opencode", {"permission": {"*": "ask", "*_rm": "deny", "catalog_rm": "ask"}}, []),
        ("zed", {"agent": {"profiles": {"write": {"context_servers": {"cat": {"tools": {"rm": False}}}}}}}, ["cat"]),
        ("zed", {"agent": {"tool_permissions": {"tools": {"mcp:cat:look": {"default": "deny"}}}}}, ["cat"]),
        ("crush", {"hooks": {"PreToolUse": [{"matcher": "mcp_cat_rm"}]}}, ["cat"]),
        ("gemini", {"mcp": {"excluded": ["b"]}}, ["b"]),
        ("gemini", {"mcp": {"allowed": ["b"]}}, ["cat", "b"]),
    ],
)
def test_rules_for_tools_by_name_keep_their_server_where_they_hold(client: str, said: Any, stay: list[str]) -> None:
    key = FORMATS[client].key
    entry = {"type": "local", "command": ["sh"]} if client == "opencode" else {"command": "sh"}
    place = ConfigLocation(client=client, file=Path("settings.json"), path=(key,))
    content = json.dumps({key: {"cat": entry, "b": entry}, **said}).encode()
    found = make_files().servers(place, content)
    assert [server.name for server in found if server.obstacle] == stay


def test_the_rules_of_a_user_hold_for_the_servers_of_a_project(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text('{"mcp": {"excluded": ["a"]}}', "utf-8")
    project = tmp_path / "app"
    place = ConfigLocation(
        client="gemini", file=project / ".gemini/settings.json", path=("mcpServers",), project=project
    )
    files = make_files(tmp_path)
    (found,) = files.servers(place, b'{"mcpServers": {"a": {"command": "sh"}}}')
    assert found.obstacle == "`mcp.excluded` switches it off"
