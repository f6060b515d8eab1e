"""Kinds of work: which sessions are alike, and what is particular to each kind."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.session_clusters import ClusteredCall, SessionProfile, cluster_sessions, describe_clusters


def make_session(*tools: str, context: list[float] | None = None) -> SessionProfile:
    calls = [ClusteredCall(tool, tool.partition("__")[0]) for tool in tools]
    return SessionProfile(calls=calls, context=None if context is None else np.array(context, np.float32))


_KINDS = (
    ("git__log", "git__diff", "files__read"),
    ("mail__search", "mail__send", "files__read"),
    ("sql__schema", "sql__query"),
)
_WORK = [make_session(*kind[start:], *kind[:start]) for kind in _KINDS for start in (0, 1, 0, 1)]


def test_sessions_of_the_same_servers_are_one_kind_of_work() -> None:
    labels = cluster_sessions(_WORK)
    assert [len(set(labels[place : place + 4])) for place in (0, 4, 8)] == [1, 1, 1]
    assert len(set(labels)) == 3


def test_with_a_single_server_tools_and_prefixes_of_a_gateway_distinguish() -> None:
    def behind(server: str, *tools: str) -> SessionProfile:
        return SessionProfile(calls=[ClusteredCall(tool, server) for tool in tools])

    assert cluster_sessions([behind("git", "log"), behind("git", "push"), behind("git", "log")]) == [0, 1, 0]
    assert cluster_sessions([behind("metamcp", "git__log"), behind("metamcp", "git__push")]) == [0, 0]


def test_contexts_separate_sessions_that_share_some_servers() -> None:
    tools = ("git__log", "mail__send"), ("git__log", "sql__query")
    filler = [make_session("files__read") for _ in range(4)]
    alike = [make_session(*each, context=[1.0, 0.0]) for each in tools]
    apart = [
        make_session(*each, context=context) for each, context in zip(tools, ([1.0, 0.0], [0.0, 1.0]), strict=True)
    ]
    together, separate = cluster_sessions([*alike, *filler])[:2], cluster_sessions([*apart, *filler])[:2]
    assert together[0] == together[1]
    assert separate[0] != separate[1]


def test_a_cluster_is_named_by_its_most_distinctive_tools() -> None:
    found = describe_clusters(_WORK, cluster_sessions(_WORK))
    assert {frozenset(cluster.distinctive[:2]) for cluster in found} == {
        frozenset({"git__log", "git__diff"}),
        frozenset({"mail__search", "mail__send"}),
        frozenset({"sql__schema", "sql__query"}),
    }


def test_transitions_and_pairs_count_sessions_and_not_calls() -> None:
    sessions = [make_session("a", "b", "a", "b", "b"), make_session("b", "a")]
    [cluster] = describe_clusters(sessions, [0, 0])
    assert cluster.sessions == 2
    assert [tuple(each.model_dump().values()) for each in cluster.tools] == [("a", 2), ("b", 2)]
    assert [tuple(each.model_dump().values()) for each in cluster.transitions] == [("b", "a", 2), ("a", "b", 1)]
    assert [tuple(each.model_dump().values()) for each in cluster.pairs] == [("a", "b", 2)]


_TOOLS = st.sampled_from([f"{server}__{tool}" for server in "abcd" for tool in "xy"])
_CONTEXTS = st.none() | st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3)
_SESSIONS = st.lists(
    st.builds(lambda tools, context: make_session(*tools, context=context), st.lists(_TOOLS, max_size=6), _CONTEXTS),
    max_size=25,
)


@given(_SESSIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_sessions_does_not_matter(sessions: list[SessionProfile], chance: random.Random) -> None:
    labels = cluster_sessions(sessions)
    order = list(range(len(sessions)))
    chance.shuffle(order)
    assert cluster_sessions([sessions[place] for place in order]) == [labels[place] for place in order]


@given(_SESSIONS)
def test_clusters_are_numbered_from_the_largest_and_hold_every_session(sessions: list[SessionProfile]) -> None:
    labels = cluster_sessions(sessions)
    sizes = [cluster.sessions for cluster in describe_clusters(sessions, labels)]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == len(sessions)
    assert sorted(set(labels)) == list(range(len(sizes)))
