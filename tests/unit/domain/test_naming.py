"""Names of tools among those of several servers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.naming import MAX, may_be_cut, prefixed, public_names

SERVERS = st.text("abc-", min_size=1, max_size=48)
NAMES = st.text(min_size=1, max_size=90)
OWNED = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.sampled_from(["x", "y", "a__x", "b__a__x", "z" * 80]), max_size=5)
)


@given(SERVERS, NAMES)
def test_a_prefixed_name_is_stable_and_no_longer_than_clients_can_prefix(server, name):
    made = prefixed(server, name)
    assert made == prefixed(server, name)
    assert len(f"mcp__riglm__{made}") <= 64
    assert made.startswith(f"{server}__{name}"[: MAX - 9])


@given(SERVERS, NAMES, NAMES)
def test_different_tools_of_a_server_have_different_names(server, one, other):
    assert (prefixed(server, one) == prefixed(server, other)) == (one == other)


def test_a_long_name_ends_in_a_hash_of_the_whole():
    made = prefixed("server", "t" * 60)
    assert made == "server__" + "t" * 35 + "_e0e8f1fe"
    assert prefixed("server", "t" * 59 + "u")[:43] == made[:43]


def test_a_name_with_lone_surrogates_is_cut_like_any_other():
    assert len(prefixed("server", "\ud83d" * 70)) == MAX


@given(OWNED)
def test_with_prefixes_every_tool_has_a_name_of_its_own(owned):
    names, collisions = public_names("prefix", owned)
    assert collisions == []
    assert set(names.values()) == {(server, name) for server, own in owned.items() for name in own}
    assert all(seen == prefixed(*holder) for seen, holder in names.items())


@given(OWNED)
def test_prefixes_on_collision_leave_no_collision(owned):
    names, collisions = public_names("on_collision", owned)
    assert collisions == []
    assert set(names.values()) == {(server, name) for server, own in owned.items() for name in own}
    for seen, (server, name) in names.items():
        assert seen in (name, prefixed(server, name))


def test_on_collision_only_shared_names_get_a_prefix():
    names, _ = public_names("on_collision", {"a": ["x", "y"], "b": ["x"]})
    assert names == {"a__x": ("a", "x"), "y": ("a", "y"), "b__x": ("b", "x")}


def test_a_name_that_looks_like_a_prefixed_one_gets_a_prefix_itself():
    owned = {"a": ["x"], "b": ["x"], "c": ["a__x", "c__a__x"]}
    names, collisions = public_names("on_collision", owned)
    assert collisions == []
    assert names == {"a__x": ("a", "x"), "b__x": ("b", "x"), "c__a__x": ("c", "a__x"), "c__c__a__x": ("c", "c__a__x")}


def test_without_prefixes_the_first_server_keeps_a_name_and_the_collision_names_both():
    names, collisions = public_names("none", {"a": ["x", "y"], "b": ["y", "z"], "c": ["y"]})
    assert names == {"x": ("a", "x"), "y": ("a", "y"), "z": ("b", "z")}
    assert collisions == [("y", "a", "b"), ("y", "a", "c")]


def test_a_name_that_one_server_has_twice_is_no_collision():
    assert public_names("none", {"a": ["x", "x"]}) == ({"x": ("a", "x")}, [])


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        (prefixed("server", "x" * 80), True),
        (prefixed("server", "x" * 20), False),
        ("x" * 43 + "_0123abcd", True),
        ("x" * 43 + "_0123ABCD", False),
        ("x" * 44 + "_0123abcd", False),
        ("x" * MAX, False),
    ],
)
def test_only_a_name_of_the_full_length_with_a_hash_may_be_a_short_form(name, may_be):
    assert may_be_cut(name) is may_be
