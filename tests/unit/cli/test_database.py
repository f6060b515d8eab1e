import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.spool.file_lock import spool_directory
from riglm.adapters.spool.sqlite import SqliteSpool
from riglm.cli.main import app
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError
from riglm.domain.redaction import mask_url
from riglm.domain.session import ClientInfo
from tests.records import a_session, an_invocation

runner = CliRunner()


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "new" / "data"))


def test_status_makes_nothing_and_upgrade_makes_the_store(tmp_path: Path) -> None:
    store = tmp_path / "new" / "data" / "riglm.db"
    before = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert before["current"] is None
    assert before["pending"]
    assert not store.exists()
    assert runner.invoke(app, ["db", "upgrade"]).exit_code == 0
    after = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert after["current"] == after["head"] == before["head"]
    assert after["pending"] == []
    assert str(store) in runner.invoke(app, ["db", "status"]).output


def test_a_store_on_postgresql_is_upgraded_and_asked_like_any_other(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__URL", empty_postgres_url)
    before = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert (before["current"], before["url"]) == (None, mask_url(empty_postgres_url))
    assert runner.invoke(app, ["db", "upgrade"]).exit_code == 0
    after = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert (after["current"], after["pending"]) == (before["head"], [])
    session = a_session(client=ClientInfo(name="cursor", version="1"))
    with SqlAnalytics(empty_postgres_url) as store:
        store.record_many([session, an_invocation(session, "read")])
    assert "cursor" in runner.invoke(app, ["sessions"]).output
    assert json.loads(runner.invoke(app, ["tools", "--json"]).output)[0]["tool"] == "read"


def test_a_missing_driver_is_told_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__URL", "postgresql://host/db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = runner.invoke(app, ["run", "--", sys.executable])
    assert isinstance(result.exception, ConfigurationError)
    assert "pip install 'riglm[postgresql]'" in str(result.exception)


def test_status_tells_what_waits_in_spools(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    root = spool_directory(data / "spool", str(data / "riglm.db"))
    with SqliteSpool(root) as spool:
        spool.append([a_session(), a_session()])
        (held,) = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)["spools"]
        assert (held["records"], held["is_held"]) == (2, True)
    (left,) = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)["spools"]
    assert (left["records"], left["is_held"], left["damaged"]) == (2, False, 0)
    shown = runner.invoke(app, ["db", "status"]).output
    assert f"{left['path']}: 2 records, left behind: the next start stores or sends it" in shown


def test_status_tells_what_waits_for_clickhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:1/usage"
    monkeypatch.setenv("RIGLM_CLICKHOUSE__URL", url)
    with SqliteSpool(spool_directory(tmp_path / "new" / "data" / "spool", url)) as spool:
        spool.append([a_session()])
    (waiting,) = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)["spools"]
    assert waiting["records"] == 1


@pytest.mark.parametrize("words", [["db", "status"], ["db", "upgrade"], ["stats"], ["sessions"], ["tools"]])
def test_a_data_directory_that_is_none_is_an_error_and_not_an_empty_store(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "new").write_text("in the way", "utf-8")
    result = runner.invoke(app, words)
    assert isinstance(result.exception, AnalyticsUnavailableError)
    assert f"the data directory {tmp_path / 'new' / 'data'} cannot be used" in str(result.exception)
    assert "fix:" in str(result.exception)


def test_a_store_in_memory_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__KIND", "memory")
    result = runner.invoke(app, ["db", "upgrade"])
    assert isinstance(result.exception, ConfigurationError)
