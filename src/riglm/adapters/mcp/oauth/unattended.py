"""Obtains tokens without a user: by the credentials of the client, or by an assertion of an identity provider."""

from pathlib import Path
from typing import Final

import httpx2
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from riglm.adapters.mcp.oauth.accounts import Account
from riglm.adapters.mcp.oauth.ping import authorize, require_https
from riglm.adapters.mcp.oauth.response_limit import post_form
from riglm.adapters.mcp.oauth.token_requests import read_token_response
from riglm.domain.access import is_same_issuer
from riglm.domain.errors import RiglmError
from riglm.domain.upstream import IdentityProvider, UpstreamSpec


class Issuer(str):
    """An issuer that equals the other spelling of itself; the SDK compares issuers by `!=` alone."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and is_same_issuer(str(other), str(self))

    def __ne__(self, other: object) -> bool:
        return not self == other


class AnySlashProvider(OAuthClientProvider):
    """Expects an `Issuer`; the metadata keep the spelling of the authorization server.

    Of several authorization servers that the resource names, it uses `preferred_issuer`.
    """

    preferred_issuer = ""

    def _select_authorization_server(self, advertised: list[str]) -> str:
        preferred = (each for each in advertised if is_same_issuer(each, self.preferred_issuer))
        return next(preferred, None) or super()._select_authorization_server(advertised)

    def _expected_issuer(self) -> str:
        return Issuer(super()._expected_issuer())


_TIMEOUT_SECONDS: Final = 20.0
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105


class _SecretProvider(AnySlashProvider, ClientCredentialsOAuthProvider):
    """Authenticates by the secret of the client."""


class _KeyProvider(AnySlashProvider, PrivateKeyJWTOAuthProvider):
    """Authenticates by JWTs that the client signs."""


class MemoryStorage(TokenStorage):
    """Provides the configured client, if any, to the SDK, and keeps the tokens that a provider obtains."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """The provider has it."""


async def obtain_tokens(spec: UpstreamSpec) -> Account:
    """Return an account of the server, by the grant type of its configuration. Nothing is stored.

    Raises:
        RiglmError: the server does not require a token, a file cannot be read, or the authorization server refused.
    """
    storage, client = MemoryStorage(), spec.oauth
    try:
        status = await authorize(spec, _provider(spec, storage), client.scopes, _TIMEOUT_SECONDS)
    except RiglmError as error:
        raise RiglmError(f"{spec.name}: the grant {client.grant_type} failed: {error}") from None
    if storage.tokens is None:
        raise RiglmError(f"{spec.name} does not require a token: it answered HTTP {status} without one")
    account = Account(
        server=spec.name,
        url=spec.url,
        principal=spec.principal,
        issuer=client.issuer,
        token_endpoint="",
        client_id=client.id,
        access_token="",
    )
    tokens = storage.tokens
    return account.with_tokens(
        tokens.access_token, refresh_token=None, scope=tokens.scope, expires_in=tokens.expires_in
    )


def _provider(spec: UpstreamSpec, storage: TokenStorage) -> httpx2.Auth:
    client, scope = spec.oauth, " ".join(spec.oauth.scopes) or None
    if client.identity_provider is not None:
        provider = client.identity_provider

        async def assert_identity(audience: str, resource: str) -> str:
            return await _exchange(provider, audience, resource)

        return IdentityAssertionOAuthProvider(
            spec.url,
            storage,
            client_id=client.id,
            client_secret=client.secret,
            issuer=Issuer(client.issuer),
            assertion_provider=assert_identity,
            scope=scope,
            token_endpoint_auth_method="client_secret_basic",  # noqa: S106
        )
    if client.secret:
        return _SecretProvider(spec.url, storage, client.id, client.secret, scope=scope, issuer=client.issuer)
    key = _read(client.private_key_file)
    signed = SignedJWTParameters(
        issuer=client.id, subject=client.id, signing_key=key, signing_algorithm=_algorithm(key)
    )
    return _KeyProvider(
        spec.url, storage, client.id, signed.create_assertion_provider(), scope=scope, issuer=client.issuer
    )


async def _exchange(provider: IdentityProvider, audience: str, resource: str) -> str:
    """Exchange the ID token for an assertion, RFC 8693."""
    require_https(provider.token_endpoint)
    form = {
        "grant_type": _GRANT,
        "requested_token_type": _ID_JAG,
        "subject_token": _read(provider.id_token_file).strip(),
        "subject_token_type": _ID_TOKEN,
        "audience": audience,
        "resource": resource,
        "client_id": provider.client_id,
    }
    fix = "set `auth.identity_provider.token_endpoint` to the new URL if it is right"
    response = await post_form(provider.token_endpoint, form, _TIMEOUT_SECONDS, fix)
    place, media_type = httpx2.URL(provider.token_endpoint).host, response.headers.get("content-type", "")
    return read_token_response(
        f"the identity provider {place}", response.status_code, media_type, response.content
    ).access_token


def _read(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise RiglmError(f"{file} cannot be read: {reason}") from None


def _algorithm(pem: str) -> str:
    """Return the JWT algorithm of a private key, RFC 7518."""
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError) as error:
        words = f"the private key cannot be used: {type(error).__name__} — fix: store it as PEM without a password"
        raise RiglmError(words) from None
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    raise RiglmError("the private key cannot be used — fix: create an RSA, P-256, P-384, P-521 or Ed25519 key")
