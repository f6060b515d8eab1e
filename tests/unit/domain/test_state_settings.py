"""The configuration of what several processes share."""

import pytest
from pydantic import ValidationError

from riglm.domain.schemas.settings import Settings

KEY = "k3y" * 11


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_a_process_is_alone_unless_it_is_told_otherwise() -> None:
    assert (settings().state.kind, settings().state.url, settings().privacy.key) == ("memory", None, None)


@pytest.mark.parametrize("url", ["redis://h/0", "rediss://u:p@h:6380/1", "unix:///run/redis.sock"])
def test_a_url_chooses_redis(url: str) -> None:
    assert settings(state={"url": url}).state.kind == "redis"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": {"url": "http://h"}}, "write it as redis://USER:PASSWORD@HOST:PORT/0"),
        ({"state": {"kind": "redis"}}, "add url: redis://"),
        ({"state": {"kind": "memory", "url": "redis://h"}}, "set the kind to redis"),
        ({"state": {"url": "redis://h", "prefix": "two words"}}, "String should match"),
        ({"state": {"url": "redis://h", "deadline": 60}}, "less than or equal to 10"),
        ({"privacy": {"key": "short"}}, "openssl rand -hex 32"),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**values)
    assert words in "\n".join(error["msg"] for error in caught.value.errors())


@pytest.mark.parametrize("section", ["state", "storage"])
@pytest.mark.parametrize("password", ["s3/cret", "1234/s3cret", "s3#cret", "s3?cret", "s3@cret", "s3%cret"])
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(section: str, password: str) -> None:
    scheme = "redis" if section == "state" else "postgresql"
    with pytest.raises(ValidationError) as caught:
        settings(**{section: {"url": f"{scheme}://me:{password}@host/0"}})
    [error] = caught.value.errors()
    assert "write / as %2F" in error["msg"]
    assert "cret" not in str(caught.value)


def test_passwords_and_the_key_are_secrets() -> None:
    found = settings(state={"url": "redis://u:p%40ss@h/0?password=q%21"}, privacy={"key": KEY}).secrets()
    assert {"p%40ss", "p@ss", "q!", KEY} <= set(found)
    assert settings(state={"url": "redis://[broken"}).secrets() == ()
