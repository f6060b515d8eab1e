"""The index of hidden tools: names while they pay, otherwise servers with the number and the kinds of their tools."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.application.tool_lists.list_writer import hidden_index
from riglm.domain.tool import BYTES_PER_TOKEN


def by_prefix(name):
    server, _, own = name.rpartition("__")
    return server, own


def tools(server, count, kind="issue"):
    return [f"{server}__create_{kind}_{number}" for number in range(count)]


def size(text):
    return len(text.encode("utf-8", "replace"))


def test_names_are_given_by_server_while_they_pay():
    assert hidden_index(["git__log", "mail__send", "git__push"], by_prefix, 400) == "git: log, push; mail: send"


def test_the_names_of_a_single_server_need_no_label():
    assert hidden_index(["log", "push"], by_prefix, 400) == "log, push"


def test_nothing_hidden_is_an_empty_index():
    assert hidden_index([], by_prefix, 400) == ""


def test_names_that_do_not_fit_become_counts_and_kinds():
    index = hidden_index([*tools("git", 100, "commit"), *tools("mail", 50, "letter")], by_prefix, 40)
    assert index.startswith("git (100: commit")
    assert "mail (50: letter" in index
    assert "create" not in index


@pytest.mark.parametrize(
    ("servers", "count", "has_names"), [(1, 20, True), (1, 30, False), (3, 6, True), (4, 10, False)]
)
@pytest.mark.parametrize("max_tokens", [100, 400, 4_000])
def test_names_that_take_more_than_kinds_do_not_pay_whatever_may_be_sent(servers, count, has_names, max_tokens):
    hidden = [f"s{server}__create_issue_{number:02}" for server in range(servers) for number in range(count)]
    index = hidden_index(hidden, by_prefix, max_tokens)
    assert ("create_issue_00" in index) == has_names
    assert size(index) <= 100 * BYTES_PER_TOKEN


def test_every_server_is_named_with_its_number_of_tools_even_if_that_takes_more_than_kinds():
    names = [name for server in range(80) for name in tools(f"server{server:02}", 20)]
    index = hidden_index(names, by_prefix, 400)
    assert index.split("; ") == [f"server{server:02} (20)" for server in range(80)]


def test_every_server_is_named_before_any_gets_more_kinds():
    names = [name for server in range(40) for name in tools(f"server{server:02}", 20)]
    index = hidden_index(names, by_prefix, 400)
    assert all(f"server{server:02} (20" in index for server in range(40))


def test_servers_that_do_not_even_fit_by_name_are_counted():
    names = [f"server{number}__do" for number in range(1_000)]
    index = hidden_index(names, by_prefix, 50)
    listed, _, rest = index.rpartition("; ")
    assert rest == f"and {1_000 - len(listed.split('; '))} more servers"


@pytest.mark.parametrize("separator", ["__", ".", "/", ":", "-"])
def test_the_prefixes_of_a_single_server_serve_as_groups(separator):
    names = [f"{prefix}{separator}thing{n}" for prefix in ("github", "slack") for n in range(300)]
    index = hidden_index([*names, "plain"], lambda name: ("", name), 100)
    assert index.startswith("github (300: thing")
    assert "slack (300" in index
    assert "others (1: plain)" in index


def test_a_single_server_without_prefixes_shows_the_kinds_of_its_tools():
    names = [f"{action}{kind}{n}" for n in range(60) for action in ("get", "delete") for kind in ("Invoice", "Users")]
    index = hidden_index(names, lambda name: ("", name), 50)
    assert index.startswith("tools (240: invoice, user")


def test_more_common_kinds_come_first():
    names = [*tools("a", 90, "invoice"), *tools("a", 10, "refund"), *tools("b", 90, "page")]
    index = hidden_index(names, by_prefix, 60)
    assert index.index("invoice") < index.index("refund")


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(st.text(max_size=40), max_size=60, unique=True),
    servers=st.integers(1, 12),
    tokens=st.integers(0, 400),
)
def test_any_index_stays_within_its_size(names, servers, tokens):
    index = hidden_index(names, lambda name: (f"s{len(name) % servers}", name), tokens)
    assert size(index) <= tokens * BYTES_PER_TOKEN
    assert index == hidden_index(names, lambda name: (f"s{len(name) % servers}", name), tokens)


@pytest.mark.parametrize("name", ["", "__", "a__", "\ud800", "日本語", "x" * 10_000, "a\nb"])
def test_odd_names_have_an_index_too(name):
    index = hidden_index([name, "git__log"], by_prefix, 400)
    assert "log" in index or "git" in index
    assert size(index) <= 400 * BYTES_PER_TOKEN


def test_a_limit_of_nothing_means_no_index():
    assert hidden_index(["git__log", "mail__send"], by_prefix, 0) == ""
