"""Overrides and denials, in lists and calls."""

from uuid import uuid4

import pytest

from riglm.application.filtering.filtering_service import MAX_FRESH_SECONDS, PROMISED_SECONDS
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import ProtocolEra
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]


def override(kind, tool, **about):
    return Override(id=uuid4(), kind=kind, tool=tool, created_at=1.0, **about)


@pytest.fixture
def catalog():
    return a_catalogue(count=30)


def filtered(stage, session, catalog):
    stage.learned({"tool01": 0.9, "tool02": 0.8, "tool03": 0.7})
    return stage.shown(session, catalog)


def test_an_included_tool_is_shown_whatever_is_predicted(catalog):
    stage = Stage(overrides=[override(OverrideKind.INCLUDE, "tool29")])
    assert filtered(stage, a_session(), catalog) == ["tool01", "tool02", "tool03", "tool29"]


def test_an_excluded_tool_is_not_shown_and_runs(catalog):
    stage, session = Stage(overrides=[override(OverrideKind.EXCLUDE, "tool01")]), a_session()
    assert filtered(stage, session, catalog) == ["tool02", "tool03"]
    assert stage.filtering.denial(session, "tool01") is None
    assert "tool01" in stage.filtering.compose(session, catalog).hidden


@pytest.mark.parametrize("client", ["x", "claude-code"])
def test_an_override_for_one_session_leaves_the_lists_of_others_the_same(catalog, client):
    mine, other = a_session(client, ProtocolEra.MODERN), a_session(client, ProtocolEra.MODERN)
    stage = Stage()
    stage.learned({"tool04": 0.9, "tool11": 0.9})
    before = stage.filtering.compose(other, catalog)
    stage.overrides = tuple(
        override(kind, tool, scope=OverrideScope.SESSION, key=str(mine.id))
        for kind, tool in ((OverrideKind.EXCLUDE, "tool04"), (OverrideKind.PIN, "tool29"))
    )
    steered = stage.filtering.compose(mine, catalog)
    assert stage.filtering.compose(other, catalog).raw == before.raw
    listed = names_in(steered.raw)
    assert set(listed) == set(names_in(before.raw)) - {"tool04"} | {"tool29"}
    shown = stage.filtering.explain(mine).to_prediction().shown
    assert list(shown) == [name for name in listed if name in catalog.name_set]
    assert not steered.is_passthrough


def test_a_list_that_an_override_decides_is_promised_only_until_another_may_count(catalog):
    stage, session = Stage(surface="full"), a_session("x", ProtocolEra.MODERN)
    stage.filtering.compose(session, catalog)
    assert stage.filtering.fresh_seconds(session) == MAX_FRESH_SECONDS
    stage.overrides = (override(OverrideKind.EXCLUDE, "tool00", expires_at=stage.now + 60.0),)
    assert stage.filtering.fresh_seconds(session) == PROMISED_SECONDS


def test_an_override_for_a_principal_concerns_its_sessions(catalog):
    mine = a_session("x", ProtocolEra.MODERN)
    mine.principal = "p"
    stage = Stage(overrides=[override(OverrideKind.EXCLUDE, "tool00", scope=OverrideScope.PRINCIPAL, key="p")])
    assert "tool00" not in stage.shown(mine, catalog)
    assert "tool00" in stage.shown(a_session("x", ProtocolEra.MODERN), catalog)


@pytest.mark.parametrize("client", ["", "claude-code"])
@pytest.mark.parametrize("era", ProtocolEra)
def test_a_denied_tool_is_in_no_list_of_any_surface(catalog, client, era):
    stage = Stage(denylist=["TOOL05"])
    stage.learned({"tool05": 0.9, "tool06": 0.9})
    listed = stage.filtering.compose(a_session(client, era), catalog)
    assert "tool05" not in names_in(listed.raw)
    assert "tool05" not in {*listed.shown, *listed.hidden}
    assert b"tool05" not in listed.raw


