"""An authorization server whose logic is Authlib's, and MCP servers of the SDK that accept its tokens, in threads."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import uvicorn
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, JsonRequest, OAuth2Request, TokenMixin, grants
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tests.waiting import WAIT_SECONDS

METHODS = ["none", "client_secret_basic", "client_secret_post"]


@dataclass(eq=False)
class Client(ClientMixin):
    client_id: str
    client_secret: str
    metadata: dict[str, Any]

    def get_client_id(self):
        return self.client_id

    def get_default_redirect_uri(self):
        return self.metadata["redirect_uris"][0]

    def get_allowed_scope(self, scope):
        return scope or ""

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri in self.metadata["redirect_uris"] or "*" in self.metadata["redirect_uris"]

    def check_client_secret(self, client_secret):
        return self.client_secret == client_secret

    def check_endpoint_auth_method(self, method, endpoint):
        return method == self.metadata["token_endpoint_auth_method"]

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type in {"authorization_code", "refresh_token", "client_credentials"}


@dataclass(eq=False)
class Token(TokenMixin):
    client: Client
    values: dict[str, Any]
    resource: str
    issued_at: float = field(default_factory=time.time)
    user: Any = None
    expires_in: float = 0
    revoked: bool = False
    refresh_revoked: bool = False

    def check_client(self, client):
        return client is self.client

    def get_scope(self):
        return self.values.get("scope", "")

    def get_expires_in(self):
        return self.expires_in

    def is_expired(self):
        return time.time() >= self.issued_at + self.expires_in

    def is_revoked(self):
        return self.revoked

    def get_user(self):
        return self.user

    def get_client(self):
        return self.client


class _CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def save_authorization_code(self, code, request):
        data = request.payload.data
        self.server.codes[code] = SimpleNamespace(
            code=code,
            client_id=request.client.client_id,
            code_challenge=data.get("code_challenge"),
            code_challenge_method=data.get("code_challenge_method"),
            resource=data.get("resource", ""),
            user=self.server.user,
            get_redirect_uri=lambda: data.get("redirect_uri"),
            get_scope=lambda: data.get("scope"),
        )

    def query_authorization_code(self, code, client):
        found = self.server.codes.get(code)
        return found if found and found.client_id == client.client_id else None

    def delete_authorization_code(self, authorization_code):
        del self.server.codes[authorization_code.code]

    def authenticate_user(self, authorization_code):
        return authorization_code.user


class _RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token):
        self.server.refreshes += 1
        time.sleep(self.server.seconds)
        found = self.server.with_refresh_token(refresh_token)
        return None if found is None or found.refresh_revoked else found

    def authenticate_user(self, refresh_token):
        return refresh_token.user

    def revoke_old_credential(self, refresh_token):
        refresh_token.refresh_revoked = True


class _CredentialsGrant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "private_key_jwt")


class _Assertion(JWTBearerClientAssertion):
    """Authentication by a JWT that the private key of the client signed; its audience is the issuer."""

    CLIENT_AUTH_METHOD = "private_key_jwt"

    def __init__(self, issuer) -> None:
        super().__init__()
        self._issuer = issuer

    def get_audiences(self):
        return [self._issuer]

    def validate_jti(self, claims, jti):
        return True

    def resolve_client_public_key(self, client):
        return client.metadata["public_key"]


class _Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def query_token(self, token_string, token_type_hint):
        return self.server.tokens.get(token_string) or self.server.with_refresh_token(token_string)

    def revoke_token(self, token, request):
        token.revoked = token.refresh_revoked = True


class _Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request):
        return "open"

    def get_server_metadata(self):
        return {}

    def save_client(self, client_info, client_metadata, request):
        client = Client(client_info["client_id"], client_info["client_secret"], client_metadata)
        self.server.clients[client.client_id] = client
        return client


class Issuer(AuthorizationServer):
    """`lifetime` is that of access tokens in seconds, `seconds` the time that a refresh takes.

    Tool calls require the scope `scope_of_calls`. `user` is the one who signs in; with `has_page` by a click on a page.
    """

    def __init__(self):
        super().__init__()
        self.url = ""
        self.lifetime, self.seconds, self.refreshes = 3600, 0.0, 0
        self.scope_of_calls, self.user = "notes", SimpleNamespace(name="ada")
        self.clients, self.codes, self.tokens = {}, {}, {}
        self.authorizations, self.has_page = [], False
        generate = BearerTokenGenerator(
            lambda **_: f"access-{time.time_ns()}-canary",
            lambda **_: f"refresh-{time.time_ns()}-canary",
            lambda *_: self.lifetime,
        )
        self.register_token_generator("default", generate)
        self.register_grant(_CodeGrant, [CodeChallenge(required=True)])
        self.register_grant(_RefreshGrant)
        self.register_grant(_CredentialsGrant)
        self.register_endpoint(_Revocation)
        self.register_endpoint(_Registration)

    def app(self):
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/authorize", self._authorize, methods=["GET", "POST"]),
                Route("/token", self._with_form(self.create_token_response), methods=["POST"]),
                Route("/register", self._register, methods=["POST"]),
                Route(
                    "/revoke",
                    self._with_form(lambda request: self.create_endpoint_response("revocation", request)),
                    methods=["POST"],
                ),
            ]
        )

    def require_assertions(self):
        """Accept clients with a private key from now on."""
        self.register_client_auth_method(_Assertion.CLIENT_AUTH_METHOD, _Assertion(self.url))

    def with_refresh_token(self, text):
        return next((each for each in self.tokens.values() if each.values.get("refresh_token") == text), None)

    def expire(self):
        """Let all access tokens expire; clients find out by a 401."""
        for token in self.tokens.values():
            token.expires_in = 0

    def secrets(self):
        """Every token that was ever issued."""
        kinds = ("access_token", "refresh_token")
        return [each.values[kind].encode() for each in self.tokens.values() for kind in kinds if kind in each.values]

    def query_client(self, client_id):
        return self.clients.get(client_id)

    def save_token(self, token, request):
        data = request.payload.data
        resource = data.get("resource", "")
        self.tokens[token["access_token"]] = Token(
            request.client, token, resource, user=request.user, expires_in=self.lifetime
        )

    def create_oauth2_request(self, request):
        return request

    def create_json_request(self, request):
        return request

    def handle_response(self, status, body, headers):
        return Response(json.dumps(body) if isinstance(body, dict) else body, status, dict(headers))

    def send_signal(self, name, *args, **kwargs):
        pass

    async def _metadata(self, request: Request):
        return JSONResponse(
            {
                "issuer": self.url,
                **{f"{kind}_endpoint": urljoin(self.url, path) for kind, path in PATHS.items()},
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": METHODS,
            }
        )

    async def _authorize(self, request: Request):
        """Grant the request, at once or by a click on the page."""
        if self.has_page and request.method == "GET":
            return HTMLResponse("<title>Sign in</title><form method=post><button>Allow</button></form>")
        self.authorizations.append(dict(request.query_params))
        asked = _oauth2_request(request, dict(request.query_params))
        grant = self.get_consent_grant(asked, self.user)
        return self.create_authorization_response(asked, grant_user=self.user, grant=grant)

    async def _register(self, request: Request):
        asked = JsonRequest(request.method, str(request.url), request.headers)
        asked.payload = SimpleNamespace(data=await request.json())
        return self.create_endpoint_response("client_registration", asked)

    def _with_form(self, respond):
        async def endpoint(request: Request):
            form = dict(await request.form())
            return respond(_oauth2_request(request, form))

        return endpoint


PATHS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}


def _oauth2_request(request: Request, values: dict[str, Any]) -> OAuth2Request:
    asked = _Request(request.method, str(request.url), headers=request.headers)
    asked.values = values
    asked.payload = BasicOAuth2Payload(values)
    return asked


class _Request(OAuth2Request):
    values: dict[str, Any]

    @property
    def args(self):
        return self.values

    @property
    def form(self):
        return self.values


class _Verifier(TokenVerifier):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        found = self._issuer.tokens.get(token)
        if found is None or found.revoked or found.is_expired():
            return None
        scopes = found.get_scope().split()
        return AccessToken(token=token, client_id=found.client.client_id, scopes=scopes, resource=found.resource)


def protected_server(issuer: Issuer, url: str, *, is_sse: bool):
    """The app of an MCP server that takes the tokens that were issued for it."""
    settings = {"issuer_url": issuer.url, "resource_server_url": url, "required_scopes": ["notes"]}
    auth = AuthSettings.model_validate({**settings, "validate_token_resource": True})
    server = MCPServer("notes", token_verifier=_Verifier(issuer), auth=auth)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def who() -> str:
        """Return the name of the user who signed in."""
        return issuer.tokens[get_access_token().token].user.name

    app = server.sse_app() if is_sse else server.streamable_http_app()
    app.add_middleware(_CallScope, issuer=issuer)
    return app


class _CallScope:
    """Refuses tool calls with tokens that lack their scope, RFC 6750 section 3.1."""

    def __init__(self, app, issuer: Issuer) -> None:
        self._app = app
        self._issuer = issuer

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        request, wanted = Request(scope, receive), self._issuer.scope_of_calls
        body = await request.body()
        token = self._issuer.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if token and b'"tools/call"' in body and wanted not in token.get_scope().split():
            challenge = f'Bearer error="insufficient_scope", scope="{wanted}"'
            return await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)

        read = [{"type": "http.request", "body": body}]

        async def again():
            return read.pop() if read else await receive()

        return await self._app(scope, again, send)


def open_server():
    """The app of an MCP server without authorization."""
    server = MCPServer("open")

    @server.tool()
    def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    return server.streamable_http_app()


@contextmanager
def serving(app, listener: socket.socket) -> Iterator[None]:
    """Serve an app in a thread; `listener` is bound, so that no other process can take its port."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)


@contextmanager
def sites(*, is_sse: bool = False):
    """An issuer, a protected server and an open one; yields the issuer and the URLs of the servers."""
    issuer, listeners = Issuer(), [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [listener.getsockname()[1] for listener in listeners]
    issuer.url = f"http://127.0.0.1:{ports[0]}"
    guarded = f"http://127.0.0.1:{ports[1]}/{'sse' if is_sse else 'mcp'}"
    unguarded = f"http://127.0.0.1:{ports[2]}/mcp"
    with (
        serving(issuer.app(), listeners[0]),
        serving(protected_server(issuer, guarded, is_sse=is_sse), listeners[1]),
        serving(open_server(), listeners[2]),
    ):
        yield issuer, guarded, unguarded
