"""How long tool lists wait for slow servers, by client."""

import pytest

from riglm.domain.client_support import list_timeout_of, longest_wait_of, support_of

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
