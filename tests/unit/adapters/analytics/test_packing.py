"""What is packed for PostgreSQL is what the driver itself would send."""

import struct
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import Transformer

from riglm.adapters.analytics.postgresql import TYPES, packed

WORDS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
VALUES = {
    "BIGINT": st.none() | WORDS,
    "BOOLEAN": st.none() | st.booleans(),
    "BYTEA": st.none() | st.binary(max_size=20).map(psycopg.Binary),
    "DOUBLE PRECISION": st.none() | st.floats(),
    "TEXT": st.none() | TEXTS,
    "UUID": st.uuids(),
}


@pytest.mark.parametrize("type_name", TYPES)
@given(data=st.data())
def test_a_column_comes_back_as_it_was(type_name, data):
    values = data.draw(st.lists(VALUES[type_name], min_size=1, max_size=6) | st.just([None]))
    if type_name == "UUID" and None in values:
        values = [UUID(int=7)]
    array = packed(type_name, values)
    array_oid = psycopg.adapters.types[TYPES[type_name][0]].array_oid
    back = Transformer().get_loader(array_oid, psycopg.pq.Format.BINARY).load(array)
    plain = [value.obj if isinstance(value, psycopg.Binary) else value for value in values]
    assert list(map(repr, back)) == list(map(repr, plain))


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("BIGINT", 2**63),
        ("BIGINT", "7"),
        ("DOUBLE PRECISION", "7"),
        ("TEXT", b"bytes"),
        ("TEXT", "\ud800"),
        ("TEXT", ["a list"]),
        ("UUID", "no uuid"),
        ("UUID", None),
    ],
)
def test_a_value_of_another_type_is_refused(type_name, value):
    with pytest.raises((ValueError, TypeError, AttributeError, struct.error)):
        packed(type_name, [value])
