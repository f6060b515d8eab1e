"""A session's next list, taken apart."""

import math

import numpy as np
import pytest

from riglm.domain.policy import OverrideKind
from riglm.domain.prediction import Prediction
from riglm.domain.session_state import SessionState
from tests.records import an_override
from tests.unit.application.scripted_prediction import ALL, Stage, a_catalogue, a_session


def remembered(stage, session):
    """All that is remembered of a session."""
    state = stage.filtering.state(session)
    known = {name: getattr(state, name) for name in SessionState.__slots__}
    return {name: value.copy() if isinstance(value, list | dict | set) else value for name, value in known.items()}


def told(explained):
    """The tools by name."""
    return {each.tool: each for each in explained.tools}


def started(catalog, session, signals=None, **rules):
    """A stage whose session has listed tool03, tool09 and tool20, and the signals of its prediction."""
    stage = Stage(**rules)
    stage.learned({"tool09": 0.9, "tool03": 0.5, "tool20": 0.25, "tool21": 0.001})
    stage.prediction.signals = signals or {}
    stage.shown(session, catalog)
    return stage


async def test_what_a_predictor_does_not_tell_the_origin_of_is_a_signal_of_its_own(catalog, monkeypatch):
    session = a_session()
    stage = started(catalog, session)

    def predict(session, state, names, *, explain=False):
        return Prediction(scores=np.linspace(0.1, 0.9, len(names)), evidence=1e9)

    monkeypatch.setattr(stage.prediction, "predict", predict)
    explained = stage.filtering.explain(session).to_prediction()
    assert explained.signals == ("other",)
    for each in explained.tools:
        assert each.contributions == {"other": pytest.approx(math.log(each.score / (1 - each.score)))}


async def test_it_tells_how_the_best_tools_would_differ_without_a_signal(catalog):
    session = a_session()
    words, use = {"tool09": 3.0, "tool03": 2.0}, {"tool20": 5.0, "tool21": 1.0}
    stage = started(catalog, session, {"words": words, "use": use})
    without = stage.filtering.explain(session).to_prediction().without
    assert without["use"].removed == ("tool20",)
    assert len(without["use"].added) == 1
    assert (without["words"].added, without["words"].removed) == (("tool00", "tool21"), ("tool03", "tool09"))
    assert without["words"].shown == ("tool00", "tool20", "tool21")
    assert (without["other"].added, without["other"].removed) == ((), ())


def test_every_tool_has_its_reason(catalog):
    exclude = an_override(kind=OverrideKind.EXCLUDE, tool="tool05", reason="it is slow")
    pin = an_override(kind=OverrideKind.PIN, tool="tool06", reason="we love it")
    session = a_session()
    stage = started(
        catalog, session, {"words": {"tool29": 1.0}}, overrides=[exclude, pin], denylist=["tool07"], pinned=["tool08"]
    )
    stage.calls(session, "tool25")
    shown = stage.shown(session, catalog)
    found = told(stage.filtering.explain(session).to_prediction())
    assert set(found) == set(ALL)
    assert shown == [each.tool for each in sorted(found.values(), key=lambda each: each.tool) if each.shown]
    assert (found["tool05"].visibility, found["tool05"].rank, found["tool05"].score) == ("never", None, None)
    assert found["tool05"].why == "an override (exclude, all) was made for it: it is slow"
    assert (found["tool07"].visibility, found["tool07"].why) == ("denied", "denied: filtering.denylist names it")
    assert (found["tool08"].visibility, found["tool08"].why) == ("always", "filtering.pinned names it")
    assert (found["tool06"].visibility, found["tool06"].shown) == ("always", True)
    assert found["tool06"].why == "an override (pin, all) was made for it: we love it"
    assert found["tool09"].why == "listing it pays or makes hits likelier (a session needs it with probability 0.90)"
    costs = "listing it costs more than searching for it when it is needed"
    assert found["tool29"].why == f"{costs} (a session needs it with probability 0.00); number 1 by prediction"
    assert found["tool21"].why.startswith(f"{costs} (a session needs it with probability 0.00); number ")
    assert found["tool25"].why.startswith("used in this session, so its definition is known; ")


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"allowlist": ["tool00"]}, "denied: filtering.allowlist does not name it"),
        (
            {"allowlist": ["tool00"], "denylist": ["tool02"]},
            "denied: filtering.denylist names it, or filtering.allowlist does not",
        ),
    ],
)
def test_a_denial_names_the_list(catalog, rules, why):
    stage, session = Stage(**rules), a_session()
    stage.shown(session, catalog)
    found = told(stage.filtering.explain(session).to_prediction())["tool01"]
    assert (found.visibility, found.shown, found.why) == ("denied", False, why)


async def test_a_tool_with_the_name_of_a_meta_tool_is_reached_in_another_way():
    session = a_session()
    stage = started(a_catalogue(*ALL, "call_tool"), session, {"words": {"call_tool": 9.0}})
    found = told(stage.filtering.explain(session).to_prediction())["call_tool"]
    assert (found.rank, found.shown, found.why) == (1, False, "a meta-tool has this name: call_tool reaches it")


def test_of_a_session_that_is_gone_the_past_is_given(catalog):
    stage = started(catalog, a_session(), {"words": {"tool20": 1.0}})
    past = SessionState()
    past.called("tool11", 990.0)
    gone = a_session()
    explained = stage.filtering.explain(gone, past, ["tool20", "tool11", "lost", "tool12"]).to_prediction()
    assert (explained.live, explained.predictor) == (False, "hybrid")
    assert [each.tool for each in explained.tools] == ["tool20", "tool11", "lost", "tool12"]
    assert stage.filtering._states.known(gone) is None
