import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.adapters.configuration.merging import changes_in, differences, disclosed_document, merged, value_at
from riglm.domain.control import InvalidInputError
from riglm.domain.schemas.settings import Settings

STORE = "/somewhere/riglm.db"
SECRET = "canary-0123456789abcdef"
PATTERNS = st.text("abc*", min_size=1, max_size=4).filter(lambda pattern: set(pattern) > {"a"})
SERVERS = {
    "a": {"command": ["srv", "--token", SECRET], "args": [f"--api-key={SECRET}", "x"], "env": {"KEY": SECRET, "E": ""}},
    "b": {"url": f"https://me:{SECRET}@h/p?k={SECRET}", "headers": {"X": SECRET}},
    "c": {"serverUrl": "https://h", "auth": {"token": SECRET}},
    "d": {"command": "srv", "disabled": True, "cwd": "/tmp"},
}  # fmt: skip


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"storage": {"path": STORE}, **values})


def put(before: Settings, given: dict[str, Any]) -> Settings:
    return merged(before, changes_in(given, before), STORE)


def test_what_is_left_out_stays_and_null_means_the_default() -> None:
    before = settings(filtering={"max_tools": 9, "min_tools": 2, "clients": {"x": "full", "y": "hints"}})
    after = put(before, {"filtering": {"max_tools": None, "clients": {"x": None, "z": "stable"}}})
    assert (after.filtering.max_tools, after.filtering.min_tools) == (20, 2)
    assert after.filtering.clients == {"y": "hints", "z": "stable"}


def test_a_null_section_is_as_if_it_were_not_there() -> None:
    before = settings(filtering={"max_tools": 9}, retention={"session_days": 1})
    assert put(before, {"filtering": None, "retention": {}}).filtering == Settings().filtering


def test_a_secret_stays_where_its_mask_is_given_and_changes_where_another_value_is() -> None:
    before = settings(mcpServers=SERVERS)
    shown = disclosed_document(before)
    shown["mcpServers"]["a"]["env"]["KEY"] = "new"
    after = put(before, shown)
    assert differences(before, after) == [("mcpServers", "a", "env", "KEY")]
    assert value_at(after, ("mcpServers", "a", "env", "KEY")) == "new"
    assert value_at(after, ("mcpServers", "b", "headers", "X")) == SECRET


@pytest.mark.parametrize(
    "given",
    [
        {"mcpServers": {"a": {"args": ["--api-key=***", "other"]}}},
        {"mcpServers": {"b": {"url": "https://***@elsewhere/p"}}},
        {"mcpServers": {"new": {"command": "x", "env": {"A": "***"}}}},
        {"downstream": {"token": "***"}},
        {"storage": {"url": "postgresql://***@h/db"}},
        {"predictor": {"options": {"api_key": "***"}}},
    ],
    ids=str,
)
def test_a_mask_is_never_taken_for_a_value(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="mask"):
        changes_in(given, settings(mcpServers=SERVERS))


def test_stars_are_an_innocent_value_elsewhere() -> None:
    assert put(settings(), {"filtering": {"pinned": ["a***"]}}).filtering.pinned == ("a***",)


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ({"filtering": {"max_tols": 1}}, "filtering.max_tols", "unknown key — fix: did you mean `max_tools`?"),
        ({"filtering": {"max_tools": "many"}}, "filtering.max_tools", "this is not a whole number"),
        ({"filtering": {"max_tools": {"a": 1}}}, "filtering.max_tools", "this is not a whole number"),
        ({"filtering": 5}, "filtering", "this is not a section"),
        ({"mcpServers": {"index_status": {"command": "x"}}}, "mcpServers.index_status", "is the name of a tool"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_start(given: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        put(settings(), given)
    [fault] = refused.value.faults
    assert fault.path == path
    assert words in fault.detail


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidInputError) as refused:
        put(settings(), {"filtering": {"max_tools": 0, "mode": "x"}, "nothing": 1})
    assert {fault.path for fault in refused.value.faults} == {"filtering.max_tools", "filtering.mode", "nothing"}


@pytest.mark.parametrize("kind", [dict, list])
def test_a_document_without_a_bottom_is_refused(kind: type) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep} if kind is dict else [deep]
    with pytest.raises(InvalidInputError, match="too deeply"):
        changes_in({"predictor": {"options": {"x": deep}}}, settings())


@pytest.mark.parametrize(
    "given", [{"filtering": {"profile": "a\ud800"}}, {"filtering": {"clients": {"\udfff": "full"}}}]
)
def test_half_a_character_is_refused_and_told_in_whole_ones(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="half a character") as refused:
        changes_in(given, settings())
    str(refused.value).encode()


def test_another_store_takes_the_place_of_the_default_one_and_gives_it_back() -> None:
    moved = put(settings(), {"storage": {"url": "postgresql://h/db"}})
    assert (moved.storage.kind, moved.storage.path) == ("postgresql", None)
    assert put(moved, {"storage": None}).storage.path == STORE


def test_a_server_is_known_by_one_name_for_each_of_its_keys() -> None:
    after = put(settings(mcpServers=SERVERS), {"mcpServers": {"c": {"url": "https://other"}}})
    assert after.mcp_servers["c"].url == "https://other"


def test_yes_is_not_one() -> None:
    before = settings(predictor={"kind": "frequency", "options": {"x": True}})
    assert differences(before, put(before, {"predictor": {"options": {"x": 1}}}))


OPTIONS = st.recursive(
    st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.just("***")),
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
                    "period": st.floats(1, 9e6),
                    "denylist": st.lists(PATTERNS),
                    "clients": st.dictionaries(st.text(max_size=3), st.sampled_from(["full", "hints"]), max_size=2),
                    "cold_start_limit": st.integers(1, 9),
                },
            ),
            "predictor": st.fixed_dictionaries({"options": st.dictionaries(st.text(max_size=4), OPTIONS, max_size=3)}),
            "state": st.sampled_from([{"url": f"redis://me:{SECRET}@h"}, {"prefix": "x"}]),
            "privacy": st.sampled_from([{"key": SECRET * 2}, {"arguments": "raw"}, {}]),
            "storage": st.sampled_from([{"url": f"postgresql://me:{SECRET}@h/db"}, {"kind": "memory"}, {"path": "/x"}]),
        },
    )
)  # fmt: skip
def test_what_is_shown_changes_nothing_when_it_is_put_back(values: dict[str, Any]) -> None:
    before = settings(**values)
    shown = disclosed_document(before)
    assert SECRET not in json.dumps(shown)
    assert changes_in(shown, before) == []
    if not _holds_no_number(shown):
        assert changes_in(json.loads(json.dumps(shown)), before) == []


def _holds_no_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_no_number, value.values()))
    if isinstance(value, list):
        return any(map(_holds_no_number, value))
    return isinstance(value, float) and not math.isfinite(value)
