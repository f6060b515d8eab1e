"""What a line of a file of thoughts, or of the memory server's file, may be."""

import os

import pytest

from riglm.application.knowledge.importing import InvalidLineError, memory_of, numbered_lines, object_of, thought_of
from riglm.domain.errors import UnusableInputError

NOW = 1_700_000_000.0


def thought(**row):
    return thought_of({"text": "tea", **row}, "ann", NOW)


@pytest.mark.parametrize(
    "key",
    [
        *("private", "is_private", "Private", "private."),
        *("\uff50\uff52\uff49\uff56\uff41\uff54\uff45", "pri\u200bvate", "\u201cprivate\u201d", "PR\u00cdVATE"),
    ],
)
def test_however_private_is_spelt_it_is_private(key):
    assert thought(**{key: True}).is_private
    assert not thought(**{key: False}).is_private


@pytest.mark.parametrize("key", ["privates", "privateer", "not_private", "priv", ""])
def test_a_key_with_other_letters_does_not_mean_private(key):
    assert not thought(**{key: True}).is_private


def test_what_is_private_by_one_key_is_private():
    assert thought(private=False, is_private=True).is_private


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01t01:00:00.5+01:00", 0.5),
        ("1970-01-01 00:00:00z", 0.0),
        (1_769_860_800, 1_769_860_800.0),
        (1_769_860_800.25, 1_769_860_800.25),
        (1_769_860_800_000, 1_769_860_800.0),
        (-5, -5.0),
        (None, NOW),
    ],
)
def test_a_time_is_rfc_3339_or_a_number_of_seconds_or_milliseconds(written, seconds):
    assert thought(created_at=written).created_at == seconds


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"text": None}, "text"),
        ({"text": " \u200b\n"}, "text"),
        ({"text": "\u3164\u2800\ufe0f"}, "text"),
        ({"origin": "dog"}, "origin"),
        ({"tags": "a"}, "tags"),
        ({"tags": ["a", 1]}, "tags"),
        ({"private": "yes"}, "private"),
        ({"isPrivate": "true"}, "isPrivate"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": "2026-01-31T12:00:00"}, "created_at"),
        ({"created_at": "0001-01-01T00:00:00+23:59"}, "created_at"),
        ({"created_at": float("nan")}, "created_at"),
        ({"created_at": 10**400}, "created_at"),
    ],
)
def test_a_value_that_is_none_of_its_key_is_refused_with_the_fix_and_not_repeated(row, key):
    with pytest.raises(InvalidLineError, match=rf"^'{key}' must be .*(, not|, and is missing).* — fix: ") as caught:
        thought(**row)
    assert "yesterday" not in str(caught.value)
    assert "dog" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({}, "type"),
        ({"type": "thought"}, "type"),
        ({"type": "entity"}, "name"),
        ({"type": "entity", "name": "A", "entityType": 7}, "entityType"),
        ({"type": "entity", "name": "A", "observations": [{"text": "tea"}]}, "observations"),
        ({"type": "relation", "from": "A", "to": "B"}, "relationType"),
        ({"type": "relation", "from": "A", "to": 7, "relationType": "is"}, "to"),
    ],
)
def test_what_is_neither_entity_nor_relation_is_refused_with_the_fix(row, key):
    with pytest.raises(InvalidLineError, match=rf"^'{key}' must be .* — fix: "):
        memory_of(row, "")


# --- lines are read whatever wrote them, and what cannot be read is refused with reason and fix ---


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines.jsonl"


@pytest.mark.parametrize(
    "written", [b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', b'{"a": 1}\r\n{"a": 2}\r\n', b'{"a": 1}\n\t{"a": 2}  \n']
)
def test_byte_order_marks_and_line_ends_make_no_difference(file, written):
    file.write_bytes(written)
    assert [object_of(line) for _, line in numbered_lines(file)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "this is not JSON (column "),
        (b"[]", "this is not a JSON object but a list"),
        (b"NaN", "this is not a JSON object but a number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a": "\xff"}', "byte 8 is not UTF-8"),
    ],
)
def test_a_wrong_line_is_refused_with_reason_and_fix(line, reason):
    with pytest.raises(InvalidLineError) as caught:
        object_of(line)
    assert reason in str(caught.value)
    assert " — fix: " in str(caught.value)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to(path), str])
def test_what_is_no_readable_file_is_refused_and_not_waited_for(file, make):
    make(file)
    with pytest.raises(UnusableInputError, match=r"lines\.jsonl: .* — fix: "):
        list(numbered_lines(file))
