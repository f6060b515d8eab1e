"""Least distances between tools of one session, against the plain definition."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.cooccurrence import MAX_TOOLS_PER_SESSION, Cooccurrence, CooccurrenceCounter, least_distances


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3))))
def test_the_fast_way_gives_what_the_definition_says(steps):
    calls, number = [], 0
    for tool, step in steps:
        number += step
        calls.append((tool, number))
    expected = {}
    for (one, at), (other, then) in combinations(calls, 2):
        if one != other:
            pair = (min(one, other), max(one, other))
            expected[pair] = min(expected.get(pair, then - at), then - at)
    assert least_distances(calls) == expected


def test_tools_beyond_the_bound_form_no_pairs_and_those_within_still_do():
    names = [f"{number:04}" for number in range(MAX_TOOLS_PER_SESSION + 10)]
    calls = [(name, number) for number, name in enumerate([*names, names[0], names[-1]])]
    least = least_distances(calls)
    assert len(least) == MAX_TOOLS_PER_SESSION * (MAX_TOOLS_PER_SESSION - 1) // 2
    assert not any(names[-1] in pair for pair in least)


def test_distances_are_averaged_over_the_sessions_that_used_both():
    counter = CooccurrenceCounter()
    counter.add_session([("a", 1), ("b", 2)])
    counter.add_session([("b", 1), ("x", 2), ("a", 5)])
    counter.add_session([("a", 1)])
    assert len(counter) == 3
    pairs = {(pair.tool_a, pair.tool_b): pair for pair in counter.pairs(9.0)}
    assert pairs["a", "b"] == Cooccurrence(tool_a="a", tool_b="b", count=2, average_distance=2.5, last_updated=9.0)
