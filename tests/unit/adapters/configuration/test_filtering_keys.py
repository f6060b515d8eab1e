"""The keys of filtering can be set like all others, within sections and maps too."""

import pytest

from riglm.adapters.configuration.loading import Options, load
from riglm.domain.errors import ConfigurationError
from riglm.domain.list_plan import Prices


def settings(**environment):
    return load(Options(command=["server"]), environment=environment).settings


def test_variables_reach_into_the_sections_of_filtering():
    found = settings(
        RIGLM_FILTERING__INDEX_TOKENS="5",
        RIGLM_FILTERING__META_TOOLS__MARK_TOOL="true",
        RIGLM_FILTERING__DENYLIST="delete_*, drop_*",
        RIGLM_FILTERING__SURFACE="hints",
        RIGLM_FILTERING__COLD_START_LIMIT="30",
    ).filtering
    assert (found.index_tokens, found.period) == (5, 86_400)
    assert (found.meta_tools.mark_tool, found.meta_tools.call_tool) == (True, True)
    assert (found.denylist, found.surface, found.cold_start_limit) == (("delete_*", "drop_*"), "hints", 30)


def test_clients_and_options_are_maps():
    found = settings(RIGLM_FILTERING__CLIENTS='{"my-agent*": "stable"}', RIGLM_PREDICTOR__OPTIONS='{"decay": 0.5}')
    assert found.filtering.clients == {"my-agent*": "stable"}
    assert found.predictor.options == {"decay": 0.5}


def test_lists_go_by_price_and_the_rare_meta_tools_are_off_unless_configured():
    found = settings().filtering
    assert (found.coverage, found.cold_start_limit) == (None, 50)
    assert [name for name, is_on in found.meta_tools if not is_on] == ["index_status", "mark_tool"]
    assert settings(RIGLM_FILTERING__COVERAGE="0.9").filtering.coverage == 0.9


def test_prices_are_those_of_a_preset_unless_they_are_given():
    assert settings().prices.prices() == Prices(cached_input=0.1, cache_write=1.25, output=5.0)
    found = settings(RIGLM_PRICES__PRESET="uncached", RIGLM_PRICES__OUTPUT="7").prices.prices()
    assert (found.cached_input, found.cache_write, found.output) == (1.0, 1.0, 7.0)


@pytest.mark.parametrize(
    ("keys", "is_on"),
    [
        ({}, True),
        ({"STRATEGY": "none"}, True),
        ({"STRATEGY": "none", "DENYLIST": "a"}, True),
        ({"STRATEGY": "none", "ALLOWLIST": "a"}, True),
        ({"ENABLED": "false", "DENYLIST": "a"}, False),
    ],
)
def test_lists_are_inspected_whatever_the_strategy_unless_filtering_is_off(keys, is_on):
    found = settings(**{f"RIGLM_FILTERING__{key}": value for key, value in keys.items()}).filtering
    assert (found.is_on, found.denies) == (is_on, "ALLOWLIST" in keys or "DENYLIST" in keys)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SURFACE", "wide", "filtering.surface"),
        ("CLIENTS", '{"a": "wide"}', "filtering.clients.a"),
        ("STRATEGY", "allowlist", "filtering.allowlist is empty"),
        ("MODE", "dry", "filtering.mode"),
        ("COVERAGE", "1.5", "filtering.coverage"),
        ("META_TOOLS__FLY", "true", "no such setting"),
        ("COLD_START_LIMIT", "0", "filtering.cold_start_limit"),
        ("PERIOD", "-1", "filtering.period"),
        ("PASSTHROUGH_BELOW__TOOLS", "5", "no such setting"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(name, value, words):
    with pytest.raises(ConfigurationError, match=words):
        settings(**{f"RIGLM_FILTERING__{name}": value})


@pytest.mark.parametrize("key", ["DENYLIST", "ALLOWLIST", "PINNED"])
def test_a_pattern_that_stands_for_no_tool_is_refused_with_its_list_and_a_fix(key):
    with pytest.raises(ConfigurationError) as caught:
        settings(**{f"RIGLM_FILTERING__{key}": "delete[_"})
    assert str(caught.value) == (
        f"RIGLM_FILTERING__{key}: filtering.{key.lower()}: 'delete[_' opens a bracket and does not close it"
        " — fix: close it, or write [[] for the sign itself"
    )


def test_what_both_lists_name_is_a_contradiction():
    found = settings(RIGLM_FILTERING__ALLOWLIST="a,b,c_*", RIGLM_FILTERING__DENYLIST="c_*,a").filtering
    assert found.contradictions == ("a", "c_*")
    assert settings().filtering.contradictions == ()
