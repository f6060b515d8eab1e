"""The definitions of the meta-tools."""

import json

import pytest

from riglm.application.tool_lists.list_writer import NAMES, definitions
from riglm.domain.schemas.settings import RESERVED_NAMES
from riglm.domain.tool import estimated_tokens
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session


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
