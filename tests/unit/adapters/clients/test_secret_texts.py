import json

import pytest

from riglm.adapters.clients.secret_texts import Cover
from riglm.adapters.configuration import yaml_text

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
        json.dumps(server).replace("s", "\\u0073"),
        yaml_text.with_value("", ("mcpServers", "it"), server),
        f"[it]\nK = {json.dumps([*server.values()][-1])}\n",
    ]
    for text in written:
        shown = cover(text)
        assert not [secret for secret in HIDDEN if secret in shown], shown
        assert "***" in shown


def test_what_is_no_secret_is_shown() -> None:
    env = {"LOG_LEVEL": "debug", "PORT": "8080", "TOKEN": "${TOKEN:-}", "B": "{env:B}"}
    server = {
        "command": "npx",
        "args": ["-y", "@org/server"],
        "env": env,
        "headers": {"Authorization": "Bearer ${env:A}"},
    }
    assert Cover({"mcpServers": {"it": server}})(json.dumps(server)) == json.dumps(server)
