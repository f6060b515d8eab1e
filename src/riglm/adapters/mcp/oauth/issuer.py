"""Makes the OAuth providers of the MCP SDK accept an issuer with and without a final slash on an empty path."""

from mcp.client.auth import OAuthClientProvider

from riglm.domain.issuers import is_same_issuer


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
