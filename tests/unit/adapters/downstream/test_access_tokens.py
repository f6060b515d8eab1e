"""Which tokens of a trusted issuer are access tokens for riglm."""

import json
import time

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from riglm.adapters.mcp.downstream.access_tokens import AccessTokenVerifier, InvalidTokenError
from riglm.domain.schemas.downstream import TokenIssuerSettings

ISSUER = "https://login.example.org"
AUDIENCE = "https://tools.example.org/mcp"
KEY = RSAKey.generate_key(2048, {"use": "sig"}, auto_kid=True)


@pytest.fixture
def verify(tmp_path):
    """Verify a token with these claims and this `typ` against a configured issuer."""
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))

    async def check(claims, typ=None, issuer=ISSUER):
        header = {"alg": "RS256", "kid": KEY.kid, **({"typ": typ} if typ else {})}
        whole = {"iss": ISSUER, "sub": "ann", "aud": AUDIENCE, "exp": int(time.time()) + 600, **claims}
        settings = TokenIssuerSettings(issuer=issuer, audience=AUDIENCE, jwks=str(file))
        token = jwt.encode(header, whole, KEY).encode()
        return await AccessTokenVerifier(settings).verify(token, "")

    return check


@pytest.mark.parametrize(
    ("typ", "claims"),
    [
        (None, {}),
        ("JWT", {"scope": "tools"}),
        ("at+jwt", {}),
        ("application/at+jwt", {"nonce": "n"}),
        ("JWT", {"typ": "Bearer", "nonce": "n"}),
        ("JWT", {"typ": "JWT"}),
        ("JWT", {"typ": "application/at+jwt", "nonce": "n"}),
        ("JWT", {"token_use": "access"}),
    ],
)
async def test_an_access_token_gives_access(verify, typ, claims):
    assert (await verify(claims, typ)).principal == f"{ISSUER}#ann"


@pytest.mark.parametrize(
    ("typ", "claims"),
    [
        ("JWT", {"nonce": "n"}),
        (None, {"at_hash": "h"}),
        ("JWT", {"c_hash": "h"}),
        ("JWT", {"typ": "ID"}),
        ("JWT", {"typ": "JWT", "nonce": "n"}),
        (None, {"typ": "jwt", "at_hash": "h"}),
        ("application/jwt", {"typ": "application/JWT", "c_hash": "h"}),
        ("JWT", {"typ": "Refresh"}),
        ("JWT", {"token_use": "id"}),
        ("at+jwt", {"typ": "ID"}),
        ("id_token+jwt", {}),
        ("logout+jwt", {}),
        ("dpop+jwt", {}),
    ],
)
async def test_another_token_of_the_issuer_gives_no_access(verify, typ, claims):
    with pytest.raises(InvalidTokenError, match="not an access token"):
        await verify(claims, typ)


@pytest.mark.parametrize(
    ("configured", "of_token", "is_equal"),
    [
        ("https://a.example", "https://a.example/", True),
        ("https://a.example/", "https://a.example", True),
        ("https://a.example:444/", "https://a.example:444", True),
        ("https://a.example/x", "https://a.example/x/", False),
        ("https://a.example", "https://a.example//", False),
        ("https://a.example", "http://a.example", False),
        ("https://a.example", "https://A.example", False),
        ("https://a.example/", "https://a.example/?", False),
    ],
)
async def test_an_issuer_equals_itself_with_a_final_slash_on_an_empty_path_alone(
    verify, configured, of_token, is_equal
):
    if is_equal:
        assert (await verify({"iss": of_token}, issuer=configured)).principal == f"{configured}#ann"
    else:
        with pytest.raises(InvalidTokenError, match="different issuer"):
            await verify({"iss": of_token}, issuer=configured)
