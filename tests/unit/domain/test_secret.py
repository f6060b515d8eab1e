from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.redaction import (
    MASK,
    Redactor,
    is_clearly_written,
    mask_address,
    mask_url,
    passwords_of_url,
    place_of_url,
    secrets_of_url,
)

_PASSWORDS = st.text(min_size=2, max_size=30).map(lambda text: f"<{text}>")
"""With marks around them, so that no password is a part of the rest of the URL by chance."""

_ALL_BUT_PASSWORD = st.sampled_from(
    [
        ("postgresql://user:", "@host/db"),
        ("postgresql://:", "@host:5432,other/db?sslmode=require"),
        ("redis://:", "@host:6379/0"),
        ("redis://:1234/", "@host"),
        ("https://user:", "@host/mcp?x=1#y"),
    ]
)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("http://host/path", "http://host/path"),
        ("https://me:pw@host:8/p?key=v&b=c#frag", "https://***@host:8/p?***#***"),
        ("http://me@host", "http://***@host"),
        ("postgresql://u:s3/cret@host/db", "postgresql://***@host/db"),
        ("postgresql://u:s3#cret@host/db", "postgresql://***@host/db"),
        ("postgresql://u:s3?cret@host/db?sslmode=disable", "postgresql://***@host/db?***"),
        ("redis://:s3cret/pw@h", "redis://***@h"),
        ("redis://:1234/s3cret@h", "redis://***@h"),
        ("postgresql://u:p@s3/cret@host/db", "postgresql://***@host/db"),
        ("https://host/@scope/name", "https://host/@scope/name"),
        ("https://me@host/p?mail=a@b", "https://***@host/p?***"),
        ("http://[::1", "***"),
    ],
)
def test_a_url_is_shown_without_user_query_and_fragment(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@given(_PASSWORDS, _ALL_BUT_PASSWORD)
def test_a_url_never_shows_its_password_however_that_is_written(password: str, around: tuple[str, str]) -> None:
    url = password.join(around)
    assert password not in mask_url(url)
    assert password not in place_of_url(url)
    assert password not in Redactor(passwords_of_url(url))(f"cannot connect to {url}!")
    assert any(password in known for known in passwords_of_url(url))
    assert any(password in known for known in secrets_of_url(url))


@given(_PASSWORDS)
def test_a_password_that_is_encoded_is_clear_and_known_as_meant(password: str) -> None:
    url = f"postgresql://user:{quote(password, safe='', errors='replace')}@host:5432/db"
    if "\0" not in password:
        assert is_clearly_written(url)
    assert mask_url(url) == f"postgresql://{MASK}@host:5432/db"
    assert place_of_url(url) == "host:5432"


@pytest.mark.parametrize("password", ["a/b", "a?b", "a#b", "a@b", "a[b", "a]b", "a b", "a\tb", "a%b", "a%zz", "a%00"])
def test_a_password_that_is_not_encoded_is_unclear(password: str) -> None:
    assert not is_clearly_written(f"postgresql://user:{password}@host/db")
    assert not is_clearly_written(f"redis://:{password}@host")


@pytest.mark.parametrize(
    "url",
    ["postgresql:///db?host=/run/a@b", "unix:///run/a@b", "redis://h:1/0", "postgresql://me:p%40:ss~!$@h1:1,h2/d"],
)
def test_what_is_no_password_makes_no_url_unclear(url: str) -> None:
    assert is_clearly_written(url)


def test_the_secrets_of_a_url_are_known_as_written_and_as_meant() -> None:
    assert set(secrets_of_url("http://me:p%40ss@h/?key=a%20b")) == {"p%40ss", "p@ss", "a%20b", "a b"}
    assert secrets_of_url("http://[::1") == []


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://h/s/SECRET/mcp", "https://h/s/***/mcp"),
        ("https://me:pw@h:8/mcp/3f2c9a77?key=v#x", "https://***@h:8/mcp/***?***#***"),
        ("https://h/sk-live-abc123def/sse", "https://h/***/sse"),
        ("https://h/api/v2/@scope/server-memory/mcp", "https://h/api/v2/@scope/server-memory/mcp"),
        ("https://h", "https://h"),
        ("https://h/", "https://h/"),
        ("https://h/a%2Fq9x8w7v6", "https://h/***"),
        ("http://[::1", "***"),
    ],
)
def test_of_an_address_all_parts_are_covered_that_look_random(url: str, masked: str) -> None:
    assert mask_address(url) == masked
    assert mask_address(masked) == masked
    assert not any(secret in masked for secret in secrets_of_url(url))


def test_the_passwords_of_a_url_are_known_and_its_ordinary_options_are_not() -> None:
    assert passwords_of_url("postgresql://me:p%40ss@h/db?sslmode=require") == ("p%40ss", "p@ss")
    assert passwords_of_url("postgresql:///db?host=/run&sslpassword=pw") == ("pw",)
    assert passwords_of_url("postgresql://h/db") == passwords_of_url("http://[::1") == ()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("my canary sings", "my *** sings"),
        ("longer-canary sings", "*** sings"),
        ("GET http://u:p@h/x?k=v failed", "GET http://***@h/x?*** failed"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic abc=='}", "{'authorization': 'Basic ***'}"),
        ("authorization=abc", "authorization=***"),
        ("the bearer abc", "the bearer ***"),
        ("nothing here", "nothing here"),
        ("sqlite:////tmp/x", "sqlite:////tmp/x"),
        ("file:///a b and HTTP://Host?", "file:///a b and HTTP://Host?"),
        ("the wheel (https://h/p;v=1), see https://h//x", "the wheel (https://h/p;v=1), see https://h//x"),
        ("http://h/p#a?b then http://u:p@q@h?#", "http://h/p#*** then http://***@h?#"),
    ],
)
def test_secrets_are_covered_in_text(text: str, clean: str) -> None:
    assert Redactor(["canary", "longer-canary", "abc"])(text) == clean


def test_a_very_short_secret_does_not_cover_innocent_text() -> None:
    assert Redactor(["a", ""])("a banana") == "a banana"


@pytest.mark.parametrize("text", ["y" * 2_000_000, "://" * 500_000, "authorization: " * 100_000, " " * 2_000_000])
@pytest.mark.timeout(30)
def test_long_text_is_searched_in_linear_time(text: str) -> None:
    assert Redactor(["canary"])(text)
