import json

import pytest

from riglm.application.setup.client_entries import add_servers
from riglm.cli.setup_access import Cover

SECRETS = {
    "a token": {"env": {"GITHUB_TOKEN": "ghp_abcdefghij0123456789"}},
    "a word under a telling name": {"env": {"PASSWORD": "sesame"}},
    "a short one": {"env": {"PIN_SECRET": "x1z"}},
    "a header": {"headers": {"Authorization": "Bearer opaque-words-here"}},
    "with quotes and line breaks": {"env": {"KEY": 'a"b\\c\nd€'}},
    "with a dollar": {"env": {"KEY": "abc$def123"}},
    "part of a text": {"headers": {"X": "${A}:s3cr3t-tail"}},
    "an argument": {"command": "npx", "args": ["it", "--api-key", "sk-0123456789abcdef"]},
    "in one word": {"command": ["npx", "it", "--token=tok-0123456789"]},
    "in a URL": {"url": "https://me:hunter22@h/mcp?key=abcdef12345"},
    "in the path of a URL": {"url": "https://h/s/9f8e7d6c5b4a39281706f5e4d3c2b1a0/mcp"},
    "somewhere else": {"apiKey": "0123-not-mcp"},
}
HIDDEN = (
    "ghp_abc", "sesame", "x1z", "opaque-words", 'a"b', "a\\\"b", "abc$def", "s3cr3t-tail", "sk-0123", "tok-0123",
    "hunter22", "abcdef12345", "9f8e7d6c", "0123-not",
)  # fmt: skip


@pytest.mark.parametrize("server", SECRETS.values(), ids=SECRETS)
def test_no_secret_is_shown_however_it_is_written(server: dict[str, object]) -> None:
    cover = Cover({"mcpServers": {"it": server}})
    written = [
        json.dumps(server),
        json.dumps(server, ensure_ascii=False, indent=1),
        add_servers(None, {"it": server}, "").decode(),
        "[it]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in server.items()),
    ]
    for text in written:
        shown = cover(text)
        assert not [secret for secret in HIDDEN if secret in shown], shown
        assert "***" in shown


def test_commands_names_and_paths_are_shown() -> None:
    env = {
        "ROOT": "${userHome}/projects/9f8e7d6c5b4a39281706f5e4d3c2b1a0",
        "TOKEN_FILE": "/home/ann/.config/token",
        "PYTHONPATH": "/opt/lib:/usr/lib/python3",
        "WINDOWS": "C:\\Users\\ann\\key",
        "LEVEL": "debug",
        "REGION": "eu-west-1",
        "API": "https://api.example.com/v1",
        "AUTH_URL": "https://login.example.com/oauth",
        "MODEL": "gpt-4o-mini",
        "VERSION": "2024-11-05",
        "IMAGE": "ghcr.io/github/github-mcp-server:0.4.1",
        "MAX_TOKENS": "4096",
        "NODE_OPTIONS": "--max-old-space-size=4096",
    }
    args = [
        "-c",
        "exec server --config /home/ann/a1b2c3d4e5/it.json",
        "/home/ann/2f9a7c1e4b3d/x",
        "--db",
        "/var/db/a1b2c3d4",
        "--key-file=/etc/keys/it.pem",
    ]
    server = {"command": "sh", "args": args, "cwd": "/home/ann/Projects/2f9a7c1e-4b3d-4e5f-8a7b", "env": env}
    text = json.dumps(server)
    assert Cover({"mcpServers": {"it": server}})(text) == text


def test_a_path_with_a_random_part_under_a_secret_name_is_covered() -> None:
    env = {"API_KEY": "/9j4AAQSkZJRgABAQEAYABgAAD", "TOKEN": "/s3cr3t/t0k3n9x"}
    shown = Cover({"mcpServers": {"it": {"env": env}}})(json.dumps(env))
    assert shown == '{"API_KEY": "***", "TOKEN": "***"}'


def test_a_secret_in_a_command_for_a_shell_is_covered() -> None:
    server = {"command": "bash", "args": ["-lc", "npx -y @org/server --token hunter22"]}
    assert Cover({"mcpServers": {"it": server}})(json.dumps(server)) == json.dumps(server).replace("hunter22", "***")


def test_what_is_no_secret_is_shown() -> None:
    env = {"TOKEN": "${TOKEN:-}", "B": "{env:B}"}
    server = {
        "command": "npx",
        "args": ["-y", "@org/server"],
        "env": env,
        "headers": {"Authorization": "Bearer ${env:A}"},
    }
    assert Cover({"mcpServers": {"it": server}})(json.dumps(server)) == json.dumps(server)


def test_a_word_is_covered_under_a_secret_name_and_shown_elsewhere() -> None:
    env = {"DB_PASS": "hunter", "PASSPHRASE": "npx", "PIN": 1234, "AUTH": "8080", "TOKEN": True, "GH-PAT": "abc-def"}
    server = {"command": "npx", "args": ["hunter", "true"], "env": env, "headers": {"X-Id": "ann"}}
    cover = Cover({"mcpServers": {"it": server}})
    toml = "".join(f"{name} = {json.dumps(value)}\n" for name, value in env.items())
    for text in (
        json.dumps(env, indent=1),
        json.dumps(env),
        add_servers(None, {"it": {"env": env}}, "").decode(),
        add_servers(None, {"it": {"env": env}}, "").decode().replace('"', ""),
        toml,
    ):
        shown = cover(text)
        assert shown.count("***") == len(env), shown
        assert not [value for value in ("hunter", "npx", "1234", "8080", "true", "abc-def") if value in shown.lower()]
    assert cover(json.dumps(server["args"])) == json.dumps(server["args"])
    assert '"X-Id": "ann"' in cover(json.dumps(server))
    assert '"command": "npx"' in cover(json.dumps(server))


def test_no_secret_of_a_server_that_was_commented_out_is_shown() -> None:
    texts = [
        '{\n// "old": {"command": "npx", "args": ["-k", "sk-0123456789abcdef"], "env": {"DB_PASS": "sesame"}},\n"a":1}',
        '{/* "old": {\n"headers": {"Authorization": "Bearer opaque-words"},\n"url": "https://h/?key=abcdef12345" } */}',
        '# api_key = \'hunter22\'\n# [mcp_servers.old]\nname = "it" # TOKEN = "tok-ABCDEF"\n',
    ]
    hidden = ("sk-0123", "sesame", "opaque", "abcdef12345", "hunter22", "tok-ABC")
    for text in texts:
        shown = Cover()(text)
        assert not [secret for secret in hidden if secret in shown], shown
        assert "***" in shown
        assert len(shown.splitlines()) == len(text.splitlines())
    assert '"command": "npx"' in Cover()(texts[0])


@pytest.mark.parametrize(
    "value",
    [
        "Server=db;User Id=sa;Password=hunter;",
        "host=db password=hunter user=me",
        "redis://:hunter@h",
        "Basic hunter",
        "sid=hunter; theme=dark",
    ],
)
def test_a_plain_password_within_a_value_is_covered(value: str) -> None:
    document = {"mcpServers": {"it": {"env": {"STORE": value}}}}
    assert "hunter" not in Cover(document)(json.dumps(document))
