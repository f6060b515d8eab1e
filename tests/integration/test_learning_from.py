"""`riglm learn-from`, run as a user runs it, on transcripts as Claude Code leaves them."""

import json
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from benchmarks.warm_start.measure import first_lists, learn, riglm
from benchmarks.warm_start.transcripts import write
from benchmarks.warm_start.work import Person, servers
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.setup import transcript_recording as recording
from riglm.cli.main import app
from riglm.cli.store_access import load_hasher
from riglm.domain.schemas.settings import Settings

DAY, LATER = (f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d}" for days in (3, 2))

CALL = {
    "type": "assistant",
    "sessionId": "s1",
    "timestamp": f"{DAY}T10:00:00.000Z",
    "message": {
        "content": [{"type": "tool_use", "id": "toolu_%s", "name": "mcp__github__%s", "input": {"text": "s3cr3t"}}]
    },
}
RESULT = {
    "type": "user",
    "sessionId": "s1",
    "timestamp": f"{DAY}T10:00:01.000Z",
    "message": {"content": [{"type": "tool_result", "tool_use_id": "toolu_%s", "content": "fine"}]},
}
PROMPT = {**RESULT, "message": {"content": "compare the zebra reviews of the northern valley"}}


def call(number: int, tool: str = "list_issue") -> str:
    made = json.dumps(CALL).replace("toolu_%s", f"toolu_{number}").replace("github__%s", f"github__{tool}")
    return f"{made}\n{json.dumps(RESULT).replace('%s', str(number))}\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A directory with a riglm.yaml, where riglm keeps its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")
    behind = {name: {"command": "never", "args": ["${NOT_SET_HERE}"]} for name in servers()}
    (tmp_path / "riglm.yaml").write_text(json.dumps({"mcpServers": behind}))
    return tmp_path


