"""What names a server's session, and may come from another process: those headers, and nothing else."""

import pytest

from riglm.adapters.mcp.upstream.http_reopening import names_a_session, session_headers


@pytest.mark.parametrize(("session_id", "version"), [(b"a-b_c.9~", b"2025-11-25"), (b"", b"2025-11-25"), (b"x", b"")])
def test_the_headers_that_riglm_sends_name_a_session(session_id, version):
    assert names_a_session(session_headers(session_id, version))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"mcp-session-id: x",
        b"mcp-session-id: x\r\nauthorization: Bearer stolen\r\n",
        b"mcp-session-id: x\r\n\r\nPOST /admin HTTP/1.1\r\n",
        b"mcp-session-id: x y\r\n",
        b"mcp-session-id: \xff\r\n",
        b"mcp-session-id: " + b"x" * 5_000 + b"\r\n",
        b"mcp-protocol-version: 1\r\nmcp-session-id: x\r\n",
        b"cookie: a=b\r\n",
        b"mcp-session-id: x\nhost: other\r\n",
    ],
)
def test_nothing_else_gets_into_a_request(block):
    assert not names_a_session(block)
