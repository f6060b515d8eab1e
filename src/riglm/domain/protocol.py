"""The Model Context Protocol's words that riglm reads to route, record and filter."""

from typing import Final

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that open with `initialize`, oldest first."""

MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions that carry an envelope in every request, oldest first."""

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"

OWN_ENVELOPE: Final = {
    META_VERSION: MODERN_VERSIONS[-1],
    META_CLIENT: {"name": "riglm", "version": "1"},
    META_CAPABILITIES: {},
}
"""The envelope of requests that riglm sends for no client."""

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

META_MISSING: Final = "riglm/missing"
"""In the `_meta` of an incomplete tool list: the names of the upstream servers whose tools are not in it yet."""

HANDSHAKE_ONLY: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
"""Requests of the handshake era that the modern one removed."""

NAME_MEMBER: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which member of the params the `Mcp-Name` header repeats."""

LIST_MEMBER: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Under which member each list method answers."""
