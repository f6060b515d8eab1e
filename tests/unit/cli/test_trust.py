"""`riglm tools changes | approve` and `riglm trust`, on whole and on damaged pins."""

import json
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli.main import app
from tests.records import a_tool_pin

runner = CliRunner()
TEXT_COLUMNS = ("server", "name", "digest", "seen_digest", "resembles")
DEFINITION = b'{"name":"read","description":"Reads."}'


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "RIGLM_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path / "riglm.db"


@pytest.fixture
def changed(file):
    """Two changed tools of the server `files`."""
    with SqlAnalytics(f"sqlite:///{file}") as store:
        pins = [
            a_tool_pin(name=name, seen_digest=digest * 64, seen=DEFINITION)
            for name, digest in (("read", "b"), ("move", "c"))
        ]
        store.record_many(pins)


@pytest.mark.usefixtures("changed")
def test_changes_show_the_digest_that_approve_takes():
    for digest, name in (("b", "read"), ("c", "move")):
        shown = runner.invoke(app, ["tools", "changes"])
        assert f"files/{name}: changed, digest {digest * 64}\n" in shown.output
        approved = runner.invoke(app, ["tools", "approve", "files", "--digest", digest * 64, "-y"])
        assert approved.output == f"approved: files/{name}\n"


@pytest.mark.usefixtures("changed")
def test_a_digest_without_yes_is_asked_about():
    asked = runner.invoke(app, ["tools", "approve", "files", "--digest", "b" * 64], input="n\n")
    assert "Approve 1 tool?" in asked.output
    assert asked.exit_code == 1
    assert "after a question" in runner.invoke(app, ["tools", "approve", "--help"]).output


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("given", [["files", "move"], ["other"]])
def test_a_digest_of_a_tool_that_is_not_named_is_refused_with_that_tool(given):
    refused = runner.invoke(app, ["tools", "approve", *given, "-y", "--digest", "b" * 64])
    assert str(refused.exception).startswith(f"files/read: has the digest {'b' * 64}, and is not among those named")
    unknown = runner.invoke(app, ["tools", "approve", *given, "-y", "--digest", "d" * 64])
    assert str(unknown.exception).startswith(f"no changed tool has the digest {'d' * 64}")


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "changes"],
        ["tools", "changes", "--json"],
        ["tools", "approve", "--all", "-y"],
        ["tools", "approve", "files", "--digest", "b" * 64, "-y"],
        ["trust", "export"],
        ["trust", "import", "approved.json"],
        ["doctor", "--no-upstreams"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("changed")
def test_damaged_pins_end_no_command_with_a_traceback(file, words):
    damages = [f"{column} = CAST(x'ff41' AS TEXT)" for column in TEXT_COLUMNS]
    damages += [f"{column} = {value}" for column in TEXT_COLUMNS for value in ("x'ff'", "7", "''")]
    damages += [f"{column} = {value}" for column in ("definition", "seen") for value in ("x'ff'", "7", "'[]'", "x'5b'")]
    damages += [f"{column} = {value}" for column in ("pinned_at", "seen_at") for value in ("'x'", "1e300", "x'00'")]
    with SqlAnalytics(f"sqlite:///{file}") as store:
        store.record_many([a_tool_pin(name=f"tool{at}", seen_digest="b" * 64) for at in range(len(damages))])
    with closing(sqlite3.connect(file)) as connection, connection:
        for at, damage in enumerate(damages):
            connection.execute(f"UPDATE tool_pin SET {damage} WHERE name = 'tool{at}'")
    runner.invoke(app, ["tools", "changes"])
    (file.parent / "approved.json").write_text(
        json.dumps({"version": 1, "servers": {"files": {"tools": {"read": "b" * 64, "tool2": "b" * 64}}}})
    )
    done = runner.invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert words[0] == "doctor" or done.exit_code == 0, done.output
    assert words[0] == "doctor" or words[1] == "import" or '"read"' in done.output or "files/read" in done.output
