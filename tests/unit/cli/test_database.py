"""`riglm db`: the schema of the store, and purge, compaction, export and erasure of a store that is in use."""

import csv
import hashlib
import json
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from riglm.adapters.analytics.copying import copy_store
from riglm.adapters.analytics.engine import reading, writing
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.tables import CompactUuid, JsonText, SafeText, engine_for, forgotten, metadata
from riglm.adapters.private_files import load_or_create_key
from riglm.adapters.spool.file_lock import spool_directory
from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.session_sharing.signing import StateSigner, count_name, session_name
from riglm.cli import store_access
from riglm.cli.main import app
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError, RiglmError
from riglm.domain.hashing import KeyedHasher
from riglm.domain.session import ClientInfo
from tests.contracts.maintenance_contract import a_used_session
from tests.records import a_session, an_invocation
from tests.stores import valkey
from tests.unit.application.reports.shadowed import worked

DAY = 86_400.0
NEEDS_STORE = pytest.mark.parametrize(
    "words", [["purge"], ["vacuum"], ["export", "--out", "x"], ["forget", "--client", "x"], ["copy", "--to", "x"]]
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path))


@pytest.fixture
def store(tmp_path):
    with SqlAnalytics(f"sqlite:///{tmp_path / 'riglm.db'}", names=lambda name: hasher().client_name(name)) as opened:
        yield opened


def hasher():
    return KeyedHasher(load_or_create_key(Path("riglm.key")))


@pytest.fixture
def used(store):
    """Two sessions of Ann's, 200 days and one day old, and one of a caller without a name."""
    now, ann, sessions = time.time(), hasher().principal("ann"), []
    for days, name, principal in ((200, "ann's", ann), (1, "ann's", ann), (1, "other", "")):
        start = now - days * DAY
        session, records = a_used_session(start, ended=start + 60, client=ClientInfo(name=name), principal=principal)
        store.record_many(records)
        sessions.append(session)
    return sessions


def run(*words, **options):
    return CliRunner().invoke(app, ["db", *words], **options)


def done(*words, **options):
    """The result of a command that raised nothing."""
    result = run(*words, **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def told(*words):
    return json.loads(done(*words, "--json").stdout)


def known(store):
    return {each.session.id for each in store.list_sessions()}


def test_status_makes_nothing_and_upgrade_makes_the_store(tmp_path):
    before = told("status")
    assert (before["current"], bool(before["pending"])) == (None, True)
    assert list(tmp_path.iterdir()) == []
    assert done("upgrade").exit_code == 0
    after = told("status")
    assert (after["current"], after["pending"]) == (before["head"], [])
    assert str(tmp_path / "riglm.db") in done("status").output


def test_a_missing_driver_is_told_before_anything_is_served(monkeypatch):
    monkeypatch.setenv("RIGLM_STORAGE__URL", "postgresql://host/db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = CliRunner().invoke(app, ["run", "--", sys.executable])
    assert isinstance(result.exception, ConfigurationError)
    assert "pip install 'riglm[postgresql]'" in str(result.exception)


def test_status_shows_what_waits_in_spools(tmp_path, monkeypatch):
    with SqliteSpool(spool_directory(tmp_path / "spool", str(tmp_path / "riglm.db"))) as spool:
        spool.append([a_session(), a_session()])
        (held,) = told("status")["spools"]
        assert (held["records"], held["is_held"]) == (2, True)
    (left,) = told("status")["spools"]
    assert (left["records"], left["is_held"], left["damaged"]) == (2, False, 0)
    assert f"{left['path']}: 2 records, left behind: the next start stores or sends it" in done("status").output
    url = "http://127.0.0.1:1/usage"
    monkeypatch.setenv("RIGLM_CLICKHOUSE__URL", url)
    with SqliteSpool(spool_directory(tmp_path / "spool", url)) as spool:
        spool.append([a_session()])
    assert [each["records"] for each in told("status")["spools"]] == [2, 1]


@pytest.mark.parametrize("words", [["db", "status"], ["db", "upgrade"], ["stats"], ["sessions"], ["tools"]])
def test_a_data_directory_that_is_none_is_an_error_and_not_an_empty_store(tmp_path, monkeypatch, words):
    (tmp_path / "new").write_text("in the way", "utf-8")
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "new" / "data"))
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, AnalyticsUnavailableError)
    assert f"the data directory {tmp_path / 'new' / 'data'} cannot be used" in str(result.exception)
    assert "fix:" in str(result.exception)


