"""Overrides and denials, in lists and calls."""

from uuid import uuid4

import pytest

from riglm.application.filtering.filtering_service import MAX_FRESH_SECONDS, PROMISED_SECONDS
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import ProtocolEra
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in


def override(kind, tool, **about):
    return Override(id=uuid4(), kind=kind, tool=tool, created_at=1.0, **about)


@pytest.fixture
def catalog():
    return a_catalogue(count=30)


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
