"""The kinds of work of the recorded sessions."""

import pytest

from riglm.application.control.session_clusters import SessionClusterQueries
from riglm.application.control.thread_bridge import CachedQueries
from riglm.domain.schemas.control_api import ToolCount, ToolPairCount
from tests.records import a_session, an_invocation
from tests.unit.application.control.office import an_office


@pytest.fixture
async def office():
    with an_office() as office:
        yield office


def record(archive, *servers):
    session = a_session()
    calls = [an_invocation(session, f"{server}__{tool}", upstream=server) for server in servers for tool in ("a", "b")]
    archive.record_many([session, *calls])
    return session


async def test_clusters_are_those_of_the_recorded_sessions(office):
    for servers in (("git",), ("git",), ("mail", "git"), ("git",)):
        record(office.archive, *servers)
    found = await SessionClusterQueries(CachedQueries(office.store)).entries(1)
    assert (found.sessions, found.total, len(found.clusters)) == (4, 2, 1)
    assert found.clusters[0].sessions == 3
    assert set(found.clusters[0].distinctive[:2]) == {"git__a", "git__b"}
    assert found.clusters[0].tools[0] == ToolCount(tool="git__a", sessions=3)
    assert found.clusters[0].transitions[0] == ToolPairCount(first="git__a", second="git__b", sessions=3)


async def test_calls_that_failed_are_ignored(office):
    session = record(office.archive, "git")
    office.archive.record_many([an_invocation(session, "mail__send", upstream="mail", success=False)])
    [cluster] = (await SessionClusterQueries(CachedQueries(office.store)).entries(20)).clusters
    assert [each.tool for each in cluster.tools] == ["git__a", "git__b"]


async def test_without_records_there_are_no_kinds_of_work(office):
    found = await SessionClusterQueries(CachedQueries(office.store)).entries(20)
    assert (found.sessions, found.total, found.clusters) == (0, 0, ())
