"""riglm as an OAuth protected resource: the access tokens of an OpenID provider, and metadata (RFC 9728).

Tokens are JWTs, verified with signing keys that are fetched, cached and rotated.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import jwt

from riglm.adapters.mcp.downstream.http_server import WELL_KNOWN, Identity, Rejection
from riglm.adapters.mcp.wire.dialing import create_httpx_context
from riglm.domain.access import bearer_token, is_loopback_origin, is_protected, is_same_issuer, issuer_spellings
from riglm.domain.schemas.downstream import TokenIssuerSettings

if TYPE_CHECKING:
    import httpx2

LEEWAY_SECONDS: Final = 300.0
"""Maximum clock difference between riglm and the issuer."""

FETCH_TIMEOUT_SECONDS: Final = 5.0
"""Seconds to wait for the issuer's metadata and keys together."""

KEYS_TTL_SECONDS: Final = 3600.0
"""Seconds after which the keys are fetched again, in the background."""

GRACE_SECONDS: Final = 86_400.0
"""Seconds for which keys are used while the issuer cannot be reached."""

RETRY_SECONDS: Final = 10.0
"""Minimum seconds between a fetch that failed and the next one."""

_PAUSE_SECONDS: Final = 1.0
"""Minimum seconds between two fetches, regardless of how many tokens name unknown keys."""

MAX_FETCHED_BYTES: Final = 1 << 18
MAX_VERIFIED_TOKENS: Final = 10_000
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED_CLAIMS: Final = ["exp", "iss", "aud", "sub"]
_TOKEN_TYPES: Final = frozenset({"at+jwt", "jwt"})
_ACCESS_KINDS: Final = frozenset({"access", "access_token", "at+jwt", "bearer"})
_ID_TOKEN_CLAIMS: Final = frozenset({"at_hash", "c_hash", "nonce", "s_hash"})
_METADATA: Final = ("openid-configuration", "oauth-authorization-server")
_log: Final = logging.getLogger("riglm.downstream")


class InvalidTokenError(Exception):
    """Raised when a token does not give access; the text is fit for the client."""


class KeysUnavailableError(Exception):
    """Raised when a token cannot be judged because the issuer's keys cannot be fetched."""


