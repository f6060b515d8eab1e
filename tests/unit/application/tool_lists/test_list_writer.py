"""The index of hidden tools: names while they pay, otherwise servers with the number and the kinds of their tools."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.application.tool_lists.list_writer import NAMES, definitions, hidden_index
from riglm.domain.schemas.settings import RESERVED_NAMES
from riglm.domain.tool import BYTES_PER_TOKEN, estimated_tokens
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session


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


@given(
    names=st.lists(st.text(max_size=40), max_size=60, unique=True),
    servers=st.integers(1, 12),
    tokens=st.integers(0, 400),
)
def test_any_index_stays_within_its_size(names, servers, tokens):
    index = hidden_index(names, lambda name: (f"s{len(name) % servers}", name), tokens)
    assert size(index) <= tokens * BYTES_PER_TOKEN
    assert index == hidden_index(names, lambda name: (f"s{len(name) % servers}", name), tokens)


# --- the definitions of the meta-tools ---


def test_every_definition_is_sound_and_its_name_reserved():
    for name, raw in definitions(NAMES).items():
        definition = json.loads(raw)
        assert definition["name"] == name
        assert definition["inputSchema"]["type"] == "object"
        assert definition["description"]
        assert "outputSchema" not in definition
    assert set(definitions(NAMES)) == set(NAMES) == RESERVED_NAMES - {"riglm"}


def test_all_definitions_together_stay_under_350_tokens():
    assert estimated_tokens(sum(map(len, definitions(NAMES).values()))) < 350


@pytest.mark.parametrize("count", [14, 300, 3_000])
def test_the_index_in_a_list_names_what_is_hidden_in_at_most_400_tokens(count):
    names = [f"server{number % 7}__create_invoice_{number}" for number in range(count)]
    stage = Stage(owner=lambda name: tuple(name.split("__")))
    stage.learned({names[0]: 1.0})
    listed = stage.filtering.compose(a_session(), a_catalogue(*names))
    description = json.loads(listed.raw)[0]["description"]
    index = description.partition("Hidden tools: ")[2]
    assert all(f"server{number}" in index for number in range(7))
    assert estimated_tokens(len(index.encode())) <= 400
    assert listed.tokens_own < 350 + 400
    assert ("create_invoice_13" in index) is (count == 14)
    assert names[0].partition("__")[2] not in index.replace(",", "").split()
