"""What several servers say of themselves, said as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.application.aggregation.merged_lists import merged

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"tools": {"listChanged": True}}, {"tools": {"listChanged": False}}, {"tools": {"listChanged": True}}),
        ({"tools": {"listChanged": False}}, {"tools": {"listChanged": True}}, {"tools": {"listChanged": True}}),
        ({"resources": {"subscribe": True}}, {"prompts": {}}, {"resources": {"subscribe": True}, "prompts": {}}),
        ({"a": [1, 2]}, {"a": [2, 3]}, {"a": [1, 2, 3]}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
    ],
)
def test_objects_arrays_and_truths_are_joined(one, other, both):
    assert merged(one, other) == both


@given(OBJECTS, OBJECTS)
def test_no_member_is_lost_and_the_order_is_that_of_the_servers(one, other):
    both = merged(one, other)
    assert list(both) == [*one, *(key for key in other if key not in one)]


@given(VALUES)
def test_saying_the_same_twice_says_it_once(value):
    assert merged(value, value) == value


@given(OBJECTS, OBJECTS)
def test_what_is_merged_stays_as_it_was(one, other):
    before = repr((one, other))
    merged(one, other)
    assert repr((one, other)) == before
