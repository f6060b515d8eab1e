"""Sends forms with secrets by httpx2, and limits what riglm accepts of responses: their size, and redirects."""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2

from riglm.adapters.mcp.wire.dialing import create_httpx_context
from riglm.domain.errors import RiglmError

UNCOMPRESSED: Final = {"Accept-Encoding": "identity"}
"""The header of requests whose responses are limited."""

_MAX_BYTES: Final = 1 << 20


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, stream: httpx2.AsyncByteStream) -> None:
        self._host = response.request.url.host
        self._encoding = response.headers.get("content-encoding", "identity")
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding != "identity":
            raise RiglmError(f"{self._host} sent a compressed response ({self._encoding[:20]}), which riglm refused")
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > _MAX_BYTES:
                raise RiglmError(f"{self._host} sent a response of more than {_MAX_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def limit_response(response: httpx2.Response) -> None:
    """Response hook with which reading a body of over a MiB, or a compressed one, raises RiglmError.

    A few compressed bytes can become gigabytes.
    """
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _LimitedStream(response, response.stream)


async def post_form(
    url: str, form: Mapping[str, str], seconds: float, fix: str, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    """Send a form and return the response; `seconds` limit the time between two chunks, `fix` helps with a redirect.

    Raises:
        RiglmError: the response is a redirect, too large or compressed.
    """
    hooks = {"response": [limit_response]}
    headers = {"Accept": "application/json", **UNCOMPRESSED, **(headers or {})}
    async with httpx2.AsyncClient(timeout=seconds, event_hooks=hooks, verify=create_httpx_context()) as http:
        response = await http.post(url, data=form, headers=headers)
    refuse_redirect(response, fix)
    return response


def refuse_redirect(response: httpx2.Response, fix: str) -> None:
    """Raise RiglmError for a redirect of a request that carries a secret or a code: its target is not what was trusted.

    `fix` is what the user can do.
    """
    if not response.has_redirect_location:
        return
    try:
        target = str(response.url.join(response.headers["location"]).copy_with(userinfo=b"", query=None, fragment=None))
    except (httpx2.InvalidURL, ValueError):
        target = "an unusable address"
    raise RiglmError(
        f"{response.url.host} redirects {response.url.path} to {target[:200]}, and riglm sends no secrets there"
        f" — fix: {fix}"
    )