async def test_a_denied_tool_is_not_predicted_learned_or_followed(catalog):
    stage, session = Stage(denylist=["tool05"]), a_session()
    stage.filtering.know(session, catalog)
    stage.calls(session, "tool05", found=DiscoveryMethod.NAMED)
    stage.prediction.next_uses = {"tool05": 0.9, "tool08": 0.9}
    await stage.about(session, "mail", "tool05", "tool06", "tool07")
    assert stage.prediction.training_queue == []
    assert stage.shown(session, catalog) == ["tool06", "tool07", "tool08"]


def test_a_denial_reads_like_the_answer_for_a_tool_that_is_not_there(catalog):
    stage = Stage(allowlist=["tool0*"])
    assert stage.filtering.denial(a_session(), "tool10") == "Unknown tool: tool10"
    assert stage.filtering.denial(a_session(), "Tool01") == "Unknown tool: Tool01"
    assert stage.filtering.denial(a_session(), "tool01") is None


def test_a_hidden_tool_may_run(catalog):
    stage, session = Stage(), a_session()
    assert "tool20" not in filtered(stage, session, catalog)
    assert stage.filtering.denial(session, "tool20") is None


def test_a_list_that_an_override_makes_another_one_is_noticed_until_it_is_shown(catalog):
    stage, session = Stage(), a_session()
    assert filtered(stage, session, catalog) == ["tool01", "tool02", "tool03"]
    assert stage.filtering.overridden(session) is False
    stage.overrides = (override(OverrideKind.PIN, "tool29"), override(OverrideKind.EXCLUDE, "tool02"))
    assert stage.filtering.overridden(session) is True
    assert stage.shown(session, catalog) == ["tool01", "tool03", "tool29"]
    assert stage.filtering.overridden(session) is False


def test_to_ask_what_an_override_changes_changes_nothing(catalog):
    stage, session = Stage(), a_session()
    filtered(stage, session, catalog)
    state = stage.filtering.state(session)
    before = [getattr(state, name) for name in state.__slots__]
    stage.overrides = (override(OverrideKind.INCLUDE, "tool28"), override(OverrideKind.EXCLUDE, "tool02"))
    assert [stage.filtering.overridden(session) for _ in range(2)] == [True, True]
    assert [getattr(state, name) for name in state.__slots__] == before


def test_an_override_is_no_news_to_a_session_that_was_shown_nothing(catalog):
    stage = Stage()
    stage.shown(a_session(), catalog)
    stage.overrides = (override(OverrideKind.EXCLUDE, "tool02"),)
    assert stage.filtering.overridden(a_session()) is False


@pytest.mark.parametrize(
    "harmless",
    [
        override(OverrideKind.EXCLUDE, "tool29"),
        override(OverrideKind.PIN, "tool01"),
        override(OverrideKind.EXCLUDE, "tool01", scope=OverrideScope.SESSION, key="another session"),
    ],
)
def test_an_override_that_leaves_a_session_s_list_as_it_is_is_no_news(catalog, harmless):
    stage, session = Stage(), a_session()
    filtered(stage, session, catalog)
    stage.overrides = (harmless,)
    assert stage.filtering.overridden(session) is False


@pytest.mark.parametrize("rules", [{"mode": "shadow"}, {"surface": "full"}, {}])
def test_a_list_that_nobody_chooses_from_is_another_one_when_a_tool_is_excluded(rules):
    stage, session = Stage(**rules), a_session()
    assert stage.filtering.overridden(session) is False
    assert stage.shown(session, a_catalogue(*ALL[:20])) == ALL[:20]
    stage.overrides = (override(OverrideKind.PIN, "tool19"),)
    assert stage.filtering.overridden(session) is False
    stage.overrides = (override(OverrideKind.EXCLUDE, "tool19"),)
    assert stage.filtering.overridden(session) is True
