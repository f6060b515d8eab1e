"""Everyday utility tools are recognized by their words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain import everyday
from riglm.domain.everyday import ImpliedTools, everyday_weights

GENERAL = [
    ("filesystem__read_file", "Read the complete contents of a file."),
    ("fs-listDirectory", ""),
    ("write_file", ""),
    ("terminal-run_command", "Allows command execution."),
    ("local-python-execute", ""),
    ("brave__brave_web_search", "Searches."),
    ("fetch", "Fetches a URL."),
    ("time__get_current_time", ""),
    ("emails-send_email", ""),
    ("shell__sh", "Run a shell command and return its output."),
]


@pytest.mark.parametrize("tool", GENERAL, ids=[name for name, _ in GENERAL])
def test_everyday_weights_recognizes_utilities(tool: tuple[str, str]) -> None:
    assert 0.3 <= everyday_weights([tool])[tool[0]] <= 1


def test_everyday_weights_puts_the_file_system_before_a_product() -> None:
    weights = everyday_weights([("github__get_file_contents", ""), ("filesystem__read_file", "")])

    assert weights["filesystem__read_file"] > weights["github__get_file_contents"] > 0


def test_everyday_weights_of_hostile_texts_are_fast_and_bounded() -> None:
    tools = [("", ""), ("a" * 100_000, "the " * 100_000), ("_" * 1000, "read " * 1000)]

    assert set(everyday_weights(tools).values()) == {0.0}


@given(st.data())
def test_a_name_or_description_that_a_kind_matches_has_one_of_its_words(data: st.DataObject) -> None:
    kinds, by_word, _ = everyday._load()
    number = data.draw(st.integers(0, len(kinds) - 1))
    pattern = data.draw(st.sampled_from([kinds[number].name, kinds[number].description]))
    text = data.draw(st.from_regex(pattern, fullmatch=True))

    assert any(number in by_word.get(word, ()) for word in re.findall(r"\w+", text))


FILES = [("fs__read_file", ""), ("fs__write_file", ""), ("time__get_current_time", ""), ("crm__merge_accounts", "")]


@pytest.mark.parametrize(
    ("request_text", "names"),
    [
        ("Save the three best recipes to dinner/recipes.md", ["fs__read_file", "fs__write_file"]),
        ("Which invoices are due next Friday?", ["time__get_current_time"]),
        ("Merge the accounts of Acme and Apex", []),
        ("", []),
    ],
)
def test_implied_tools_are_found_by_what_a_request_does_not_mention(request_text: str, names: list[str]) -> None:
    assert [FILES[place][0] for place in ImpliedTools(FILES).find(request_text)] == names


def test_implied_tools_prefer_the_general_tool_of_a_kind() -> None:
    tools = [("github__get_file_contents", ""), ("fs__read_file", "")]

    assert ImpliedTools(tools).find("Sum up report.txt") == [1]


def test_implied_tools_of_hostile_requests_are_found_in_bounded_time() -> None:
    for request_text in ("save " * 100_000, "\0" * 100_000, "find a " * 10_000, "../" * 100_000):
        ImpliedTools(FILES).find(request_text)
