"""The agreement of clusters with known kinds of work."""

import pytest
from benchmarks.session_clusters.__main__ import adjusted_rand_index, stability

from riglm.domain.session_clusters import ClusteredCall, SessionProfile


def test_the_adjusted_rand_index_is_one_for_equal_partitions_and_zero_for_one_cluster() -> None:
    assert adjusted_rand_index("aabbc", [2, 2, 0, 0, 1]) == 1
    assert adjusted_rand_index("aabb", [0, 0, 0, 0]) == 0
    assert adjusted_rand_index("aaa", [0, 0, 0]) == 1


def test_the_adjusted_rand_index_is_corrected_for_chance() -> None:
    assert adjusted_rand_index([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


def test_clusters_do_not_depend_on_the_order_of_learning() -> None:
    servers = ("git", "mail", "files") * 6
    profiles = [SessionProfile(calls=[ClusteredCall(f"{server}__a", server)]) for server in servers]
    assert stability(profiles, 1.0) == stability(profiles, 0.5) == 1
