"""Rows of tools that are damaged: skipped, and replaced by the next list."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from riglm.adapters.analytics import prediction_store
from riglm.adapters.analytics.prediction_store import SqliteChoices
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.tool_pin import ToolChange
from tests.records import a_tool_catalog, a_tool_pin


@pytest.fixture
def file(tmp_path):
    return tmp_path / "usage.db"


@pytest.fixture
def store(file, monkeypatch):
    monkeypatch.setattr(prediction_store, "_damaged", set())
    with SqlAnalytics(f"sqlite:///{file}") as opened:
        yield opened


def damage(file, statement):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "assignment",
    [
        "tools = x'5b7b226e'",
        "tools = x''",
        "tools = x'00ff'",
        "tools = '[]'",
        "tools = 7",
        "tools = x'7b7d'",
        "tools = x'5b375d'",
        """tools = CAST('[{"x":1},{"name":2}]' AS BLOB)""",
        "capabilities = x'5b5d'",
        "capabilities = 'x'",
        "instructions = x'00'",
        "server = x'ff'",
        "updated_at = 'soon'",
    ],
)
def test_a_damaged_catalog_is_skipped_and_replaced(store, file, caplog, assignment):
    catalog, other = a_tool_catalog(), a_tool_catalog(variant="modern")
    store.record_many([catalog, other])
    damage(file, f"UPDATE tool_catalog SET {assignment} WHERE variant = '{catalog.variant}'")
    for choices in (store, SqliteChoices(file)):
        assert list(choices.list_tool_catalogs([catalog.fingerprint])) == [other]
    assert caplog.messages == ["damaged rows of the store are skipped until they are written again"]
    store.record_many([catalog])
    assert len(store.list_tool_catalogs([catalog.fingerprint])) == 2


def test_text_that_is_no_utf8_stops_no_reading_of_catalogs(store, file):
    catalog = a_tool_catalog()
    store.record_many([catalog])
    damage(file, "UPDATE tool_catalog SET instructions = CAST(x'ff41' AS TEXT)")
    for choices in (store, SqliteChoices(file)):
        assert [each.tools for each in choices.list_tool_catalogs([catalog.fingerprint])] == [catalog.tools]


@pytest.mark.parametrize(
    ("assignment", "change"),
    [
        ("digest = x'00'", ToolChange.ADDED),
        ("digest = 'short'", ToolChange.ADDED),
        ("digest = 7", ToolChange.ADDED),
        ("definition = 'text'", None),
        ("definition = 7", None),
        ("definition = x'7b22'", None),
        ("seen = x'ff'", None),
        ("seen = 7", None),
        ("seen_digest = 7", None),
        ("resembles = x'ff'", None),
        ("pinned_at = 'x', seen_at = 1e300", None),
        ("seen_at = -1e300", None),
    ],
)
def test_what_is_whole_of_a_damaged_pin_still_counts(store, file, assignment, change):
    store.record_many([a_tool_pin()])
    damage(file, f"UPDATE tool_pin SET {assignment}")
    [pin] = store.list_tool_pins()
    assert [pin] == list(SqliteChoices(file).list_tool_pins(["files"]))
    assert pin.change is change
    assert pin.digest in {"a" * 64, ""}
    assert isinstance(pin.diff, list)


@pytest.mark.parametrize(
    ("assignment", "change"),
    [
        ("digest = 'zz'", ToolChange.ADDED),
        ("digest = 7, definition = 'x', seen_at = 'x'", ToolChange.ADDED),
        ("definition = x'7b', seen_digest = substr(seen_digest, 2) || 'b'", ToolChange.CHANGED),
    ],
)
def test_a_damaged_approval_is_reported_once_with_the_tools_and_the_fix(store, file, caplog, assignment, change):
    store.record_many([a_tool_pin(name=name) for name in ("read", "write", "move")])
    damage(file, f"UPDATE tool_pin SET {assignment} WHERE name != 'move'")
    for choices in (store, SqliteChoices(file)):
        assert [pin.change for pin in choices.list_tool_pins()] == [None, change, change]
    [message] = [each for each in caplog.messages if "approval" in each]
    assert message.startswith("files/read, files/write: ")
    assert "`riglm tools approve`" in message
    approved = [replace(pin, digest=pin.seen_digest, definition=pin.seen) for pin in store.list_tool_pins()]
    store.approve_tools(approved)
    assert [(pin.change, pin.definition) for pin in store.list_tool_pins()] == [(None, pin.seen) for pin in approved]


def test_an_approved_definition_that_is_damaged_is_what_was_listed_if_that_is_approved(store, file, caplog):
    pin = a_tool_pin()
    store.record_many([pin])
    damage(file, "UPDATE tool_pin SET definition = x'7b22'")
    assert list(store.list_tool_pins()) == [replace(pin, definition=pin.seen)]
    assert not caplog.messages


def test_a_pin_without_a_name_is_skipped(store, file):
    store.record_many([a_tool_pin(), a_tool_pin(name="write")])
    damage(file, "UPDATE tool_pin SET name = x'ff' WHERE name = 'read'")
    assert [pin.name for pin in store.list_tool_pins()] == ["write"]
