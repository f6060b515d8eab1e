"""Sends a ping to a server, to find out whether it requires a token, or to have an SDK provider obtain one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from pydantic import ValidationError

from riglm.adapters.mcp.oauth.response_limit import UNCOMPRESSED, limit_response, refuse_redirect
from riglm.adapters.mcp.oauth.token_requests import read_token_response, refusal_of
from riglm.adapters.mcp.wire.dialing import create_httpx_context
from riglm.domain import protocol
from riglm.domain.access import is_loopback, is_protected
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

_HEADERS: Final = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": protocol.HANDSHAKE_VERSIONS[-1],
}
_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_MAX_REDIRECTS: Final = 5
_PROBE_SECONDS: Final = 5.0
_HTTP_SECONDS: Final = 30.0
_FORBIDDEN: Final = 403


async def require_tokens(specs: Iterable[UpstreamSpec]) -> list[bool | None]:
    """Return for each server whether it refuses a request without a token; None if it does not respond.

    A redirect, an error of the server and HTTP 403, with which firewalls respond too, are no responses.
    """
    async with httpx2.AsyncClient(timeout=_PROBE_SECONDS, verify=create_httpx_context()) as http:
        return await asyncio.gather(*(_requires_token(http, spec) for spec in specs))


async def authorize(spec: UpstreamSpec, provider: httpx2.Auth, scopes: Sequence[str], timeout_seconds: float) -> int:
    """Have `provider` obtain a token that the server accepts; return the last status of the server.

    `scopes` replace those that the server asks for. Requests are sent only to URLs that `require_safe` accepts.

    Raises:
        RiglmError: no token was obtained. The message has no body of a response, which may contain tokens.
    """
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # the error is reported here
    last: httpx2.Response | None = None

    async def check(request: httpx2.Request) -> None:
        require_safe(str(request.url), spec)
        request.headers.update(UNCOMPRESSED)
        request.headers.setdefault("Accept", _JSON)  # those of the SDK have none, and some servers answer with a form

    async def replace_scopes(response: httpx2.Response) -> None:
        nonlocal last
        last = response
        if scopes and response.status_code == 401:
            rest = response.headers.get("www-authenticate", "Bearer").partition(" ")[2]
            response.headers["www-authenticate"] = f'Bearer scope="{" ".join(scopes)}"' + (rest and f", {rest}")

    hooks: dict[str, list[Callable[..., Awaitable[None]]]] = {
        "request": [check],
        "response": [limit_response, _check_response, replace_scopes],
    }
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            httpx2.AsyncClient(
                auth=provider, timeout=_HTTP_SECONDS, event_hooks=hooks, verify=create_httpx_context()
            ) as http,
            _ping(http, spec) as response,
        ):
            refuse_redirect(response, "set the `url` of this server to the new address if it is right")
            return response.status_code
    except TimeoutError:
        raise RiglmError(f"no answer within {timeout_seconds:g} s") from None
    except (OAuthFlowError, httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
        raise RiglmError(_reason(error, last)) from None


def require_https(url: str) -> None:
    """Raise OAuthFlowError for a URL that would show secrets to the network."""
    if not is_protected(url):
        raise OAuthFlowError(f"{httpx2.URL(url).host} does not use https, so that no secrets can be sent to it")


def require_safe(url: str, spec: UpstreamSpec) -> None:
    """Raise OAuthFlowError for a URL without https, and for one of this machine that a server elsewhere gave."""
    require_https(url)
    host, configured = httpx2.URL(url).host, (spec.url, spec.oauth.issuer)
    if is_loopback(host) and not any(is_loopback(urlsplit(each).hostname or "") for each in configured):
        words = f"the server is elsewhere and refers to {host}, to which riglm sends nothing"
        raise OAuthFlowError(f"{words} — fix: set `auth.issuer` if this is right")


@asynccontextmanager
async def _ping(http: httpx2.AsyncClient, spec: UpstreamSpec) -> AsyncIterator[httpx2.Response]:
    """Send a ping; redirects to another path of the same origin are followed."""
    method, body = ("GET", None) if spec.kind == "sse" else ("POST", _PING)
    request = http.build_request(method, spec.url, json=body, headers={**spec.headers, **_HEADERS})
    for left in reversed(range(_MAX_REDIRECTS)):
        response = await http.send(request, stream=True)
        following = response.next_request
        if (
            not left
            or following is None
            or following.method != method
            or _origin(following.url) != _origin(request.url)
        ):
            break
        await response.aclose()
        request = following
    try:
        yield response
    finally:
        await response.aclose()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _check_response(response: httpx2.Response) -> None:
    """Response hook that reads token responses by `read_token_response`, and refuses redirects of a provider's POST."""
    request = response.request
    if request.method != "POST" or request.headers["Accept"] != _JSON:
        return
    refuse_redirect(response, "have the operator of the authorization server correct the endpoint in its metadata")
    if request.headers.get("Content-Type") == _FORM and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _TokenStream(response, response.stream)


class _TokenStream(httpx2.AsyncByteStream):
    """The body of a token response in the form that the SDK accepts; reading it raises TokenRefusedError."""

    def __init__(self, response: httpx2.Response, stream: httpx2.AsyncByteStream) -> None:
        self._response = response
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([chunk async for chunk in self._stream])
        response = self._response
        media_type = response.headers.get("content-type", "")
        yield read_token_response(response.url.host, response.status_code, media_type, body).to_json()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _requires_token(http: httpx2.AsyncClient, spec: UpstreamSpec) -> bool | None:
    try:
        async with asyncio.timeout(_PROBE_SECONDS), _ping(http, spec) as response:
            status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError):
        return None
    if status == 401:
        return True
    return False if status < 300 or (400 <= status < 500 and status != _FORBIDDEN) else None


def _reason(error: Exception, last: httpx2.Response | None) -> str:
    if isinstance(error, OAuthTokenError | OAuthRegistrationError | ValidationError) and last is not None:
        try:
            refusal = refusal_of(last.content)
        except httpx2.StreamError:
            refusal = ""
        return f"{last.request.url.host} answered HTTP {last.status_code}{refusal}"
    return " ".join(str(error).split())[:300] or type(error).__name__
