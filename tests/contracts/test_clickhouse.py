"""ClickHouse keeps the contract of session histories; a stand-in serves its engine (chDB) over HTTP."""

import dataclasses
import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from riglm.adapters.analytics.clickhouse import _DEFINITIONS, ClickHouse
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.retention import ErasureRequest, ErasureScope
from riglm.domain.session import ClientInfo
from riglm.ports.analytics import SessionClosed, TrainingSession
from tests.contracts.session_history_contract import SessionHistoryContract
from tests.records import a_session, an_exposure, an_invocation
from tests.stores.clickhouse import ClickHouseStandIn

TABLES = ("invocation", "exposure", "session", "toolset", "erased")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseStandIn]:
    with ClickHouseStandIn(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture
def store(server: ClickHouseStandIn) -> Iterator[ClickHouse]:
    with ClickHouse(server.url, days=0, installation="one", timeout_seconds=30.0) as store:
        for table in TABLES:
            store._opened.command(f"TRUNCATE TABLE {table}")
        yield store


class TestClickHouse(SessionHistoryContract):
    @pytest.fixture
    def analytics(self, store: ClickHouse) -> ClickHouse:
        return store


def stored(store: ClickHouse) -> dict[UUID, TrainingSession]:
    return {each.id: each for each in store.list_proxied_sessions(100)}


def counts(store: ClickHouse) -> list[int]:
    return [store._query(f"SELECT count() AS n FROM {table}")[0]["n"] for table in ("invocation", "exposure")]


def test_what_is_sent_again_is_stored_once(store: ClickHouse):
    session = a_session(started_at=time.time())
    calls = [an_invocation(session, "read") for _ in range(50)]
    lists = [an_exposure(session, "read", timestamp=1000.0 + number) for number in range(3)]
    store.record_many([session, *calls[:30], *lists])
    store.record_many([session, *calls, *lists, SessionClosed(session_id=session.id, ended_at=2000.0)])
    store.record_many([session, calls[0], calls[0]])
    assert counts(store) == [50, 3]
    assert len(stored(store)[session.id].calls) == 50
    assert store.count_sessions() == (0, 1)


def test_the_latest_state_of_a_session_is_the_one_given(store: ClickHouse):
    sessions = [a_session(started_at=float(number)) for number in range(20)]
    for tools in ((), ("read",), ("read", "write")):
        store.record_many([dataclasses.replace(each, tools_available=tools) for each in sessions])
    assert {each.tools_available for each in stored(store).values()} == {("read", "write")}


def test_text_that_no_encoding_holds_is_stored(store: ClickHouse):
    session = a_session()
    store.record_many([session, an_invocation(session, "\ud800read\x00'\\\n")])
    [call] = stored(store)[session.id].calls
    assert call.tool == "\ufffdread\x00'\\\n"


def test_rows_expire(server: ClickHouseStandIn, store: ClickHouse):
    store._opened.command("CREATE DATABASE brief")
    with ClickHouse(
        server.url.replace("/default", "/brief"), days=7, installation="one", timeout_seconds=30.0
    ) as brief:
        session = a_session(started_at=time.time())
        young = an_invocation(session, "young", timestamp=time.time())
        old = an_invocation(session, "old", timestamp=1000.0)
        brief.record_many([session, young, old])
        brief._opened.command("OPTIMIZE TABLE invocation FINAL")
        assert [call.tool for call in stored(brief)[session.id].calls] == ["young"]


@pytest.mark.parametrize("whose", list(ErasureScope))
def test_who_is_erased_is_gone_and_stays_so(store: ClickHouse, whose: ErasureScope):
    erased, other = (
        dataclasses.replace(a_session(), principal=name, client=ClientInfo(name=name, version="1"))
        for name in ("ann", "ben")
    )
    for session in (erased, other):
        store.record_many([session, an_invocation(session, "read"), an_exposure(session, "read", timestamp=1.0)])
    keys = {ErasureScope.SESSION: str(erased.id), ErasureScope.PRINCIPAL: "ann", ErasureScope.CLIENT: "hash of ann"}
    request = ErasureRequest(whose=whose, key=keys[whose], at=time.time())
    assert store.erase(request, [UUID(int=7)], "hash of {}".format) == 1
    store.record_many([SessionClosed(session_id=erased.id, ended_at=2000.0), an_invocation(erased, "read")])
    assert counts(store) == [1, 1]
    assert list(stored(store)) == [other.id]


def test_what_others_sent_is_not_erased(server: ClickHouseStandIn, store: ClickHouse):
    sessions = [dataclasses.replace(a_session(), principal="") for _ in range(2)]
    with ClickHouse(server.url, days=0, installation="two", timeout_seconds=30.0) as other:
        for place, session in zip((store, other), sessions, strict=True):
            place.record_many([session, an_invocation(session, "read")])
        request = ErasureRequest(whose=ErasureScope.PRINCIPAL, key="", at=time.time())
        assert store.erase(request, [], str) == 1
        assert list(stored(store)) == [sessions[1].id]
        by_name = ErasureRequest(whose=ErasureScope.CLIENT, key=sessions[1].client.name, at=time.time())
        assert store.erase(by_name, [], str) == 0
        assert other.erase(by_name, [], str) == 1


def test_a_session_that_is_erased_while_its_records_are_written_is_gone(store: ClickHouse, monkeypatch):
    session = a_session()
    insert = store._insert_new

    def erase_first(table, rows):
        if table == "invocation":
            store.erase(ErasureRequest(whose=ErasureScope.SESSION, key=str(session.id), at=time.time()), [], str)
        insert(table, rows)

    def fail(ids):
        raise AnalyticsUnavailableError("stopped before the deletion")

    records = [session, an_invocation(session, "read"), an_exposure(session, "read", timestamp=1.0)]
    monkeypatch.setattr(store, "_insert_new", erase_first)
    with monkeypatch.context() as failing:
        failing.setattr(store, "_delete", fail)
        with pytest.raises(AnalyticsUnavailableError):
            store.record_many(records)
    store.record_many(records)
    assert counts(store) == [0, 0]


def test_a_different_number_of_days_takes_effect(server: ClickHouseStandIn, store: ClickHouse):
    store._opened.command("CREATE DATABASE changed")
    session = a_session(started_at=time.time())
    old = an_invocation(session, "read", timestamp=time.time() - 100 * 86_400)
    for days, kept in ((730, 1), (0, 1), (7, 0), (0, 0)):
        url = server.url.replace("/default", "/changed")
        with ClickHouse(url, days=days, installation="one", timeout_seconds=30.0) as changed:
            if days == 730:
                changed.record_many([session, old])
            changed._opened.command("OPTIMIZE TABLE invocation FINAL")
            assert counts(changed)[0] == kept
            definitions = changed._opened.query(_DEFINITIONS).result_rows
            assert len(definitions) == 3
            assert all((f"toIntervalDay({days})" in text) == bool(days) for _, text in definitions)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x?nosuchoption=1", "http://127.0.0.1:99999/x"])
def test_a_url_that_cannot_be_used_is_reported(url: str):
    with pytest.raises(AnalyticsUnavailableError, match=r"clickhouse\.url"):
        ClickHouse(url, days=1, installation="one", timeout_seconds=1.0).__enter__()


def test_a_server_that_is_away_is_reported(tmp_path):
    server = ClickHouseStandIn(tmp_path)
    with pytest.raises(AnalyticsUnavailableError, match=r"ClickHouse at http://127.* is unavailable: .* — fix: "):
        ClickHouse(server.url, days=1, installation="one", timeout_seconds=1.0).__enter__()