@NEEDS_STORE
def test_a_store_that_does_not_exist_is_an_error_and_is_not_made(tmp_path, words):
    with pytest.raises(RiglmError, match=r"there is no store at .*riglm\.db yet — fix:"):
        done(*words)
    assert list(tmp_path.iterdir()) == []


@NEEDS_STORE
def test_a_store_that_cannot_be_reached_is_an_error(monkeypatch, words):
    monkeypatch.setenv("RIGLM_STORAGE__URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(AnalyticsUnavailableError, match="cannot be used"):
        done(*words)
    monkeypatch.delenv("RIGLM_STORAGE__URL")
    monkeypatch.setenv("RIGLM_STORAGE__KIND", "memory")
    for command in (words, ["upgrade"]):
        with pytest.raises(ConfigurationError, match=r"storage\.kind"):
            done(*command)


def test_what_is_older_than_configured_is_purged_after_it_was_counted(store, used):
    counted = told("purge", "--dry-run")
    assert (counted["dry_run"], counted["removed"]["sessions"], counted["removed"]["invocations"]) == (True, 1, 2)
    assert len(known(store)) == 3
    assert told("purge")["removed"]["sessions"] == 1
    assert known(store) == {used[1].id, used[2].id}
    assert done("purge").stdout == "removed: nothing\n"


@pytest.mark.parametrize("span", ["", "30", "5x", "-3d", "0d", "1e3d", "30 days", "99999999w"])
def test_what_is_no_span_of_time_is_told_with_an_example(store, span):
    with pytest.raises(ConfigurationError, match=r"--older-than: .*for example 30d"):
        done("purge", f"--older-than={span}")


def test_a_purge_waits_for_whoever_looks_after_the_store_and_then_gives_up(store, used, monkeypatch):
    monkeypatch.setattr(store_access, "_TIMEOUT_SECONDS", 0.0)
    with store.maintenance_lease() as mine:
        assert mine
        with pytest.raises(RiglmError, match="another process is running store maintenance"):
            done("purge")
    assert len(known(store)) == 3


def test_a_store_gives_back_its_space_and_holds_what_it_held(store, used):
    store.record_many([record for _ in range(300) for record in a_used_session(1000.0, ended=1001.0)[1]])
    done("purge", "--older-than", "100d")
    sizes = told("vacuum", "--whole")
    assert sizes["bytes_after"] < sizes["bytes_before"]
    assert "MB before" in done("vacuum").stdout
    assert known(store) == {used[1].id, used[2].id}


def test_a_store_is_handed_out_as_files_with_a_manifest(store, used, tmp_path):
    out = tmp_path / "new" / "out"
    done("export", "--out", str(out))
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"], manifest["since"]) == ("jsonl", 1, None)
    for name, table in manifest["tables"].items():
        data = (out / table["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (table["bytes"], table["sha256"]), name
        assert len(data.splitlines()) == table["rows"]
    assert {name: table["rows"] for name, table in manifest["tables"].items() if table["rows"]} == {
        "sessions": 3,
        "invocations": 6,
        "exposures": 3,
    }
    rows = [json.loads(line) for line in (out / "sessions.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} == {str(each.id) for each in used}
    assert rows[0]["started_at"].endswith("Z")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--out", "out"], "is there already"),
        (["--out", " "], r"--out: no directory is named — fix: "),
        (["--out", "file"], "the export cannot be written to"),
        (["--out", "-", "--since=yesterday"], r"--since: .*30d"),
        (["--out", "-", "--since="], r"--since: .*30d"),
        (["--out", "-", "--format", "csv"], "cannot be written to a stream"),
    ],
)
def test_an_export_that_cannot_be_made_is_refused_and_overwrites_nothing(store, used, tmp_path, words, reason):
    done("export", "--out", "out")
    (tmp_path / "file").write_text("")
    before = {file: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(RiglmError, match=reason):
        done("export", *words)
    assert {file: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_a_csv_file_reads_back(store, used, tmp_path):
    done("export", "--out", str(tmp_path / "out"), "--format", "csv")
    with (tmp_path / "out" / "invocations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["tool"] for row in rows) == ["read"] * 3 + ["write"] * 3
    assert {(row["success"], row["error_kind"]) for row in rows} == {("true", "")}


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_an_export_that_fails_half_way_leaves_no_manifest_and_no_half_file(store, used, tmp_path, monkeypatch, format_):
    def fails(self, kind, since=0.0, at_once=1000):
        yield [row for part in whole(self, kind, since) for row in part][:1]
        raise AnalyticsUnavailableError("the store is away")

    whole = SqlAnalytics.export
    monkeypatch.setattr(SqlAnalytics, "export", fails)
    with pytest.raises(AnalyticsUnavailableError):
        done("export", "--out", str(tmp_path / "out"), "--format", format_)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("option", "whom", "kept"),
    [
        ("--principal", lambda _: "ann", [2]),
        ("--principal", lambda _: "", [0, 1]),
        ("--client", lambda _: "ann's", [2]),
        ("--session", lambda used: str(used[2].id), [0, 1]),
        ("--session", lambda used: str(used[2].id)[-12:], [0, 1]),
    ],
)
def test_a_principal_a_client_or_a_session_is_erased(store, used, option, whom, kept):
    forgotten = told("forget", option, whom(used), "--yes")
    assert forgotten["whose"] == option.removeprefix("--")
    assert forgotten["removed"]["sessions"] == 3 - len(kept)
    assert known(store) == {used[place].id for place in kept}


def test_nothing_is_forgotten_before_it_was_confirmed(store, used):
    refused = done("forget", "--client", "ann's", input="n\n")
    assert refused.exit_code == 1
    assert "Erase 2 sessions, 4 invocations, 2 exposures of the client ann's" in refused.stderr
    assert "for all principals" in refused.stderr
    assert len(known(store)) == 3
    assert done("forget", "--client", "ann's", input="y\n").exit_code == 0
    assert known(store) == {used[2].id}


@pytest.mark.parametrize("words", [[], ["--client", "x", "--principal", "y"], ["--session", "x", "--client", ""]])
def test_whom_to_forget_must_be_clear(store, words):
    with pytest.raises(ConfigurationError, match="give one of"):
        done("forget", *words)


@pytest.mark.parametrize("option", ["--client", "--session"])
def test_an_empty_name_is_nobody(store, used, option):
    with pytest.raises(ConfigurationError, match="is no name"):
        done("forget", option, "", "--unseen", "--yes")
    assert store.count_erasures() == 0.0


def test_a_name_that_looks_like_a_hash_is_tried_as_a_name_first(store, used):
    name = "0123456789abcdef" * 2
    key = KeyedHasher(load_or_create_key(Path("riglm.key"))).principal(name)
    store.record_many(a_used_session(time.time() - 60, principal=key)[1])
    assert told("forget", "--principal", name, "--yes")["key"] == key


@pytest.fixture
def shared(monkeypatch):
    """The state that riglms share, and its address in their environment."""
    prefix = valkey.own_prefix()
    monkeypatch.setenv("RIGLM_STATE__URL", valkey.shared_url())
    monkeypatch.setenv("RIGLM_STATE__PREFIX", prefix)
    monkeypatch.setenv("RIGLM_STATE__DEADLINE", "5")
    return prefix


def test_what_is_shared_of_a_forgotten_session_is_removed(store, used, shared):
    sealer = StateSigner(hasher().derived_key("shared state"))
    names = [f"{shared}:{name(sealer, each.id)}" for each in used for name in (session_name, count_name)]
    for name in names:
        valkey.ask_shared("SET", name, "how far it has come")
    assert done("forget", "--client", "ann's", "--yes").stderr == ""
    assert [valkey.ask_shared("EXISTS", name) for name in names] == [*[b":0\r\n"] * 4, *[b":1\r\n"] * 2]


def test_that_shared_state_is_away_is_told_with_how_long_it_is_kept(store, used, shared, monkeypatch):
    monkeypatch.setenv("RIGLM_STATE__URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("RIGLM_SESSIONS__IDLE_GAP", "77")
    monkeypatch.setenv("RIGLM_DOWNSTREAM__SESSION_IDLE", "99")
    forgotten = done("forget", "--client", "ann's", "--yes")
    assert forgotten.exit_code == 0
    assert "expires 99 seconds after" in forgotten.stderr
    assert "removed: 2 sessions" in forgotten.stdout


@pytest.mark.parametrize(
    ("whom", "unseen"), [("client", []), ("principal", ["--unseen"]), ("session", []), ("end of a session's id", [])]
)
def test_run_again_it_removes_what_stayed_while_shared_state_was_away(store, used, shared, whom, unseen, monkeypatch):
    given = {
        "client": ["--client", "ann's"],
        "principal": ["--principal", "ann"],
        "session": ["--session", str(used[1].id)],
        "end of a session's id": ["--session", str(used[1].id)[-12:].upper()],
    }[whom]
    name = f"{shared}:{session_name(StateSigner(hasher().derived_key('shared state')), used[1].id)}"
    valkey.ask_shared("SET", name, "how far it has come")
    with monkeypatch.context() as away:
        away.setenv("RIGLM_STATE__URL", "redis://127.0.0.1:1/0")
        assert "run this again" in done("forget", *given, "--yes").stderr
    assert valkey.ask_shared("EXISTS", name) == b":1\r\n"
    again = done("forget", *given, *unseen, "--yes")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "removed from Redis: 1 session\n" in again.stdout
    assert valkey.ask_shared("EXISTS", name) == b":0\r\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--session", "no-session"],
        ["--session", "01a00000-0000-7000-8000-000000000000"],
        ["--client", "nobody"],
        ["--principal", "nobody"],
    ],
)
def test_whoever_is_not_known_is_an_error_and_nothing_changes(store, used, words):
    with pytest.raises(RiglmError, match="riglm sessions"):
        done("forget", *words, "--yes")
    assert len(known(store)) == 3
    assert store.count_erasures() == 0.0


def test_nothing_of_whoever_was_forgotten_stays_in_the_files(store, used, tmp_path):
    session, records = a_used_session(time.time() - 60, client=ClientInfo(name="late"))
    secret = "s3cret-argument" * 50
    store.record_many(
        [*records, *(an_invocation(session, "read", arguments=f"{secret}{number}") for number in range(200))]
    )
    assert any(b"s3cret" in file.read_bytes() for file in tmp_path.iterdir())
    done("forget", "--session", str(session.id), "--yes")
    assert not any(b"s3cret" in file.read_bytes() for file in tmp_path.iterdir())


def a_row(table):
    """A row with a value of each type, of which text holds what PostgreSQL has no characters for."""
    values = {
        CompactUuid: uuid4(),
        SafeText: "a\x00\ud800é",
        JsonText: {"ä": [1, None]},
        sa.String: "x",
        sa.LargeBinary: b"\x00\x01\x02\x03" * 2,
        sa.BigInteger: 2,  # two numbers are in the vector
        sa.Double: 1.5,
        sa.Boolean: True,
    }
    return {column.name: values[type(column.type)] for column in table.c}


def rows_of(url):
    with engine_for(url) as engine, reading(engine) as connection:
        return {
            table.name: sorted(map(repr, connection.execute(sa.select(table))))
            for table in metadata.sorted_tables
            if table is not forgotten
        }


def reported():
    shown = json.loads(CliRunner().invoke(app, ["report", "--predictor", "frequency", "--json"]).stdout)
    return {name: value for name, value in shown.items() if name not in {"until", "strategies"}}


def test_a_copy_in_postgresql_and_the_copy_of_it_are_the_same_store(store, tmp_path, empty_postgres_url, monkeypatch):
    url, back = f"sqlite:///{tmp_path / 'riglm.db'}", f"sqlite:///{tmp_path / 'back.db'}"
    store.record_many(worked(30))
    left = 200

    def interrupt(rows):
        nonlocal left
        left -= rows
        if left < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(url, empty_postgres_url, interrupt)
    assert rows_of(empty_postgres_url) != rows_of(url)
    assert "session" in done("copy", "--to", empty_postgres_url).stdout
    expected = reported()
    assert expected["sessions"] == 30
    monkeypatch.setenv("RIGLM_STORAGE__URL", empty_postgres_url)
    assert reported() == expected
    with engine_for(empty_postgres_url) as engine, writing(engine) as connection:
        for table in metadata.sorted_tables:
            connection.execute(sa.insert(table), a_row(table))
    tables = told("copy", "--to", "back.db")["tables"]
    assert all(each["rows"] == each["copied"] > 0 for each in tables.values())
    assert rows_of(back) == rows_of(empty_postgres_url) != rows_of(url)


def test_a_copy_to_the_store_itself_or_to_nowhere_is_refused(store, tmp_path):
    with pytest.raises(ConfigurationError, match="--to: it is the store itself"):
        done("copy", "--to", str(tmp_path / "riglm.db"))
    with pytest.raises(AnalyticsUnavailableError, match="neither SQLite nor PostgreSQL"):
        done("copy", "--to", "mysql://localhost/riglm")
