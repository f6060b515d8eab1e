import pytest

from riglm.domain.redaction import Redactor, looks_random, mask_command, secrets_of_command


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["srv", "--token", "abc", "x"], ["srv", "--token", "***", "***"]),
        (["srv", "--api-key=abc"], ["srv", "--api-key=***"]),
        (["env", "GITHUB_TOKEN=abc", "PLAIN=abc"], ["env", "GITHUB_TOKEN=***", "PLAIN=***"]),
        (["srv", "--token", "--verbose"], ["srv", "--token", "--verbose"]),
        (["srv", "--token"], ["srv", "--token"]),
        (["srv", "--token="], ["srv", "--token="]),
        (["srv", "--url", "http://a:b@h/?q=1"], ["srv", "--url", "http://***@h/?***"]),
        (["srv", "--port=8"], ["srv", "--port=8"]),
        (["srv", "--header", "Authorization: Bearer abc"], ["srv", "--header", "Authorization: ***"]),
        (["srv", "--header", "X-Api-Key: v"], ["srv", "--header", "X-Api-Key: ***"]),
        (["srv", "--header=X-Api-Key:v"], ["srv", "--header=X-Api-Key:***"]),
        (["srv", "X-Api-Key: v"], ["srv", "X-Api-Key: ***"]),
        (["srv", "--pat", "v", "--key", "v", "--auth", "v"], ["srv", "--pat", "***", "--key", "***", "--auth", "***"]),
        (["srv", "-p", "v", "-pv4lue"], ["srv", "-p", "***", "***"]),
        (["sh", "-c", "curl -u me:pw host"], ["sh", "-c", "curl -u me:*** ***"]),
        (["srv", "https://h/s/SECRET/mcp"], ["srv", "https://h/s/***/mcp"]),
        (["npx", "-y", "mcp-remote", "https://h/mcp"], ["npx", "-y", "mcp-remote", "https://h/mcp"]),
        (["npx", "-y", "sk3fa9c2e17b0d", "stdio"], ["npx", "-y", "***", "stdio"]),
        (
            ["srv", "--log-level", "debug", "--path", "/srv/x9f8e7d6c5b4"],
            ["srv", "--log-level", "debug", "--path", "/srv/x9f8e7d6c5b4"],
        ),
    ],
)
def test_of_a_command_only_what_is_surely_harmless_is_shown(words: list[str], masked: list[str]) -> None:
    assert mask_command(words) == masked


@pytest.mark.parametrize(
    "command",
    [
        "npx -y @modelcontextprotocol/server-filesystem /home/me/documents",
        "uvx --from git+https://github.com/someone/tools mcp-server-git",
        "python -m my_server --transport stdio",
        "docker run -i --rm mcp/fetch",
        "node dist/index.js stdio",
        "uv run --directory /srv/tools server.py",
        "npx -y server-memory@1.2.10",
    ],
)
def test_what_runs_stays_readable(command: str) -> None:
    assert mask_command(command.split()) == command.split()


def test_the_secrets_of_a_command_are_found_in_options_and_urls() -> None:
    words = ["srv", "--password", "first", "postgres://me:second@h/db?sslkey=third"]
    assert secrets_of_command(words) == ["first", "second", "third"]


def test_a_header_s_value_is_known_with_and_without_its_scheme() -> None:
    words = ["mcp-remote", "--header", "X-Api-Key: correct-horse", "-p", "hunter2", "--name", "production"]
    assert secrets_of_command(words) == ["correct-horse", "hunter2"]
    of_header = secrets_of_command(["srv", "--header", "Authorization: Bearer f00dfeed"])
    assert Redactor(of_header)("refused: f00dfeed") == "refused: ***"


@pytest.mark.parametrize(
    "text",
    ["3f2c9a77", "SECRET", "sk-live-abc123def", "AKIAIOSFODNN", "xkcdqwrtzp", "d9428888-122b-11e1-b85c-61cd3cbb3210"],
)
def test_keys_and_identifiers_look_random(text: str) -> None:
    assert looks_random(text)


@pytest.mark.parametrize(
    "text", ["mcp", "v2", "server-memory", "my_server", "getThings", "2025-11-25", "oauth2", "SSE"]
)
def test_words_and_versions_do_not_look_random(text: str) -> None:
    assert not looks_random(text)
