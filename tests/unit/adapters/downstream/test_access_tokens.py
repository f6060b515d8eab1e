"""Which tokens of a trusted issuer are access tokens for riglm."""

import asyncio
import json
import time

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from riglm.adapters.mcp.downstream.access_tokens import (
    GRACE_SECONDS,
    KEYS_TTL_SECONDS,
    RETRY_SECONDS,
    AccessTokenVerifier,
    InvalidTokenError,
    KeysUnavailableError,
    SigningKeys,
)
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


class Stage:
    """Keys in a file, and a clock that is set."""

    def __init__(self, folder):
        self.file, self.now, self.changes = folder / "keys.json", 1000.0, 0
        settings = TokenIssuerSettings(issuer="https://login.example.org", audience="riglm", jwks=str(self.file))
        self.keys = SigningKeys(settings, self._changed, lambda: self.now)

    def _changed(self):
        self.changes += 1

    def publish(self, *key_ids, use="sig"):
        keys = [RSAKey.generate_key(2048, {"use": use, "kid": key_id}) for key_id in key_ids]
        self.file.write_text(json.dumps(KeySet(keys).as_dict(private=False)))


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


async def test_keys_are_fetched_again_in_the_background(stage):
    stage.publish("a")
    assert (await stage.keys.find("a")).key_id == "a"
    stage.publish("b")
    stage.now += KEYS_TTL_SECONDS + 1
    assert (await stage.keys.find("a")).key_id == "a", "a stale key is used until the fetch ends"
    await asyncio.shield(stage.keys.refresh())
    assert (await stage.keys.find("b")).key_id == "b"
    stage.now += RETRY_SECONDS
    assert await stage.keys.find("a") is None
    assert stage.changes == 2


async def test_keys_outlast_an_outage_for_a_day_and_no_longer(stage, caplog):
    stage.publish("a")
    await stage.keys.find("a")
    stage.file.unlink()
    stage.now += KEYS_TTL_SECONDS + GRACE_SECONDS - 1
    assert (await stage.keys.find("a")).key_id == "a"
    stage.now += 2
    with pytest.raises(KeysUnavailableError):
        await stage.keys.find("a")
    assert "cannot fetch the keys" in caplog.text


async def test_a_failed_fetch_is_not_repeated_at_once(stage):
    with pytest.raises(KeysUnavailableError):
        await stage.keys.find("a")
    stage.publish("a")
    assert stage.keys.refresh() is None
    with pytest.raises(KeysUnavailableError):
        await stage.keys.find("a")
    stage.now += RETRY_SECONDS
    assert (await stage.keys.find("a")).key_id == "a"


async def test_a_token_without_a_key_id_is_of_the_only_key(stage):
    stage.publish("a")
    assert (await stage.keys.find(None)).key_id == "a"
    stage.publish("a", "b")
    stage.now += RETRY_SECONDS
    await asyncio.shield(stage.keys.refresh())
    assert await stage.keys.find(None) is None


@pytest.mark.parametrize("content", ["[]", "{", '{"keys": 1}', '{"keys": []}', '{"keys": [{"kty": "new"}]}'])
async def test_a_faulty_key_set_is_logged_and_no_key_is_known(stage, content, caplog):
    stage.file.write_text(content)
    with pytest.raises(KeysUnavailableError):
        await stage.keys.find("a")
    assert "cannot fetch the keys" in caplog.text


async def test_keys_for_encryption_verify_nothing(stage):
    stage.publish("a", use="enc")
    assert await stage.keys.find("a") is None
