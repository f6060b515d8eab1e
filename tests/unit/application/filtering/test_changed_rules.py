"""The rules of filtering change while sessions go on."""

from dataclasses import replace

import pytest

from riglm.application.session_sharing.session_record import decoded, encoded
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra
from tests.records import an_override
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]


@pytest.fixture
def catalog():
    return a_catalogue(count=30)


def change(stage, predictor="hybrid", **rules):
    """Change over to other rules; what is not named stays."""
    given = {**stage.filtering.rules.model_dump(exclude_unset=True), **rules}
    stage.filtering.prepared(FilteringSettings(**given), predictor)()


def limited(stage, session, catalog):
    """A session that is shown three tools."""
    stage.learned({"tool01": 0.9, "tool02": 0.8, "tool03": 0.7, "tool04": 0.001})
    return stage.shown(session, catalog)


def test_nothing_changes_before_the_change_over(catalog):
    stage, session = Stage(), a_session()
    before = limited(stage, session, catalog)
    ready = stage.filtering.prepared(FilteringSettings(denylist=("tool01",), min_tools=1), "hybrid")
    assert stage.shown(session, catalog) == before
    assert stage.filtering.denial(session, "tool01") is None
    ready()
    assert stage.filtering.denial(session, "tool01")
    assert "tool01" not in stage.shown(session, catalog)


def test_other_rules_are_no_news_to_a_session_that_was_shown_nothing(catalog):
    stage = Stage()
    stage.shown(a_session(), catalog)
    change(stage, denylist=("tool01",))
    assert stage.filtering.reconfigured(a_session()) is False


async def test_what_a_session_did_is_kept_when_the_rules_change(catalog):
    stage, session = Stage(), a_session()
    before = limited(stage, session, catalog)
    await stage.about(session, "mail")
    stage.calls(session, "tool07", "tool08")
    change(stage, max_tools=10, retained_turns=4)
    state = stage.filtering.state(session)
    assert (state.context.text, state.calls, state.changes) == ("mail", ["tool07", "tool08"], 0)
    assert stage.shown(session, catalog) == before


def test_a_list_is_planned_again_only_if_rules_or_prices_that_it_follows_from_change(catalog):
    stage, session = Stage(), a_session()
    before = limited(stage, session, catalog)
    stage.learned({"tool20": 0.9})
    change(stage, answer_tools=5)
    assert stage.shown(session, catalog) == before
    change(stage, max_tools=4)
    assert stage.shown(session, catalog) == ["tool20"]
    stage.learned({"tool21": 0.9})
    stage.filtering.prepared(stage.filtering.rules, "hybrid", Prices(output=7.0))()
    assert stage.shown(session, catalog) == ["tool21"]


def test_where_nothing_is_filtered_everything_may_be_seen_and_used(catalog):
    stage = Stage(denylist=("tool01",), overrides=[an_override(kind=OverrideKind.EXCLUDE, tool="tool02")])
    session = a_session()
    stage.shown(session, catalog)
    change(stage, enabled=False, denylist=("tool01",))
    filtering = stage.filtering
    assert (filtering.is_on, filtering.guards, filtering.announces(session)) == (False, False, False)
    assert filtering.denial(session, "tool01") is None
    assert filtering.offered(session) == ()
    listed = filtering.compose(session, catalog)  # one that was asked for before
    assert (names_in(listed.raw), listed.is_passthrough) == (ALL, True)
    filtering.called(session, "tool01", DiscoveryMethod.LISTED, "")
    assert stage.prediction.training_queue == []


@pytest.mark.parametrize("kind", OverrideKind)
@pytest.mark.parametrize("scope", OverrideScope)
def test_overrides_come_first_where_no_strategy_chooses(catalog, kind, scope):
    session = a_session()
    key = {OverrideScope.SESSION: str(session.id), OverrideScope.PRINCIPAL: session.principal}.get(scope, "")
    override = replace(an_override(kind=kind, tool="tool02"), scope=scope, key=key)
    stage = Stage(strategy="none", overrides=[override])
    is_hidden = kind is OverrideKind.EXCLUDE
    listed = stage.filtering.compose(session, catalog)
    assert ("tool02" in names_in(listed.raw)) is not is_hidden
    assert listed.is_passthrough is not is_hidden
    assert stage.filtering.offered(session) == ()
    assert stage.filtering.denial(session, "tool02") is None
    (told,) = [each for each in stage.filtering.explain(session).to_prediction().tools if each.tool == "tool02"]
    assert (told.shown, told.visibility) == (not is_hidden, "never" if is_hidden else "always")


