"""What riglm provides to each client: which surface, and how long its list waits for slow servers."""

import pytest

from riglm.domain.client_support import (
    CLIENTS,
    choose_surface,
    list_timeout_of,
    longest_wait_of,
    no_tool_search,
    support_of,
)
from riglm.domain.exposure import Surface
from riglm.domain.session import ClientInfo, ProtocolEra

GRACE = 0.8


@pytest.mark.parametrize(
    ("client", "waits", "at_most"),
    [
        ("an-agent", 9.5, 9.5),
        ("", 9.5, 9.5),
        ("claude-ai", 9.5, 9.5),
        ("qwen-cli-mcp-client-github", 3.5, 3.5),
        ("@cline/core", 1.5, 1.5),
        ("continue-cli-client", 8.5, 8.5),
        ("codex-mcp-client", GRACE, 9.5),
        ("claude-code", GRACE, 26.5),
        ("opencode", GRACE, 8.5),
        ("gemini-cli-mcp-client", GRACE, 8.5),
        ("copilot-cli", GRACE, 19.5),
    ],
)
def test_a_list_waits_as_long_as_its_client_unless_that_asks_again(client, waits, at_most):
    known = support_of(client)
    assert list_timeout_of(known, GRACE, 30.0) == waits
    assert longest_wait_of(known, 30.0) == at_most


def test_the_configuration_bounds_the_wait_of_a_list():
    assert list_timeout_of(None, GRACE, 2.0) == 2.0
    assert list_timeout_of(None, 20.0, 2.0) == 20.0


SURFACES = {
    "claude-code": Surface.HINTS,
    "Claude-Code": Surface.HINTS,
    "claude-ai": Surface.STABLE,
    "Visual Studio Code": Surface.DYNAMIC,
    "cursor-vscode": Surface.STABLE,
    "codex-mcp-client": Surface.STABLE,
    "gemini-cli-mcp-client": Surface.DYNAMIC,
    "opencode": Surface.DYNAMIC,
    "zed": Surface.DYNAMIC,
    "windsurf-client": Surface.STABLE,
    "@cline/core": Surface.STABLE,
    "copilot-cli": Surface.DYNAMIC,
    "qwen-cli-mcp-client-github": Surface.STABLE,
    "kiro": Surface.STABLE,
    "crush": Surface.STABLE,
    "goose": Surface.STABLE,
    "continue-cli-client": Surface.STABLE,
}


@pytest.mark.parametrize(("client", "surface"), SURFACES.items())
def test_each_client_gets_a_surface_that_it_follows(client, surface):
    assert choose_surface(client, ProtocolEra.HANDSHAKE, {}).surface is surface
    modern = choose_surface(client, ProtocolEra.MODERN, {}).surface
    assert modern is (Surface.HINTS if surface is Surface.HINTS else Surface.STABLE)


def test_every_client_of_the_table_has_its_row_here():
    assert {support_of(name).key for name in SURFACES} == {known.key for known in CLIENTS}


def test_the_configuration_comes_first_and_takes_patterns():
    table = {"Claude*": Surface.FULL, "cod?x": Surface.DYNAMIC}
    assert choose_surface("claude-code", ProtocolEra.MODERN, table, "it is off").surface is Surface.FULL
    assert choose_surface("CODEX", ProtocolEra.HANDSHAKE, table).surface is Surface.DYNAMIC
    assert choose_surface("other", ProtocolEra.HANDSHAKE, table).surface is Surface.DYNAMIC


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, ""),
        ({"ENABLE_TOOL_SEARCH": " true "}, ""),
        ({"ENABLE_TOOL_SEARCH": "\x1b[31m\n"}, "ENABLE_TOOL_SEARCH is not valid"),
        ({"ENABLE_TOOL_SEARCH": "True", "CLAUDE_CODE_USE_VERTEX": "1"}, ""),
        ({"ENABLE_TOOL_SEARCH": "false"}, "ENABLE_TOOL_SEARCH is false"),
        ({"ENABLE_TOOL_SEARCH": "auto:5"}, "ENABLE_TOOL_SEARCH is auto:5"),
        ({"ENABLE_TOOL_SEARCH": "true", "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1"}, "BETAS is set"),
        ({"CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "0"}, ""),
        ({"CLAUDE_CODE_USE_VERTEX": "1"}, "CLAUDE_CODE_USE_VERTEX is set"),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}, ""),
    ],
)
def test_the_environment_tells_whether_claude_code_searches_for_tools(environment, why):
    found = no_tool_search(ClientInfo(name="claude-code", version="2.1.330"), environment)
    assert found.endswith(why)
    assert bool(found) == bool(why)
    chosen = choose_surface("claude-code", ProtocolEra.MODERN, {}, found)
    assert chosen.surface is (Surface.STABLE if why else Surface.HINTS)
    assert chosen.has_hints == bool(why)
    assert why in chosen.reason


@pytest.mark.parametrize(
    ("url", "version", "is_sure"),
    [
        ("https://gateway.example", "2.1.197", False),
        ("https://gateway.example", "2.2.0", True),
        ("https://api.anthropic.com", "2.1.197", True),
        ("https://anthropic.com.example", "2.1.197", False),
        ("api.anthropic.com", "2.1.197", True),
        ("http://[", "2.1.197", False),
    ],
)
def test_an_older_claude_code_may_load_every_tool_where_its_gateway_is_another_hosts(url, version, is_sure):
    client = ClientInfo(name="claude-code", version=version)
    assert bool(no_tool_search(client, {"ANTHROPIC_BASE_URL": url})) != is_sure
