"""What is written down of a record is all of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.adapters.spool.sqlite_spool import decode, encode
from tests.records import a_learned_pair
from tests.unit.adapters.spool.kinds import KINDS, field_names


def told(record):
    """All fields of a record, in values that can be compared."""
    values = {name: getattr(record, name) for name in field_names(type(record))}
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in values.items()}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_record_comes_back_as_it_was_whatever_it_holds(kind, data):
    record = data.draw(KINDS[kind])
    line = encode(record)
    back = decode(line)
    assert type(back) is type(record)
    assert told(back) == told(record)
    assert [type(value) for value in told(back).values()] == [type(value) for value in told(record).values()]
    assert line.isascii()
    assert b"\n" not in line


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"[1,2,3]",
        b'["invocation",{}]',
        b'["invocation",null]',
        b'["invocation"]',
        b'["unheard of",{}]',
        b'["session_closed",{"session_id":"no id","ended_at":1}]',
        b'["exposure",{"id":7}]',
        b'["pairs_forgotten",{"ids":[1]}]',
        b"[[],{}]",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_line_that_holds_no_record_gives_none(line):
    assert decode(line) is None


@pytest.mark.parametrize("nothing", [None, "a text", {}])
def test_what_is_no_record_cannot_be_written_down(nothing):
    assert encode(nothing) is None


def test_a_learned_pair_whose_vector_is_a_table_cannot_be_written_down():
    assert encode(a_learned_pair(vector=np.zeros((2, 2), dtype=np.float32))) is None