def run(*words, code=0):
    done = CliRunner().invoke(app, ["learn-from", *map(str, words)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def learned(*words):
    return {each["client"]: each for each in json.loads(run(*words, "--json").stdout)["clients"]}["claude-code"]


def counted(*words):
    return {name: count for name, count in learned(*words)["calls"].items() if count}


def stored(home: Path, query: str):
    with sqlite3.connect(home / "data" / "riglm.db") as database:
        return database.execute(query).fetchall()


def everything(home: Path):
    """What the store holds, but for what is hashed under its key and times at which it was written."""
    sessions = "SELECT started_at, ended_at, method, client_name FROM session ORDER BY 1, 2"
    calls = "SELECT tool, upstream, timestamp, sequence_number, success, found FROM invocation ORDER BY 3, 1, 4"
    pairs = "SELECT tool, confidence, uses, updated_at FROM learned_pair ORDER BY 4, 1, 3"
    return [stored(home, query) for query in (sessions, calls, pairs)]


def test_a_transcript_that_grew_adds_what_is_new_and_nothing_twice(home):
    file = home / "s1.jsonl"
    file.write_text(json.dumps(PROMPT) + "\n" + call(1) + call(2, "get_issue"))
    assert counted(file) == {"read": 2, "new": 2}
    assert counted(file) == {"read": 2, "known": 2}
    with file.open("a") as more:
        more.write(call(2, "get_issue") + call(3))
    assert counted(file) == {"read": 4, "new": 1, "known": 2, "copied": 1}
    rows = stored(home, "SELECT tool, sequence_number FROM invocation ORDER BY sequence_number")
    assert rows == [("github__list_issue", 1), ("github__get_issue", 2), ("github__list_issue", 3)]
    assert sorted(stored(home, "SELECT tool, uses FROM learned_pair")) == [
        ("github__get_issue", 1),
        ("github__list_issue", 2),
    ]
    assert stored(home, "SELECT method, client_name FROM session") == [("transcript", "claude-code")]


def test_an_imported_session_has_the_project_that_its_client_worked_in(home):
    """Whether or not the directory is still there; nothing of its path is stored."""
    (home / "shop" / ".git").mkdir(parents=True)
    (home / ".git").mkdir()
    places = [str(home / "shop"), str(home / "shop" / "gone" / "deep"), str(home / "x"), "/", "shop\\src", ""]
    for number, place in enumerate(places):
        lines = call(number, f"tool_{number}").replace('"s1"', f'"s{number}"')
        where = f'{{"cwd": {json.dumps(place)}, '
        (home / f"s{number}.jsonl").write_text("".join(where + each[1:] for each in lines.splitlines(keepends=True)))
    assert counted(home) == {"read": 6, "new": 6}
    found = stored(home, "SELECT tool, project FROM session JOIN invocation ON session_id = session.id ORDER BY tool")
    hasher = load_hasher(Settings())
    shop, above = (hasher.project(str(place)) for place in (home / "shop", home))
    assert [project for _, project in found] == [shop, shop, above, "", "", ""]
    assert str(home / "shop").encode() not in (home / "data" / "riglm.db").read_bytes()


def test_a_tool_that_has_another_name_by_now_is_learned_under_that(home):
    file = home / "s1.jsonl"
    file.write_text(call(1))
    config = home / "riglm.yaml"
    both = config.read_text()
    config.unlink()
    assert "no configuration names its servers" in run(file).stderr
    config.write_text(json.dumps({"mcpServers": {"github": {"command": "never"}}}))
    assert counted(file) == {"read": 1, "new": 1}
    config.write_text(both)
    assert counted(file) == {"read": 1, "known": 1}
    assert stored(home, "SELECT tool FROM invocation ORDER BY tool") == [("github__list_issue",), ("list_issue",)]


SERVERS = "mcpServers: {github: {command: never}, docs: {command: '${NOT_SET_HERE}'}}\n"
OFF_OR_ON = SERVERS.replace("'}}", "', disabled: '${OFF}'}}")


@pytest.mark.parametrize(
    ("text", "variables", "tool"),
    [
        (SERVERS, {"RIGLM_NAMING": "none"}, "list_issue"),
        (SERVERS + "naming: ${HOW}\n", {"HOW": "none"}, "list_issue"),
        (SERVERS + "naming: none\n", {"RIGLM_NAMING": "prefix"}, "github__list_issue"),
        (OFF_OR_ON, {"OFF": "true"}, "list_issue"),  # as the only server that is left has it
        (OFF_OR_ON, {"OFF": "false"}, "github__list_issue"),
    ],
)
def test_tools_are_learned_by_the_names_that_a_run_here_would_list(home, monkeypatch, text, variables, tool):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (home / "riglm.yaml").write_text(text)
    (home / "s1.jsonl").write_text(call(1))
    assert counted(home / "s1.jsonl") == {"read": 1, "new": 1}
    assert stored(home, "SELECT tool FROM invocation") == [(tool,)]


def test_nothing_that_was_said_or_given_is_stored(home):
    file = home / "s1.jsonl"
    file.write_text(json.dumps(PROMPT) + "\n" + call(1))
    assert counted(file) == {"read": 1, "new": 1}
    held = b"".join(each.read_bytes() for each in (home / "data").rglob("*") if each.is_file())
    assert b"github__list_issue" in held
    for word in (b"zebra", b"northern", b"s3cr3t", b"s1.jsonl", b"toolu_"):
        assert word not in held


def test_what_is_left_out_is_told_with_the_reason(home):
    file = home / "s1.jsonl"
    file.write_text('{broken, but it names a "user"\n' + call(1) + call(2).replace("github", "gitlab"))
    done = run(file)
    assert "calls of servers that no riglm proxies: gitlab (1)" in done.stderr
    assert f"{file} line 1" in done.stderr
    assert counted(file, "--since", LATER) == {"read": 2, "known": 1, "elsewhere": 1}
    other = home / "s2.jsonl"
    other.write_text(call(9).replace('"s1"', '"s2"'))
    assert counted(other, "--since", LATER) == {"read": 1, "too_old": 1}


def test_calls_older_than_the_store_keeps_are_told_with_the_setting_that_keeps_them(home, monkeypatch):
    file = home / "s1.jsonl"
    file.write_text((call(1) + call(2)).replace(DAY, "2011-11-20"))
    assert counted(file) == {"read": 2, "expired": 2}
    assert "2 calls are older than the 180 days that the store keeps — fix: set retention.invocation_days" in (
        run(file).stderr
    )
    monkeypatch.setenv("RIGLM_RETENTION__INVOCATION_DAYS", "0")
    assert counted(file) == {"read": 2, "new": 2}  # a session lasts as long as its calls


def test_what_was_forgotten_is_not_learned_again(home):
    file = home / "s1.jsonl"
    file.write_text(call(1))
    assert counted(file) == {"read": 1, "new": 1}
    done = CliRunner().invoke(app, ["db", "forget", "--client", "claude-code", "--yes"])
    assert done.exit_code == 0, done.output
    assert counted(file) == {"read": 1, "forgotten": 1}
    assert stored(home, "SELECT id FROM session") == []


def test_after_init_the_servers_are_found_by_the_names_that_they_had(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    (home / "riglm.yaml").unlink()
    before = {name: {"command": sys.executable} for name in ("git hub", "docs")}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": before}))
    folder = home / ".claude" / "projects" / "-x"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_text(call(1).replace("mcp__github", "mcp__git_hub") + call(2).replace("github", "gone"))
    done = CliRunner().invoke(app, ["init", "--client", "claude-code", "--yes"])
    assert done.exit_code == 0, done.output
    assert learned()["elsewhere"] == {"gone": 1}
    assert stored(home, "SELECT tool, upstream FROM invocation") == [("git-hub__list_issue", "git-hub")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere: there is nothing"),
        (["--client", "emacs"], "its transcripts cannot be read"),
        ([".", "--since", "soon"], "neither a date nor a span"),
        ([".", "--config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_use_is_told_with_its_fix(home, words, told):
    done = CliRunner().invoke(app, ["learn-from", *words])
    assert done.exit_code != 0
    assert told in str(done.exception)
    assert "fix" in str(done.exception)


def test_an_import_that_was_ended_goes_on_where_it_was(home, monkeypatch):
    """Every session is stored with all that it taught, or not at all: in the end all is as if nothing had happened."""
    folder = write(home, Person(5).before(12), 5)
    monkeypatch.setattr(recording, "RECORDS_BATCH_SIZE", 1)
    whole = SqlAnalytics.record_many
    left = iter(range(4))

    def ended_after_some(self, records):
        if next(left, None) is None:
            raise KeyboardInterrupt
        whole(self, records)

    monkeypatch.setattr(SqlAnalytics, "record_many", ended_after_some)
    run(folder, code=130)
    assert len(stored(home, "SELECT id FROM session")) == 4
    monkeypatch.setattr(SqlAnalytics, "record_many", whole)
    first = learned(folder)
    assert first["calls"]["known"] > 0
    assert first["calls"]["new"] > 0
    resumed = everything(home)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(home / "again" / "data"))
    monkeypatch.setattr(recording, "RECORDS_BATCH_SIZE", 500)
    assert learned(folder)["calls"]["known"] == 0
    assert everything(home / "again") == resumed


@pytest.mark.usefixtures("riglm_is_forked")
async def test_the_first_list_after_learning_holds_what_the_next_sessions_need(tmp_path):
    """Real riglms: one that knows nothing and is at work while the transcripts are learned from, and one after it."""
    person = Person(2)
    folder = write(tmp_path, person.before(60), 2)
    work = person.after(8)
    data = tmp_path / "data"
    with riglm(data, RIGLM_EMBEDDER__PROVIDER="static") as url:
        before = await first_lists(url, "stable", work[:1])
        account = learn(data, folder).told["clients"][0]
    with riglm(data) as url:
        after = [await first_lists(url, "stable", work), await first_lists(url, "dynamic", work[:1])]
    assert account["sessions"] >= 60
    assert account["damaged_lines"] == 1
    assert account["calls"]["copied"] > 0
    assert len(account["servers"]) > 1
    assert after[0].tools <= 20
    assert after[0].at_first >= 0.5 + before.at_first
    assert after[0].with_context >= 0.8
    assert after[1].at_first >= 0.5  # by the use in the store, before a model is loaded
