"""riglm as an OAuth protected resource: its metadata (RFC 9728), and the challenges that lead clients there."""

import json
from collections.abc import Mapping

from riglm.adapters.mcp.downstream.access_tokens import (
    RETRY_SECONDS,
    AccessTokenVerifier,
    InvalidTokenError,
    KeysUnavailableError,
)
from riglm.adapters.mcp.downstream.http_server import WELL_KNOWN, Identity, Rejection
from riglm.domain.access import bearer_token, is_loopback_origin
from riglm.domain.schemas.downstream import TokenIssuerSettings


class ProtectedResource:
    """Admits callers by access tokens."""

    def __init__(self, settings: TokenIssuerSettings) -> None:
        self._settings = settings
        self._verifier = AccessTokenVerifier(settings)

    def start(self) -> None:
        """Fetch the issuer's keys in the background, before the first client needs them."""
        self._verifier.keys.refresh()

    async def admit(self, headers: Mapping[bytes, bytes], path: str, profile: str) -> Identity | Rejection:
        """Return the caller of a request for the resource at `path`, which may be that of a profile."""
        token = bearer_token(headers.get(b"authorization", b""))
        if token is None:
            return self._challenge(401, "An access token is required", headers, path)
        suffix = f"/{profile}" if profile else ""
        try:
            identity = self._verifier.find(token, suffix) or await self._verifier.verify(token, suffix)
        except InvalidTokenError as error:
            return self._challenge(401, f"Unauthorized: {error}", headers, path, "invalid_token")
        except KeysUnavailableError:
            words = "The issuer's keys cannot be fetched, so the access token cannot be verified"
            return Rejection(503, words, (b"retry-after", b"%d" % RETRY_SECONDS))
        missing = [scope for scope in self._settings.scopes if scope not in identity.scopes]
        if missing:
            words = f"Forbidden: the access token lacks the scope {' '.join(missing)}"
            return self._challenge(403, words, headers, path, "insufficient_scope")
        return identity

    def metadata(self, headers: Mapping[bytes, bytes], path: str) -> bytes:
        """Return the metadata of the resource at `path`."""
        settings = self._settings
        fields: dict[str, object] = {
            "resource": _origin(headers, settings.audience) + path,
            "authorization_servers": [settings.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "riglm",
        }
        if settings.scopes:
            fields["scopes_supported"] = settings.scopes
        return json.dumps(fields).encode()

    def _challenge(
        self, status: int, words: str, headers: Mapping[bytes, bytes], path: str, error: str = ""
    ) -> Rejection:
        settings = self._settings
        fields = {"resource_metadata": f"{_origin(headers, settings.audience)}{WELL_KNOWN}{path}"}
        if error:
            fields |= {"error": error, "error_description": words}
        if settings.scopes:
            fields["scope"] = " ".join(settings.scopes)
        challenge = ", ".join(f'{name}="{value}"' for name, value in fields.items())
        return Rejection(status, words, (b"www-authenticate", f"Bearer {challenge}".encode("latin-1")))


def _origin(headers: Mapping[bytes, bytes], audience: str) -> str:
    """Return the origin that the client used: https through a reverse proxy, unless it is loopback or `audience`."""
    host = headers.get(b"host", b"").decode("latin-1")
    origin = f"http://{host}"
    return origin if is_loopback_origin(origin) or f"{audience}/".startswith(f"{origin}/") else f"https://{host}"