class SigningKeys:
    """The issuer's public keys."""

    def __init__(
        self, settings: TokenIssuerSettings, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is fetched yet. `on_change` is called when a fetch brought different keys."""
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        self._jwks: object = None
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: object) -> jwt.PyJWK | None:
        """Return the key with this id; without an id, the only key there is.

        Raises:
            KeysUnavailableError: the key is not known, and the issuer cannot be reached.
        """
        if self.is_stale:
            self.refresh()
        key = self._known(key_id)
        if key is None:
            if (fetching := self.refresh()) is not None:
                await asyncio.shield(fetching)
            key = self._known(key_id)
            if key is None and self._fetched_at < self._tried_at:
                raise KeysUnavailableError
        return key

    @property
    def is_stale(self) -> bool:
        """True if the keys should be fetched again."""
        return self._clock() - self._fetched_at > KEYS_TTL_SECONDS

    def refresh(self) -> "asyncio.Task[None] | None":
        """Fetch the keys in the background, unless that failed a moment ago. Returns the fetch in flight."""
        since = self._clock() - self._tried_at
        if self._fetching is None and (since >= RETRY_SECONDS or self._fetched_at >= self._tried_at):
            pause = max(0.0, _PAUSE_SECONDS - since)
            self._tried_at = self._clock() + pause
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(pause))
            self._fetching.add_done_callback(self._end_fetch)
        return self._fetching

    def _end_fetch(self, _: "asyncio.Task[None]") -> None:
        self._fetching = None

    def _known(self, key_id: object) -> jwt.PyJWK | None:
        if self._clock() - self._fetched_at > KEYS_TTL_SECONDS + GRACE_SECONDS:
            return None
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == key_id), None)

    async def _fetch(self, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                found = await _load_jwks(self._settings)
            keys = [key for key in jwt.PyJWKSet.from_dict(found).keys if key.public_key_use in ("sig", None)]
        except Exception as error:  # noqa: BLE001  # of files, of the network and of what was sent; the old keys stay
            reason = str(error) or type(error).__name__
            _log.warning("cannot fetch the keys of downstream.auth", extra={"error": reason, "keys": len(self._keys)})
            return
        self._fetched_at = max(self._clock(), self._tried_at)
        if found != self._jwks:
            self._jwks, self._keys = found, keys
            self._on_change()


def _key_for(key: jwt.PyJWK, algorithm: str) -> Any:
    """Return the key for any algorithm of its type, if it names none: PyJWT assumes RS256 for RSA keys."""
    is_free = key.key_type == "RSA" and "alg" not in key._jwk_data  # noqa: SLF001  # PyJWT does not expose it
    return key.key if is_free and algorithm.startswith(("RS", "PS")) else key


class AccessTokenVerifier:
    """Verifies tokens; a verified one is remembered by its hash until it expires or the keys change."""

    def __init__(self, settings: TokenIssuerSettings) -> None:
        self._settings = settings
        self._verified: OrderedDict[tuple[bytes, str], tuple[float, Identity]] = OrderedDict()
        self.keys: Final = SigningKeys(settings, self._verified.clear)

    def find(self, token: bytes, path: str) -> Identity | None:
        """Return the caller of a token that was verified for a path before and has not expired."""
        found = self._verified.get((hashlib.sha256(token).digest(), path))
        if found is None or found[0] < time.time():
            return None
        if self.keys.is_stale:
            self.keys.refresh()
        return found[1]

    async def verify(self, token: bytes, path: str) -> Identity:
        """Return the caller of a token for the audience, or for `path` below it.

        Raises:
            InvalidTokenError: it gives no access.
            KeysUnavailableError: the issuer's keys cannot be fetched.
        """
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS:
                raise InvalidTokenError("the token is not signed with an accepted algorithm")
            key = await self.keys.find(header.get("kid"))
            if key is None:
                raise InvalidTokenError("the token is signed with an unknown key")
            claims = jwt.decode(
                token,
                _key_for(key, header["alg"]),
                algorithms=_ALGORITHMS,
                issuer=issuer_spellings(self._settings.issuer),
                audience=[self._settings.audience, self._settings.audience + path],
                leeway=LEEWAY_SECONDS,
                options={"require": _REQUIRED_CLAIMS, "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidTokenError("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise InvalidTokenError("the token is for a different audience") from None
        except jwt.InvalidIssuerError:
            raise InvalidTokenError("the token is of a different issuer") from None
        except (jwt.PyJWTError, ValueError, OverflowError):
            raise InvalidTokenError("the token is invalid") from None
        if not _is_access_token(header, claims):
            raise InvalidTokenError("the token is not an access token")
        subject = claims["sub"]
        if not subject or not subject.isprintable():
            raise InvalidTokenError("the token names no subject")
        identity = Identity(
            f"{self._settings.issuer}#{subject}",
            _texts(_claim(claims, self._settings.groups_claim)),
            _words(claims.get("scope")) | _words(claims.get("scp")),
        )
        self._verified[hashlib.sha256(token).digest(), path] = (
            min(int(claims["exp"]), 1 << 53) + LEEWAY_SECONDS,
            identity,
        )
        if len(self._verified) > MAX_VERIFIED_TOKENS:
            self._verified.popitem(last=False)
        return identity


def _is_access_token(header: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    """Return False for ID, refresh and other tokens of the issuer, which may have the same audience.

    The type is in the header (RFC 9068), or in the claims `typ` (Keycloak) or `token_use` (Cognito); `JWT` is none. A
    token without any must have none of the claims that only ID tokens have.
    """
    named = [header.get("typ", "JWT"), *(claims[name] for name in ("typ", "token_use") if name in claims)]
    kind, *of_claims = [str(each).lower().removeprefix("application/") for each in named]
    marks = [each for each in of_claims if each != "jwt"]
    if kind not in _TOKEN_TYPES or not _ACCESS_KINDS.issuperset(marks):
        return False
    return kind == "at+jwt" or bool(marks) or _ID_TOKEN_CLAIMS.isdisjoint(claims)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by its name, or by the path to it with dots, such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    first, _, rest = name.partition(".")
    inner = claims.get(first)
    return _claim(inner, rest) if rest and isinstance(inner, dict) else None


def _texts(value: object) -> frozenset[str]:
    return frozenset(each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))


def _words(value: object) -> frozenset[str]:
    return frozenset(word for text in _texts(value) for word in text.split())


async def _load_jwks(settings: TokenIssuerSettings) -> Any:
    """Return the JSON Web Key Set of the issuer."""
    place = settings.jwks
    if place and "://" not in place:
        return json.loads(await asyncio.to_thread(lambda: Path(place).expanduser().read_bytes()))
    client = await asyncio.to_thread(_create_client)  # importing it and loading certificates takes a moment
    async with client:
        return await _fetch_json(client, place or await _discover(client, settings.issuer))


def _create_client() -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415  # a tenth of a second, in a thread

    headers = {"accept": "application/json", "accept-encoding": "identity"}
    return httpx2.AsyncClient(headers=headers, timeout=FETCH_TIMEOUT_SECONDS, verify=create_httpx_context())


async def _discover(client: "httpx2.AsyncClient", issuer: str) -> str:
    """Return the URL of the keys according to the issuer's metadata: OpenID's, else those of RFC 8414."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    try:
        metadata = await _fetch_json(client, f"{origin}{path}/.well-known/{_METADATA[0]}")
    except ValueError:
        metadata = await _fetch_json(client, f"{origin}/.well-known/{_METADATA[1]}{path}")
    if not is_same_issuer(str(metadata.get("issuer")), issuer):
        raise ValueError("its metadata is of a different issuer")
    return str(metadata["jwks_uri"])


async def _fetch_json(client: "httpx2.AsyncClient", url: str) -> Any:
    if not is_protected(url):
        raise ValueError(f"{url} is not https")
    body = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answered with status {response.status_code}")
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_FETCHED_BYTES:
                raise ValueError(f"{url} answered with more than {MAX_FETCHED_BYTES} bytes")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError(f"{url} answered with no JSON object")  # noqa: TRY004  # as the other answers
    return found


class ProtectedResource:
    """Admits callers by access tokens, and leads clients to its metadata by challenges."""

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
