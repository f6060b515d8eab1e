"""Every analytics store, held to the same contract, and what only SQL does."""

import sqlite3
import stat
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from riglm.adapters.analytics.engine import make_engine, writing
from riglm.adapters.analytics.prediction_store import SqliteChoices
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tracking.recorder import Recorder
from riglm.domain.errors import AnalyticsUnavailableError, SchemaTooNewError
from riglm.domain.learning import WarmSetKey
from riglm.domain.policy import OverrideKind
from riglm.domain.session import ClientInfo, uuid7
from riglm.ports.analytics import AnalyticsPort, LearnedPairsDeleted, RecordRejectedError, SessionClosed
from tests.contracts.analytics_contract import AnalyticsContract
from tests.contracts.prediction_store_contract import PredictionStoreContract
from tests.records import a_learned_pair, a_session, a_warm_set, an_exposure, an_invocation, an_override


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def limit_pages(store: SqlAnalytics, most: int) -> None:
    """Let the database of `store` grow to at most so many pages; one that is larger grows no further."""
    with store._database.reading() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store in a database."""
    return url(tmp_path / "new" / "usage.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def refusing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlAnalytics]:
    """An empty store that refuses what tests give it: so they can share it."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            place = url(tmp_path_factory.mktemp("refusing") / "usage.db")
        else:
            place = stack.enter_context(request.getfixturevalue("postgres").migrated())
        yield stack.enter_context(SqlAnalytics(place))


def execute(place: str, statement: str) -> None:
    """Do to the database what only somebody else would."""
    engine = make_engine(place)
    with writing(engine) as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


class TestSqliteAnalytics(AnalyticsContract):
    @pytest.fixture
    def analytics(self, tmp_path: Path) -> Iterator[AnalyticsPort]:
        with SqlAnalytics(url(tmp_path / "usage.db")) as store:
            yield store


class TestPostgresqlAnalytics(AnalyticsContract):
    @pytest.fixture
    def analytics(self, postgres_url: str) -> Iterator[AnalyticsPort]:
        with SqlAnalytics(postgres_url) as store:
            yield store


class TestSqliteChoices(PredictionStoreContract):
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "one #2.db"

    @pytest.fixture
    def analytics(self, file: Path) -> Iterator[AnalyticsPort]:
        with SqlAnalytics(url(file)) as store:
            yield store

    @pytest.fixture
    def choices(self, analytics: AnalyticsPort, file: Path) -> SqliteChoices:
        return SqliteChoices(file)

    def test_what_one_way_stores_the_other_finds(self, analytics: AnalyticsPort, choices: SqliteChoices):
        made = an_override(tool="lösche", kind=OverrideKind.PIN, expires_at=5000.0, reason="so")
        choices.put_override(made)
        analytics.put_override(replace(made, id=uuid7()))
        assert [replace(each, id=made.id) for each in choices.list_overrides()] == [made, made]
        assert list(choices.list_overrides()) == list(analytics.list_overrides())
        first = choices.put_warm_set(a_warm_set("b", "ä"), None)
        assert analytics.put_warm_set(a_warm_set("c"), None) == first
        second = analytics.put_warm_set(replace(first, created_at=1002.0), first.created_at)
        assert choices.put_warm_set(first, first.created_at) == second


def test_before_there_is_a_store_nothing_was_decided_and_nothing_is_made(tmp_path):
    file = tmp_path / "none.db"
    choices = SqliteChoices(file)
    assert (choices.list_overrides(), choices.get_warm_set(WarmSetKey()), choices.list_session_uses()) == ([], None, [])
    with pytest.raises(AnalyticsUnavailableError, match=r"none\.db"):
        choices.put_warm_set(a_warm_set("a"), None)
    assert not file.exists()
    file.touch()
    assert choices.list_overrides() == []


def test_a_damaged_store_is_unavailable_to_choices(tmp_path):
    file = tmp_path / "damaged.db"
    file.write_bytes(b"not a database at all" * 100)
    with pytest.raises(AnalyticsUnavailableError, match=r"damaged\.db"):
        SqliteChoices(file).list_overrides()


