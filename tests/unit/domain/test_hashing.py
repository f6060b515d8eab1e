"""Keyed hashes: equal for equal things, different for all else, useless without the key."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from riglm.domain.hashing import MAX_CANONICAL_LENGTH, KeyedHasher, canonical_json

HASHER = KeyedHasher(bytes(range(32)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_equal_arguments_hash_equal_however_they_are_spelt(value):
    plain = json.dumps(value).encode()
    other = json.dumps(_reversed(value), indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert HASHER.arguments(plain) == HASHER.arguments(other)


def _reversed(value):
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(each) for each in value] if isinstance(value, list) else value


NEARLY_JSON = st.text('0123456789eE+-.[]{}:,"\\\\/ udtrnfalse\té\ud83d\0', max_size=30)


@given(JSON.map(json.dumps) | NEARLY_JSON)
@example("-0")
@example("1E400")
@example("123456789012345678901234567890")
@example('"\\ud800"')
@example('{"a":1,"a":2}')
@example("NaN")
@example("\ufeff{}")
def test_the_one_spelling_is_that_of_the_standard_library(text):
    raw = text.encode("utf-8", "surrogatepass")
    try:
        value = json.loads(raw)
        expected = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        expected = None
    assert canonical_json(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"1" * 10_000,
        b"[" * 100_000,
        b'{"a":"' + b"x" * MAX_CANONICAL_LENGTH + b'"}',
    ],
    ids=["empty", "torn", "no utf-8", "nan", "infinite", "huge number", "deep", "long"],
)
def test_what_cannot_be_put_in_one_spelling_is_hashed_as_it_came(raw):
    assert HASHER.arguments(raw) == HASHER.arguments(bytes(raw))
    assert HASHER.arguments(raw) != HASHER.arguments(raw + b" ")
    assert len(HASHER.arguments(raw)) == 32


def test_another_key_makes_other_hashes():
    other = KeyedHasher(bytes(32))
    assert HASHER.arguments(b"{}") != other.arguments(b"{}")
    assert HASHER.principal("me") != other.principal("me")


def test_the_same_text_in_another_role_hashes_differently():
    text = '"x"'
    hashes = [HASHER.arguments(text.encode()), HASHER.client_id(text), HASHER.principal(text), HASHER.session_key(text)]
    assert len(set(hashes)) == 4


def test_the_parts_of_a_client_cannot_be_moved_from_one_to_the_next():
    assert HASHER.client_id("ab", "c") != HASHER.client_id("a", "bc")
    assert HASHER.client_id("a", "", "b") != HASHER.client_id("a", "b", "")


def test_hashes_stay_the_same_from_release_to_release():
    assert HASHER.arguments(b'{"b":1,"a":[true]}') == "7970089ddeec905cb65bc8c5c148de84"
    assert HASHER.client_id("codex", "me", "127.0.0.1") == "45a9c511c39b9bc39b430d6632d77ea6"


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        KeyedHasher(b"short")
