"""Overrides and denials, in lists and calls."""

from uuid import uuid4

import pytest

from riglm.application.filtering.filtering_service import MAX_FRESH_SECONDS, PROMISED_SECONDS, FilteringService
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.naming import prefixed
from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in


def override(kind, tool, **about):
    return Override(id=uuid4(), kind=kind, tool=tool, created_at=1.0, **about)


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


# --- a denied tool is out of reach under every name that it has ---


OWN = "delete_every_record_of_the_production_customer_database_for_good_now"
SERVER = "averylongservername"
PUBLIC = prefixed(SERVER, OWN)
SESSION = Session(
    started_at=0.0, era=ProtocolEra.HANDSHAKE, transport=Transport.STDIO, method=IdentificationMethod.PROCESS
)


@pytest.mark.parametrize("denied", [OWN, "*_good_now", f"{SERVER}__{OWN}", PUBLIC])
def test_a_name_that_was_cut_for_clients_is_denied_by_the_whole_of_it(denied):
    filtering = FilteringService(
        FilteringSettings(denylist=(denied,)), owner=lambda name: (SERVER, OWN) if name == PUBLIC else ("", name)
    )
    assert filtering.denial(SESSION, PUBLIC)
    assert filtering.denial(SESSION, f"{SERVER}__other") is None


def test_a_tool_that_is_listed_bare_is_denied_by_its_name_with_the_server():
    filtering = FilteringService(FilteringSettings(denylist=("one__delete",)), owner=lambda name: ("one", name))
    assert filtering.denial(SESSION, "delete")
    assert filtering.denial(SESSION, "read") is None


@pytest.mark.parametrize("rules", [{"denylist": ("a",)}, {"allowlist": ("a",)}])
def test_a_call_without_a_name_is_refused_wherever_names_are_denied(rules):
    assert FilteringService(FilteringSettings(**rules)).denial(SESSION, "")
    assert FilteringService(FilteringSettings()).denial(SESSION, "") is None


def test_an_owner_that_is_known_for_sure_counts_more_than_what_was_remembered():
    filtering = FilteringService(FilteringSettings(denylist=("one__delete",)), owner=lambda name: ("", name))
    assert filtering.denial(SESSION, "delete") is None
    assert filtering.denial(SESSION, "delete", ("one", "delete"))
    assert filtering.denial(SESSION, "delete", ("two", "delete")) is None


# --- what the rest of a session is expected to need, and the search hits that are ordered by it ---


CATALOG = a_catalogue("read_file", "tool01", "tool02", "tool03")


def started():
    """A stage, and a session whose permitted tools are known."""
    stage, session = Stage(), a_session()
    stage.filtering.know(session, CATALOG)
    return stage, session


def test_a_prediction_is_blended_with_the_prior_by_its_evidence():
    stage, session = started()
    stage.prediction.next_uses = {"tool01": 0.9, "read_file": 0.5}
    for evidence, share in ((0.0, 0.0), (3.0, 0.5), (9.0, 0.75), (1e9, 1.0)):
        stage.prediction.evidence = evidence
        need = stage.filtering.need(session)
        assert need.probabilities["tool01"] == pytest.approx(share * 0.9 + (1 - share) * 0.01)
        assert need.probabilities["read_file"] == pytest.approx(share * 0.5 + (1 - share) * 0.12)


def test_what_follows_a_tool_is_predicted_as_if_it_was_called_and_lacks_the_used_tools(monkeypatch):
    stage, session = started()
    stage.calls(session, "tool01")
    stage.prediction.likes = ("tool01", "tool02", "tool03")
    seen, predict = [], stage.prediction.predict

    def watched(session, state, names, *, explain=False):
        seen.append(tuple(state.calls))
        return predict(session, state, names, explain=explain)

    monkeypatch.setattr(stage.prediction, "predict", watched)
    assert set(stage.filtering.follow_up(session, "tool02")) == {"read_file", "tool03"}
    assert set(stage.filtering.follow_up(session)) == {"read_file", "tool02", "tool03"}
    assert seen == [("tool01", "tool02"), ("tool01",)]
    assert stage.filtering.state(session).calls == ["tool01"]


async def hits(stage, session):
    """The names that a search finds, in their order."""
    found = await stage.filtering.search(session, "mail", 10, CATALOG.by_name.__contains__)
    return [hit.name for hit in found.hits]


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ((0.5, 0.5, 0.5), ["tool03", "tool02", "tool01"]),
        ((0.50001, 0.5, 0.49999), ["tool03", "tool02", "tool01"]),
        ((0.6, 0.5, 0.5), ["tool01", "tool03", "tool02"]),
        ((0.7, 0.6, 0.5), ["tool01", "tool02", "tool03"]),
        ((0.5, 0.7, 0.4), ["tool01", "tool02", "tool03"]),  # a copy comes after what it copies
    ],
)
async def test_of_search_hits_that_are_equally_relevant_the_likeliest_comes_first(scores, order):
    stage, session = started()
    stage.prediction.likes = ("tool03", "tool02", "tool01")
    stage.prediction.finds("tool01", "tool02", "tool03", near=("read_file",), scores=scores)
    assert await hits(stage, session) == order
    found = await stage.filtering.search(session, "mail", 10, CATALOG.by_name.__contains__)
    assert (found.near, found.abstained) == (("read_file",), False)


async def test_search_hits_keep_their_order_if_prediction_fails(monkeypatch):
    stage, session = started()
    stage.prediction.finds("tool01", "tool02", scores=(0.5, 0.5))

    def predict(session, state, names, *, explain=False):
        raise ZeroDivisionError("the plug-in")

    monkeypatch.setattr(stage.prediction, "predict", predict)
    assert await hits(stage, session) == ["tool01", "tool02"]
