"""Access to the control API: the checks of host, origin and token that come before all else."""

from collections.abc import Iterable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from riglm.adapters.control.dashboard.files import CONTENT_SECURITY_POLICY
from riglm.adapters.control.problems import create_problem
from riglm.adapters.control.tokens import Right, Tokens
from riglm.domain.access import AllowedOrigins, CrossOrigin, bearer_token, is_origin_of
from riglm.domain.schemas.downstream import ControlSettings

ACCESS_HEADER: Final = b"riglm-access"
"""Response header with the right of an authorized caller: `read` or `write`."""

_READING: Final = frozenset({"GET", "HEAD"})
_GUARDS: Final = (b"host", b"origin", b"authorization")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="riglm"'}
_SECURITY: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Access:
    """Passes on requests for this listener from allowed origins with a valid token, and refuses others.

    The files of the dashboard contain no data and need no token, so that the page can ask for one.
    """

    def __init__(self, app: ASGIApp, control: ControlSettings, tokens: Tokens) -> None:
        self._app = app
        self._allowed_origins = AllowedOrigins(
            control.host, hosts=control.allowed_hosts, origins=control.allowed_origins
        )
        self._tokens = tokens
        self._cross_origin = CrossOrigin(
            control.allowed_origins,
            methods=b"GET, HEAD, POST, PUT, DELETE",
            sent=b"authorization, content-type, if-match",
            exposed=b"etag, location, retry-after, riglm-access, www-authenticate",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        names = [name for name, _ in scope["headers"]]
        twice = {name for name in _GUARDS if names.count(name) > 1}
        extra: list[tuple[bytes, bytes]] = [*_SECURITY, *self._cross_origin.grant(headers)]
        answer = self._refuse(scope, headers, twice, extra)
        await (answer or self._app)(scope, receive, _add_headers(send, extra))

    def _refuse(
        self, scope: Scope, headers: dict[bytes, bytes], twice: set[bytes], extra: list[tuple[bytes, bytes]]
    ) -> Response | None:
        """Return the response to a request that goes no further; None for others."""
        if b"host" in twice or not self._allowed_origins.knows_host(headers.get(b"host", b"").decode("latin-1")):
            return create_problem(
                421, "the Host header names another server: add it to control.allowed_hosts if it is yours"
            )
        if b"origin" in headers and (b"origin" in twice or not self._knows_origin(headers)):
            return create_problem(
                403, "the request comes from a page of another origin: add it to control.allowed_origins if it is yours"
            )
        if granted := self._cross_origin.preflight(scope["method"], headers):
            extra += granted
            return Response(status_code=204)
        right = None if b"authorization" in twice else self._find_right(scope, headers)
        if right is None:
            return create_problem(401, "send a token that is right, as Authorization: Bearer TOKEN", headers=_CHALLENGE)
        if right < Right.WRITE and scope["method"] not in _READING:
            return create_problem(403, "this token is one to look with: take the one for changes")
        extra.append((ACCESS_HEADER, right.name.lower().encode()))
        return None

    def _knows_origin(self, headers: dict[bytes, bytes]) -> bool:
        origin = headers[b"origin"].decode("latin-1")
        return self._allowed_origins.knows_origin(origin) or is_origin_of(origin, headers[b"host"].decode("latin-1"))

    def _find_right(self, scope: Scope, headers: dict[bytes, bytes]) -> Right | None:
        given = headers.get(b"authorization")
        if given is not None:
            token = bearer_token(given)
            return None if token is None else self._tokens.right(token)
        if not self._tokens.required:
            return Right.WRITE
        path: str = scope["path"]
        is_page = scope["method"] in _READING and (path == "/" or path.startswith("/assets/"))
        return Right.READ if is_page else None


def _add_headers(send: Send, extra: Iterable[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in extra if pair[0] not in names)]}
            if b"cache-control" not in names:
                message["headers"].append((b"cache-control", b"no-store"))
        await send(message)

    return send_with_headers
