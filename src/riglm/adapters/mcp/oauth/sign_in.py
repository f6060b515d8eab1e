"""Signs in to a server by the authorization code flow of the MCP SDK, with a redirect to loopback or a pasted URL."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urljoin, urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from riglm.adapters.mcp.oauth.accounts import Account
from riglm.adapters.mcp.oauth.ping import authorize, require_safe
from riglm.adapters.mcp.oauth.unattended import AnySlashProvider, MemoryStorage
from riglm.domain.access import is_same_issuer
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import UpstreamSpec

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext

TIMEOUT_SECONDS: Final = 600.0
"""Seconds to wait for the user."""

_HTTP_SECONDS: Final = 30.0
_MAX_LINE_BYTES: Final = 16_384
_PATH: Final = "/callback"
_PUBLIC_CLIENT: Final = "none"
_PAGE: Final = "<!doctype html><html lang=en><meta charset=utf-8><title>riglm</title><p>%s"
_DONE: Final = "Signed in. You can close this page and return to the terminal."


class Redirect:
    """Receives the redirect of the authorization server: over loopback, or as a URL that the user pastes."""

    def __init__(self) -> None:
        self.uri = ""
        self._state = ""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def listen(self, port: int) -> asyncio.Server:
        """Listen on a port of loopback; 0 chooses a free one.

        Raises:
            RiglmError: the port is not free.
        """
        try:
            server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_MAX_LINE_BYTES)
        except OSError as error:
            raise RiglmError(f"port {port} cannot be used ({error.strerror}) — fix: choose a different one") from error
        self.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
        return server

    def expect(self, authorization_url: str) -> None:
        """Accept only the response to this request."""
        self._state = parse_qs(urlsplit(authorization_url).query)["state"][0]

    def accept(self, url: str) -> str:
        """Take the URL of a redirect; return the problem with it, or nothing."""
        values = {name: found[0] for name, found in parse_qs(urlsplit(url.strip()).query).items()}
        if not self._state or not secrets.compare_digest(values.get("state", "").encode(), self._state.encode()):
            return "this is not the answer to the current sign-in"
        if self._result.done():
            return "the answer was received before"
        if "code" in values:
            code = AuthorizationCodeResult(code=values["code"], state=values["state"], iss=values.get("iss"))
            self._result.set_result(code)
            return ""
        reason = values.get("error_description") or values.get("error") or "no code in the answer"
        self._result.set_exception(OAuthFlowError(f"the authorization server refused: {reason[:200]}"))
        return "the sign-in was refused"

    async def wait(self) -> AuthorizationCodeResult:
        """Return what the redirect contains."""
        return await self._result

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HTTP_SECONDS):
                words = (await reader.readline()).decode("latin-1").split(" ")
                while (await reader.readline()).strip():
                    pass
            is_redirect = len(words) == 3 and words[0] == "GET" and urlsplit(words[1]).path == _PATH
            problem = self.accept(words[1]) if is_redirect else "this is not the page of a sign-in"
            page = (_PAGE % (f"riglm: {problem}" if problem else _DONE)).encode()
            head = f"HTTP/1.1 {'400 Bad Request' if problem else '200 OK'}\r\nContent-Type: text/html\r\n"
            writer.write(f"{head}Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode() + page)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # a client that sends no complete request gets no response
        finally:
            writer.close()


async def sign_in(
    spec: UpstreamSpec,
    redirect: Redirect,
    show: Callable[[str], None],
    confirm: Callable[[str], bool],
    scopes: Sequence[str] = (),
    known: Account | None = None,
) -> Account:
    """Send the user to the authorization server of a server and return the account with its tokens.

    `show` is called with the URL to open. `scopes` replace those that the server asks for. A configured client secret
    is sent only to the configured issuer, else to that of the `known` account, else to one that `confirm` accepts.

    Raises:
        RiglmError: the server does not require a sign-in, or it failed.
    """
    configured, client = spec.oauth, None
    if configured.id:
        client = OAuthClientInformationFull(client_id=configured.id, client_secret=configured.secret or None)
    is_confirmed = known is not None and known.client_secret and known.client_id == configured.id
    confirmed_issuer = known.issuer if known is not None and is_confirmed else ""

    async def open_page(authorization_url: str) -> None:
        require_safe(authorization_url, spec)
        _require_pkce(provider.context)
        if client is not None:
            _prepare(client, provider.context, configured.issuer, confirmed_issuer)
            issuer = str(provider.context.oauth_metadata and provider.context.oauth_metadata.issuer)
            if client.client_secret and not (configured.issuer or confirmed_issuer or confirm(issuer)):
                raise OAuthFlowError(
                    f"the client secret was not sent to {issuer}, which the server names"
                    " — fix: set `auth.issuer` to the authorization server that the secret belongs to"
                )
        redirect.expect(authorization_url)
        show(authorization_url)

    async def receive() -> AuthorizationCodeResult:
        result, metadata = await redirect.wait(), provider.context.oauth_metadata
        spellings = (provider.context.auth_server_url, configured.issuer)
        if (
            metadata is not None
            and result.iss
            and result.iss in spellings
            and is_same_issuer(result.iss, str(metadata.issuer))
        ):
            result.iss = str(metadata.issuer)  # RFC 9207 wants equal text: only a spelling that was named is accepted
        return result

    metadata = OAuthClientMetadata(
        client_name="riglm", redirect_uris=[AnyUrl(redirect.uri)], token_endpoint_auth_method=_PUBLIC_CLIENT
    )
    provider = AnySlashProvider(
        spec.url, metadata, MemoryStorage(client), open_page, receive, configured.metadata_url or None
    )
    provider.preferred_issuer = configured.issuer or confirmed_issuer
    try:
        status = await authorize(spec, provider, scopes, TIMEOUT_SECONDS)
    except RiglmError as error:
        raise RiglmError(f"{spec.name}: the sign-in failed: {error}{_fix(provider.context)}") from None
    return _account(spec, provider.context, status)


def _require_pkce(context: "OAuthContext") -> None:
    """Refuse an authorization server that does not protect the code: its metadata must name S256."""
    metadata = context.oauth_metadata
    if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise OAuthFlowError(
            f"the authorization server {metadata.issuer} does not support PKCE with S256, which MCP requires"
            " — fix: have its operator name S256 in `code_challenge_methods_supported`"
        )


def _prepare(client: OAuthClientInformationFull, context: "OAuthContext", issuer: str, confirmed_issuer: str) -> None:
    """Refuse to send this client's code or secret elsewhere (mix-up), and choose how it authenticates.

    Without an issuer, a server could combine the sign-in page of one host with the token endpoint of another.
    """
    metadata = context.oauth_metadata
    if metadata is None:
        raise OAuthFlowError("the authorization server has no metadata, so that `auth.client_id` cannot be used")
    found = str(metadata.issuer)
    if issuer and not is_same_issuer(found, issuer):
        raise OAuthFlowError(f"the server uses the authorization server {found}, and `auth.issuer` is {issuer}")
    if not issuer and confirmed_issuer and not is_same_issuer(found, confirmed_issuer):
        raise OAuthFlowError(
            f"the server now uses the authorization server {found}, and the client secret was confirmed for"
            f" {confirmed_issuer} — fix: set `auth.issuer` to the one that the secret belongs to"
        )
    issuer = issuer or confirmed_issuer
    hosts = {urlsplit(str(each)).netloc for each in (found, metadata.authorization_endpoint, metadata.token_endpoint)}
    if not issuer and len(hosts) > 1:
        raise OAuthFlowError(
            f"the authorization server uses several hosts ({', '.join(sorted(hosts))}) — fix: set `auth.issuer` to the"
            " one that `auth.client_id` belongs to"
        )
    known = metadata.token_endpoint_auth_methods_supported or []
    if client.client_secret:
        is_post = "client_secret_post" in known and "client_secret_basic" not in known
        client.token_endpoint_auth_method = "client_secret_post" if is_post else "client_secret_basic"


def _account(spec: UpstreamSpec, context: "OAuthContext", status: int) -> Account:
    tokens, client, version = context.current_tokens, context.client_info, context.protocol_version
    if tokens is None or client is None:
        raise RiglmError(f"{spec.name} does not require a sign-in: it answered HTTP {status} without a token")
    if status in {401, 403}:
        raise RiglmError(f"{spec.name} refused the new access token (HTTP {status}) — fix: check `auth.scopes`")
    issuer = context.oauth_metadata.issuer if context.oauth_metadata else context.auth_server_url
    account = Account(
        server=spec.name,
        url=context.server_url,
        principal=spec.principal,
        issuer=str(issuer or context.get_authorization_base_url(context.server_url)),
        token_endpoint=_endpoint(context, "token_endpoint", "/token"),
        revocation_endpoint=_endpoint(context, "revocation_endpoint", ""),
        resource=context.get_resource_url() if context.should_include_resource_param(version) else "",
        client_id=client.client_id,
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "",
        access_token="",
    )
    return account.with_tokens(
        tokens.access_token, refresh_token=tokens.refresh_token, scope=tokens.scope, expires_in=tokens.expires_in
    )


def _endpoint(context: "OAuthContext", name: str, default: str) -> str:
    if context.oauth_metadata is None:
        return urljoin(context.get_authorization_base_url(context.server_url), default) if default else ""
    return str(getattr(context.oauth_metadata, name) or "")


def _fix(context: "OAuthContext") -> str:
    if context.client_info is None and context.oauth_metadata and not context.oauth_metadata.registration_endpoint:
        return " — fix: register riglm with the authorization server, and set `auth.client_id` for this server"
    return ""
