"""The store as `riglm doctor` sees it while others are at work: told as it is, and left as it was."""

import socket
import time
from functools import partial
from pathlib import Path

import pytest

from riglm.adapters.analytics import tables
from riglm.adapters.analytics.inspection import inspect_store
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.doctor import find_listener
from riglm.application.setup.store_checks import check_store, check_store_files
from riglm.domain.doctor import Severity, SpoolStatus, StoreStatus
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from tests.started import free_port


def session(name: str, at: float) -> Session:
    client = ClientInfo(name=name, version="1.2")
    return Session(
        started_at=at,
        era=ProtocolEra.MODERN,
        transport=Transport.STDIO,
        method=IdentificationMethod.PROCESS,
        client=client,
        ended_at=at,
    )


def test_a_store_at_work_is_told_and_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "riglm.db"
    url, now = f"sqlite:///{file}", time.time()
    with SqlAnalytics(url) as store:
        store.record_many([session("codex", now - 10), session("codex", now - 5), session("cursor", now)])
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
        facts = inspect_store(url, timeout=5)
        after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    assert before == after
    assert [(each.name, each.sessions, each.last_seen) for each in facts.clients] == [
        ("cursor", 1, now),
        ("codex", 2, now - 5),
    ]
    assert (facts.sessions, facts.newest, facts.pending) == (3, now, ())


def test_a_store_of_an_older_schema_is_not_brought_up_to_date(tmp_path: Path) -> None:
    from alembic import command

    url = f"sqlite:///{tmp_path / 'riglm.db'}"
    config = tables.alembic_config()
    engine = tables.make_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
    engine.dispose()
    assert inspect_store(url, timeout=5).schema == "0003"
    assert inspect_store(url, timeout=5).pending[-1] == tables.SCHEMA_REVISION


def test_a_clock_that_is_far_ahead_of_the_records_is_told(tmp_path: Path) -> None:
    url, day = f"sqlite:///{tmp_path / 'riglm.db'}", 86_400.0
    with SqlAnalytics(url) as store:
        store.record_many([session("codex", time.time() - 400 * day)])
    found = check_store(partial(inspect_store, url, timeout=5), Settings(), {}, {})
    told = {each.place: each.what for each in found}
    assert "400 days ahead" in told["clock"]
    assert told["records"] == "the newest is 400 days old"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert inspect_store(f"sqlite:///{tmp_path / 'none' / 'riglm.db'}", timeout=5).schema is None
    assert list(tmp_path.iterdir()) == []


def test_a_store_on_a_server_is_told_as_one_in_a_file_is(postgres_url: str) -> None:
    with SqlAnalytics(postgres_url) as store:
        store.record_many([session("codex", 5.0)])
        facts = inspect_store(postgres_url, timeout=5)
    assert (facts.sessions, facts.pending) == (1, ())
    assert facts.size_bytes > 0


@pytest.mark.parametrize("is_away", [False, True])
def test_what_is_wrong_with_a_store_is_told_with_what_to_do(tmp_path: Path, is_away: bool) -> None:
    def look() -> StoreStatus:
        if is_away:
            raise AnalyticsUnavailableError("the server is away — fix: start it")
        return StoreStatus(place="here", schema="2", pending=(), free_bytes=1 << 20, newest=time.time() + 4000)

    spool = SpoolStatus(path=Path("spool"), records=5, damaged=1, is_newer=False, is_held=True, size_bytes=1)
    private = [tmp_path / "riglm.key"]
    findings = [
        *check_store(look, Settings(), {}, {}),
        *check_store_files(tmp_path, private, [spool], is_writable=False, shared_mode=lambda _: "0644"),
    ]
    found = {each.place: each for each in findings if each.severity is not Severity.OK}
    files = {str(tmp_path), str(tmp_path / "riglm.key"), "spool"}
    assert set(found) == files | ({"database"} if is_away else {"disk", "clock"})
    assert all(each.fix for each in found.values())
    if is_away:
        assert (found["database"].what, found["database"].fix) == ("the server is away", "start it")


def test_a_port_is_told_as_taken_free_or_unusable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        other = find_listener("127.0.0.1", port)
        mine = find_listener("127.0.0.1", port, f"process 5, 127.0.0.1 port {port}")
    assert other is not None
    assert [other[1], mine] == [False, ("riglm serve (process 5)", True)]
    assert find_listener("127.0.0.1", free_port()) is None
    with pytest.raises(OSError, match=r".+"):
        find_listener("203.0.113.7", 1)
