import asyncio
import json

import pytest
from joserfc.jwk import KeySet, RSAKey

from riglm.adapters.mcp.downstream.access_tokens import (
    GRACE_SECONDS,
    KEYS_TTL_SECONDS,
    RETRY_SECONDS,
    KeysUnavailableError,
    SigningKeys,
)
from riglm.domain.schemas.downstream import TokenIssuerSettings


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