def test_records_are_there_when_the_database_is_opened_again(place):
    session = a_session()
    with SqlAnalytics(place) as store:
        store.record_many([session, an_invocation(session, "read")])
    with SqlAnalytics(place) as store:
        assert store.list_sessions()[0].invocations == 1


def test_constructing_a_store_touches_nothing(tmp_path):
    SqlAnalytics(url(tmp_path / "usage.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_new_database_is_readable_by_its_owner_alone(tmp_path):
    file = tmp_path / "usage.db"
    with SqlAnalytics(url(file)) as store:
        store.record_many([a_session()])
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_readers_see_the_store_while_another_process_writes(tmp_path):
    file = tmp_path / "usage.db"
    with SqlAnalytics(url(file)) as store:
        store.record_many([a_session()])
        writer = sqlite3.connect(file, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        assert len(store.list_sessions()) == 1
        writer.execute("ROLLBACK")
        writer.close()


def test_a_locked_database_is_unavailable_until_the_lock_is_gone(tmp_path):
    file = tmp_path / "usage.db"
    with SqlAnalytics(url(file), timeout=0.01) as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AnalyticsUnavailableError, match=r"usage\.db.*locked") as raised:
            store.record_many([a_session()])
        assert raised.value.__cause__ is not None
        other.execute("ROLLBACK")
        other.close()
        store.record_many([a_session()])
        assert len(store.list_sessions()) == 1


def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalyticsUnavailableError, match="file"), SqlAnalytics(url(tmp_path / "file" / "usage.db")):
        pass


@pytest.mark.parametrize("place", ["nonsense", "nodialect://host/db", "postgresql+nodriver://user:secret@host/db"])
def test_an_unusable_url_is_unavailable_and_its_password_is_not_told(place):
    with pytest.raises(AnalyticsUnavailableError) as raised, SqlAnalytics(place):
        pass
    assert "secret" not in str(raised.value)


def test_a_table_that_is_gone_makes_the_store_unavailable(place):
    with SqlAnalytics(place) as store:
        execute(place, "DROP TABLE invocation")
        with pytest.raises(AnalyticsUnavailableError, match="invocation"):
            store.list_invocations(uuid7())
        with pytest.raises(AnalyticsUnavailableError, match="invocation"):
            store.record_many([an_invocation(a_session(), "read")])


def test_calls_are_recorded_when_the_table_of_learned_pairs_is_gone(place):
    session = a_session()
    call = an_invocation(session, "read")
    with SqlAnalytics(place):
        pass
    execute(place, f"DROP TABLE learned_pair{'' if place.startswith('sqlite') else ' CASCADE'}")
    with Recorder(lambda: SqlAnalytics(place)) as recorder:
        for record in (session, a_learned_pair(), call, LearnedPairsDeleted(ids=(uuid7(),))):
            recorder.put(record)
        assert recorder.flush(30.0)
        assert (recorder.counts().stored, recorder.counts().reasons["refused"]) == (2, 2)
    with SqlAnalytics(place) as store:
        assert list(store.list_invocations(session.id)) == [call]
        with pytest.raises(AnalyticsUnavailableError, match="learned_pair"):
            store.list_learned_pairs("minilm")


def test_a_full_disk_loses_no_learned_pair(tmp_path):
    pair = a_learned_pair(vector=np.ones(20_000, np.float32))
    with SqlAnalytics(url(tmp_path / "usage.db")) as store:
        store.record_many([a_session()])
        limit_pages(store, 1)
        with pytest.raises(AnalyticsUnavailableError, match="full"):
            store.record_many([pair])
        limit_pages(store, 1_000_000)
        store.record_many([pair])
        assert len(store.list_learned_pairs("minilm")) == 1


@pytest.mark.parametrize("vector", [np.array([1.0, float("nan")]), np.ones((2, 2)), np.array(1.0)])
def test_a_learned_pair_whose_vector_is_none_is_refused(place, vector):
    with SqlAnalytics(place) as store:
        with pytest.raises(RecordRejectedError, match="finite numbers"):
            store.record_many([a_session(), a_learned_pair(vector=vector)])
        assert list(store.list_sessions()) == []


def test_a_store_of_a_newer_riglm_is_refused_and_not_written_to(tmp_path):
    file = tmp_path / "usage.db"
    with SqlAnalytics(url(file)) as store:
        store.record_many([a_session()])
    other = sqlite3.connect(file)
    other.execute("UPDATE alembic_version SET version_num = '9999'")
    other.commit()
    other.close()
    before = file.read_bytes()
    for is_quarantining in (False, True):
        opened = SqlAnalytics(url(file), is_quarantining=is_quarantining)
        with pytest.raises(SchemaTooNewError, match=r"9999.*upgrade riglm"), opened:
            pass
    assert file.read_bytes() == before
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_a_store_that_is_not_open_says_so(tmp_path):
    store = SqlAnalytics(url(tmp_path / "usage.db"))
    with pytest.raises(AnalyticsUnavailableError, match="not open"):
        store.list_sessions()
    store.__exit__(None, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": float("nan")},
        {"timestamp": float("inf")},
        {"duration_ms": "soon"},
        {"sequence_number": 2**70},
        {"upstream": 7},
        {"upstream": None},
        {"id": "no UUID"},
        {"sequence_number": "1"},
        {"sequence_number": 1.5},
        {"sequence_number": ()},
        {"arguments_hash": 7},
        {"arguments_hash": b"x"},
        {"arguments_hash": {}},
        {"arguments_hash": "x" * 65},
        {"arguments": object()},
        {"success": "yes"},
    ],
)
def test_a_value_that_fits_no_column_is_refused_and_nothing_is_stored(refusing, wrong):
    session = a_session()
    with pytest.raises(RecordRejectedError):
        refusing.record_many([session, an_invocation(session, "read", **wrong)])
    assert list(refusing.list_sessions()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda session: an_exposure(session, "read", mode=7),
        lambda session: an_exposure(session, "read", surface={}),
        lambda session: an_exposure(session, "read", tokens_shown="many"),
        lambda session: an_exposure(session, 7),
        lambda session: replace(an_exposure(session), shown="read"),
        lambda session: replace(an_exposure(session), reason=[]),
        lambda _: a_session(client_id=7),
        lambda _: a_session(principal=b"ann"),
        lambda _: a_session(keys=[]),
        lambda _: a_session(metadata=None),
        lambda _: a_session(tools_available="read"),
        lambda _: a_session(client=ClientInfo(name=7)),
        lambda session: SessionClosed(session_id=session.id, ended_at=()),
        lambda _: SessionClosed(session_id=7, ended_at=1.0),
        lambda session: a_learned_pair(session_id="no UUID", scope=session.principal),
        lambda session: a_learned_pair(session_id=session.id, tool={}),
    ],
)
def test_a_value_of_another_type_than_its_own_is_refused_in_every_kind_of_record(refusing, make):
    session = a_session()
    with pytest.raises(RecordRejectedError):
        refusing.record_many([session, make(session)])
    assert list(refusing.list_sessions()) == []


