"""What is kept outside of riglm: nobody without the key reads a name, forges a value, or moves one elsewhere."""

import zlib

import pytest

from riglm.application.session_sharing.signing import MAX, MAX_WRITERS, StateSigner, changed_by, head, read_head

KEY = bytes(32)
OTHER = bytes([1]) * 32


@pytest.fixture
def sealer():
    return StateSigner(KEY)


@pytest.mark.parametrize("plain", [b"", b"x", bytes(range(256)), b"long" * 100_000])
def test_what_was_sealed_is_opened_by_another_process_with_the_key(plain, sealer):
    assert StateSigner(KEY).opened("name", sealer.seal("name", plain)) == plain


def test_nothing_is_nothing(sealer, caplog):
    assert sealer.opened("name", None) is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value[:0],
        lambda value: value[:2],
        lambda value: value[:-1],
        lambda value: value + b"x",
        lambda value: value[:5] + bytes([value[5] ^ 1]) + value[6:],
        lambda value: b'{"plain":"json"}' + value[:0],
        lambda value: StateSigner(OTHER).seal("name", value),
    ],
)
def test_a_value_that_riglm_did_not_seal_is_ignored_and_said_once(spoil, sealer, caplog):
    value = spoil(sealer.seal("name", b"plain"))
    assert [sealer.opened("name", value) for _ in range(3)] == [None] * 3
    assert sealer.rejected == 3
    assert len(caplog.records) == 1
    assert "privacy.key" in caplog.records[0].__dict__["reason"]


def test_a_value_taken_from_another_name_is_ignored(sealer):
    assert sealer.opened("mine", sealer.seal("theirs", b"plain")) is None


def test_a_value_that_unpacks_to_too_much_is_ignored(sealer):
    bomb = zlib.compress(bytes(MAX + 1), 9)
    value = b"r1" + sealer._seal("name", bomb) + bomb
    assert sealer.opened("name", value) is None


def test_names_tell_nothing_and_keep_things_apart(sealer):
    names = {
        sealer.name("link", b"secret-session-id"),
        sealer.name("session", b"secret-session-id"),
        sealer.name("link", b"secret-session", b"-id"),
        sealer.name("link", b"secret", b"-session-id"),
        StateSigner(OTHER).name("link", b"secret-session-id"),
    }
    assert len(names) == 5
    assert not any("secret" in name for name in names)


# --- who changed a kept value last ---


def test_a_head_comes_back_as_it_was():
    assert read_head(head(7, {"a": 1, "b": 20})) == (7, {"a": 1, "b": 20})
    assert read_head(head(7, {})) == (7, {})


def test_a_head_of_an_earlier_riglm_names_no_writers():
    assert read_head(b"12") == (12, {})


@pytest.mark.parametrize(
    "line", [b"", b"x", b"-1", b"1 a", b"1 a=", b"1 a=b", b"1  a=1", b"9" * 16, b"1 a=" + b"9" * 16]
)
def test_what_is_no_head_is_none(line):
    assert read_head(line) is None


def test_the_latest_writers_are_told_each_with_its_last_change():
    writers = {}
    for number in range(MAX_WRITERS + 2):
        writers = changed_by(writers, f"w{number}", 1)
    writers = changed_by(writers, "w5", 2)
    assert list(writers) == [*(f"w{number}" for number in range(2, MAX_WRITERS + 2) if number != 5), "w5"]
    assert writers["w5"] == 2
