"""Finds the servers that refuse requests without a token."""

import asyncio
from collections.abc import Iterable
from typing import Final

import httpx2

from riglm.domain import protocol
from riglm.domain.upstream import UpstreamSpec

HEADERS: Final = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": protocol.HANDSHAKE_VERSIONS[-1],
}
PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_TIMEOUT_SECONDS: Final = 5.0
_FORBIDDEN: Final = 403


async def require_tokens(specs: Iterable[UpstreamSpec]) -> list[bool | None]:
    """Return for each server whether it refuses a request without a token; None if it does not respond.

    A redirect, an error of the server and HTTP 403, with which firewalls respond too, are no responses.
    """
    async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS) as http:
        return await asyncio.gather(*(_requires_token(http, spec) for spec in specs))


async def _requires_token(http: httpx2.AsyncClient, spec: UpstreamSpec) -> bool | None:
    method, body = ("GET", None) if spec.kind == "sse" else ("POST", PING)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async with http.stream(method, spec.url, json=body, headers={**spec.headers, **HEADERS}) as response:
                status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError):
        return None
    if status == 401:
        return True
    return False if status < 300 or (400 <= status < 500 and status != _FORBIDDEN) else None
