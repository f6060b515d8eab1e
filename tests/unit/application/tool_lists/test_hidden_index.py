"""The index of hidden tools: names while they pay, otherwise servers with the number and the kinds of their tools."""

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


def test_names_that_do_not_fit_become_counts_and_kinds():
    index = hidden_index([*tools("git", 100, "commit"), *tools("mail", 50, "letter")], by_prefix, 40)
    assert index.startswith("git (100: commit")
    assert "mail (50: letter" in index
    assert "create" not in index


def test_every_server_is_named_with_its_number_of_tools_even_if_that_takes_more_than_kinds():
    names = [name for server in range(80) for name in tools(f"server{server:02}", 20)]
    index = hidden_index(names, by_prefix, 400)
    assert index.split("; ") == [f"server{server:02} (20)" for server in range(80)]


def test_servers_that_do_not_even_fit_by_name_are_counted():
    names = [f"server{number}__do" for number in range(1_000)]
    index = hidden_index(names, by_prefix, 50)
    listed, _, rest = index.rpartition("; ")
    assert rest == f"and {1_000 - len(listed.split('; '))} more servers"


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
