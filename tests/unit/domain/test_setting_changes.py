import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.errors import InvalidInputError
from riglm.domain.schemas.changes import (
    disclose,
    find_changes,
    find_differences,
    merge_changes,
    read_changes,
    store_changes,
)
from riglm.domain.schemas.settings import Settings

SECRET = "canary-0123456789abcdef"
PATTERNS = st.text("abc*", min_size=1, max_size=4).filter(lambda pattern: set(pattern) > {"a"})
SERVERS = {
    "a": {"command": ["srv", "--token", SECRET], "args": [f"--api-key={SECRET}", "x"], "env": {"KEY": SECRET, "E": ""}},
    "b": {"url": f"https://me:{SECRET}@h/p?k={SECRET}", "headers": {"X": SECRET}},
    "c": {"serverUrl": "https://h", "auth": {"token": SECRET}},
    "d": {"command": "srv", "disabled": True, "cwd": "/tmp"},
}  # fmt: skip


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def put(before: Settings, given: dict[str, Any]) -> Settings:
    return merge_changes(before, find_changes(given, disclose(before)))


def test_a_secret_stays_where_its_mask_is_given_and_changes_where_another_value_is() -> None:
    before = settings(mcpServers=SERVERS)
    document = disclose(before)
    document["mcpServers"]["a"]["env"]["KEY"] = "new"
    after = put(before, document)
    assert find_differences(before, after) == [("mcpServers", "a", "env", "KEY")]
    assert after.mcp_servers["b"].headers["X"].get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"filtering": {"max_tols": 1}}, "filtering.max_tols", "unknown key — fix: did you mean `max_tools`?"),
        ({"filtering": {"max_tools": "many"}}, "filtering.max_tools", "this is not a whole number"),
        ({"filtering": {"max_tools": {"a": 1}}}, "filtering.max_tools", "this is not a whole number"),
        ({"filtering": 5}, "filtering", "this is not a section"),
        ({"mcpServers": {"index_status": {"command": "x"}}}, "mcpServers.index_status", "is the name of a tool"),
        ({"mcpServers": {"a": {"args": ["--api-key=***", "other"]}}}, "mcpServers.a.args", "this holds a mask"),
        ({"predictor": {"options": {"api_key": "***"}}}, "predictor.options.api_key", "this holds a mask"),
        ({"filtering": {"profile": "a\ud800"}}, "filtering.profile", "half a character"),
        ({"filtering": {"clients": {"\udfff": "full"}}}, r"filtering.clients.\udfff", "half a character"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(change: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        put(settings(mcpServers=SERVERS), change)
    [fault] = refused.value.faults
    assert fault.path == path
    assert words in fault.detail


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as refused:
        put(settings(), {"filtering": {"max_tools": 0, "mode": "x"}, "nothing": 1})
    assert {fault.path for fault in refused.value.faults} == {"filtering.max_tools", "filtering.mode", "nothing"}


@pytest.mark.parametrize("kind", [dict, list])
def test_a_document_without_a_bottom_is_refused(kind: type) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep} if kind is dict else [deep]
    with pytest.raises(InvalidInputError, match="too deeply"):
        put(settings(), {"predictor": {"options": {"x": deep}}})


def test_changes_are_stored_by_section_and_key_and_apply_to_other_settings() -> None:
    stored = store_changes({"filtering.mode": "enforce"}, {("filtering", "mode"): None, ("prices", "output"): 3.0})
    stored = store_changes(stored, {("filtering", "clients", "x.y"): "full", ("filtering", "clients", "z"): None})
    assert stored == {"filtering.mode": None, "prices.output": 3.0, "filtering.clients": {"x.y": "full", "z": None}}
    start = settings(filtering={"mode": "shadow", "clients": {"z": "stable", "w": "hints"}})
    after = merge_changes(start, read_changes(json.loads(json.dumps(stored)), start))
    assert (after.filtering.mode, after.prices.output) == ("enforce", 3.0)
    assert after.filtering.clients == {"w": "hints", "x.y": "full"}


def test_stored_changes_of_other_keys_and_of_those_on_the_command_line_do_not_apply() -> None:
    stored = {"filtering.mode": "shadow", "filtering.max_tools": 9, "naming": "none", "storage.path": "/x", "gone.a": 1}
    assert read_changes(stored, settings(), [("filtering", "mode")]) == {("filtering", "max_tools"): 9}
    shared = settings(state={"url": "redis://h"})
    assert read_changes({"sessions.idle_gap": 9}, settings()) == {("sessions", "idle_gap"): 9}
    assert read_changes({"sessions.idle_gap": 9}, shared) == {}


OPTIONS = st.recursive(
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["token", "command", "url", "args", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "mcpServers": st.dictionaries(st.sampled_from("vwxyz"), st.sampled_from(list(SERVERS.values()))),
            "filtering": st.fixed_dictionaries(
                {},
                optional={
                    "max_tools": st.integers(5, 99),
                    "coverage": st.floats(0.1, 0.9),
                    "denylist": st.lists(PATTERNS),
                    "clients": st.dictionaries(st.text(max_size=3), st.sampled_from(["full", "hints"]), max_size=2),
                },
            ),
            "predictor": st.fixed_dictionaries({"options": st.dictionaries(st.text(max_size=4), OPTIONS, max_size=3)}),
            "state": st.sampled_from([{"url": f"redis://me:{SECRET}@h"}, {"prefix": "x"}]),
            "privacy": st.sampled_from([{"key": SECRET * 2}, {"arguments": "raw"}, {}]),
            "storage": st.sampled_from([{"url": f"postgresql://me:{SECRET}@h/db"}, {"kind": "memory"}, {"path": "/x"}]),
        },
    )
)  # fmt: skip
def test_what_is_disclosed_changes_nothing_when_it_is_put_back(values: dict[str, Any]) -> None:
    document = disclose(settings(**values))
    assert SECRET not in json.dumps(document)
    assert find_changes(json.loads(json.dumps(document)), document) == {}