@pytest.mark.parametrize("wrong", [{"timestamp": float("nan")}, {"upstream": None}, {"sequence_number": 2**70}])
def test_a_refusal_does_not_tell_the_values_of_records(refusing, wrong):
    session = a_session()
    secret = session.id.hex
    calls = [an_invocation(session, "read", arguments=secret, **each) for each in ({}, wrong)]
    with pytest.raises(RecordRejectedError) as raised:
        refusing.record_many(calls)
    assert secret not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_is_stored_after_the_file_was_removed_or_replaced_is_in_the_new_file(tmp_path, caplog, is_replaced):
    file, other = tmp_path / "usage.db", tmp_path / "other.db"
    session = a_session()
    first, second, third = (an_invocation(session, "read") for _ in range(3))
    with SqlAnalytics(url(other)):
        pass
    with SqlAnalytics(url(file)) as store:
        store.record_many([session, first])
        for each in tmp_path.glob("usage.db*"):
            each.unlink()
        if is_replaced:
            other.rename(file)
        store.record_many([session, second])
        store.record_many([third])
        assert list(store.list_invocations(session.id)) == [second, third]
    with SqlAnalytics(url(file)) as store:
        assert list(store.list_invocations(session.id)) == [second, third]
    assert caplog.text.count("was removed or replaced") == 1
