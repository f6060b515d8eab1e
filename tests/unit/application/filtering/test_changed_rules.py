"""The rules of filtering change while sessions go on."""

from dataclasses import replace

import pytest

from riglm.application.session_sharing.session_record import decoded, encoded
from riglm.domain.list_plan import Prices
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra
from tests.records import an_override
from tests.unit.application.scripted_prediction import ALL, Stage, a_session, names_in


def change(stage, predictor="hybrid", **rules):
    """Change over to other rules; what is not named stays."""
    given = {**stage.filtering.rules.model_dump(exclude_unset=True), **rules}
    stage.filtering.prepared(FilteringSettings(**given), predictor)()


def limited(stage, session, catalog):
    """A session that is shown three tools."""
    stage.learned({"tool01": 0.9, "tool02": 0.8, "tool03": 0.7, "tool04": 0.001})
    return stage.shown(session, catalog)


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
