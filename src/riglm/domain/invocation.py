"""An invocation: one `tools/call`."""

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec


class DiscoveryMethod(StrEnum):
    """How the client came to know the tool that it called."""

    LISTED = "listed"
    SEARCHED = "searched"
    NAMED = "named"


class ErrorKind(StrEnum):
    """Why an invocation did not succeed."""

    TOOL = "tool"  # the tool answered with isError
    PROTOCOL = "protocol"  # the upstream answered with a JSON-RPC error, or isError to a name that it does not list
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"  # the upstream could not be reached, died, or sent no answer that can be passed on
    UNKNOWN = "unknown"  # riglm or the client ended before the response came


OWN_UPSTREAM: Final = "riglm"
"""The upstream under which calls of meta-tools are recorded; no server can have this name."""

USES: Final = frozenset({None, ErrorKind.TOOL})
"""How the invocations end in which a tool surely ran: any other end may be that of a tool that there is not."""


class ToolInvocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One `tools/call` and how it ended. Results are never kept.

    `tool` is the name as the client sees it; `upstream` the name of the server that ran it. `arguments_hash` is a keyed
    hash, empty if it must not be stored; `arguments` contains the raw JSON only if the configuration enables that.
    `timestamp` is the start in seconds since the epoch. `sequence_number` counts from 1 within the session.
    """

    id: UUID
    session_id: UUID
    tool: str
    upstream: str
    timestamp: float
    duration_ms: float
    success: bool
    sequence_number: int
    arguments_hash: str = ""
    arguments: str | None = None
    error_kind: ErrorKind | None = None
    error_code: int | None = None
    found: DiscoveryMethod = DiscoveryMethod.NAMED
