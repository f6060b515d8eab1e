"""HTTP responses that refuse the credentials, as errors for the client."""

import re
from typing import Final

from riglm.adapters.mcp.wire.http_client import HttpHeaders
from riglm.domain import jsonrpc
from riglm.domain.upstream import UpstreamSpec

REFUSALS: Final = frozenset({401, 403})
"""HTTP statuses that refuse the credentials."""

_SCOPE: Final = re.compile(rb'\bscope="?([!#-\[\]-~ ]+)')
_DESCRIPTION: Final = re.compile(rb'\berror_description="((?:[^"\\]|\\.)+)"')
_TEXT_MEMBERS: Final = ("error_description", "message", "Message", "detail", "msg", "reason", "title", "error")
_MAX_TEXT: Final = 200
_MAX_BODY_BYTES: Final = 1 << 16


class Refusal:
    """A response with one of the `REFUSALS`, as it comes."""

    def __init__(self, spec: UpstreamSpec, status: int, headers: HttpHeaders) -> None:
        self._spec = spec
        self._status = status
        self._challenge = headers.get(b"www-authenticate") or b""
        self._body = b""

    def add(self, chunk: bytes) -> None:
        """Keep the beginning of the body."""
        self._body += chunk[: _MAX_BODY_BYTES - len(self._body)]

    @property
    def text(self) -> str:
        """The error for it, with the scope that the server requires and its text."""
        scope, described = required_scope(self._challenge), _DESCRIPTION.search(self._challenge)
        text = (
            _shortened(re.sub(r"\\(.)", r"\1", described[1].decode("utf-8", "replace")))
            if described
            else _text_of(self._body)
        )
        hint = f"{self._spec.sign_in_hint}see `auth` and `headers` of the upstream"
        words = f"refused the credentials (HTTP {self._status}): {hint}"
        found = f"; it requires the scope {scope}" if scope else ""
        return f"{words}{found}; it says: {text}" if text else f"{words}{found}"


def required_scope(challenge: bytes) -> str:
    """Return the scopes that a server requires in addition, by its WWW-Authenticate header (RFC 6750 section 3.1)."""
    scope = _SCOPE.search(challenge) if b"insufficient_scope" in challenge else None
    return scope[1].decode("ascii") if scope else ""


def _text_of(refusal: bytes) -> str:
    """Return the text of a refusal's body, shortened: what JSON calls an error or a message, or plain text."""
    body = jsonrpc.members(refusal)
    parts = [jsonrpc.members(body.get("error", b"")), body]
    parts += [jsonrpc.members(each) for name in ("detail", "errors") for each in jsonrpc.elements(body.get(name, b""))]
    values = (part.get(name) for part in parts for name in _TEXT_MEMBERS)
    text = next((found for value in values if (found := jsonrpc.text(value))), "")
    if not text and not refusal.lstrip().startswith((b"{", b"[", b"<")):
        text = refusal[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    return _shortened(text)


def _shortened(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:_MAX_TEXT]