def test_an_included_tool_is_shown_though_it_is_denied_where_no_strategy_chooses(catalog):
    override = an_override(kind=OverrideKind.INCLUDE, tool="tool02")
    stage, session = Stage(strategy="none", denylist=("tool02", "tool03"), overrides=[override]), a_session()
    assert set(ALL) - set(stage.shown(session, catalog)) == {"tool03"}


def test_what_a_client_got_while_nothing_was_filtered_is_what_it_has(catalog):
    stage, session = Stage(enabled=False, strategy="denylist", denylist=("tool01",)), a_session()
    stage.filtering.passed(session, catalog, is_whole=True)
    assert stage.filtering.listed(session) == set(ALL)
    change(stage, enabled=True, denylist=("nobody's",))
    assert stage.filtering.reconfigured(session) is False
    change(stage, denylist=("tool01",))
    assert stage.filtering.reconfigured(session) is True


def test_of_a_client_that_got_a_part_of_a_list_it_is_not_known_what_it_has(catalog):
    stage, session = Stage(enabled=False), a_session()
    stage.filtering.passed(session, catalog, is_whole=False)
    change(stage, enabled=True, strategy="denylist", denylist=("nobody's",))
    assert stage.filtering.reconfigured(session) is True


def test_from_shadow_on_the_list_is_what_the_shadow_said(catalog):
    stage, session = Stage(mode="shadow"), a_session()
    would_be = limited(stage, session, catalog)
    assert would_be == ["tool01", "tool02", "tool03"]
    assert stage.filtering.listed(session) == set(ALL)
    change(stage, mode="enforce")
    assert stage.filtering.listed(session) == set(ALL)  # until the client asks again
    assert stage.filtering.reconfigured(session) is True
    assert stage.shown(session, catalog) == would_be


@pytest.mark.parametrize("era", list(ProtocolEra))
def test_where_rules_may_change_changes_are_promised(era):
    stage = Stage(surface="full")
    assert stage.filtering.announces(a_session(era=era)) is False
    stage.filtering._is_steered = True
    assert stage.filtering.announces(a_session(era=era)) is True


def test_planning_that_fails_lets_the_client_ask_again(catalog):
    stage, session = Stage(surface="stable"), a_session()
    limited(stage, session, catalog)
    change(stage, max_tools=9)
    stage.use.error = ZeroDivisionError()
    assert stage.filtering.reconfigured(session) is True


@pytest.mark.parametrize(("mode", "expected"), [("enforce", {"tool03"}), ("shadow", set(ALL))])
def test_of_a_list_that_another_process_gave_it_is_known_what_it_shared(catalog, mode, expected):
    here, there, session = Stage(mode=mode), Stage(mode=mode), a_session()
    limited(here, session, catalog)
    there.learned({"tool03": 0.9})
    there.shown(session, catalog)
    decoded(encoded(session, there.filtering.state(session))).bring(session, here.filtering.state(session))
    assert here.filtering.listed(session) == expected
    assert here.filtering.reconfigured(session) is True  # better once too often
    if mode == "enforce":
        assert here.shown(session, catalog) == ["tool03"]


@pytest.mark.parametrize("rules", [{"surface": "full"}, {"clients": {"": "full"}}, {"surface": "hints"}], ids=str)
def test_a_session_that_listed_few_tools_gets_all_on_a_surface_that_hides_none(catalog, rules):
    stage, session = Stage(), a_session()
    limited(stage, session, catalog)
    change(stage, **rules)
    assert names_in(stage.filtering.compose(session, catalog).raw) == ALL
    change(stage, surface="dynamic")
    assert stage.shown(session, catalog) == ["tool01", "tool02", "tool03"]
