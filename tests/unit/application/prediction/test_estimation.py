"""What a strategy that learns recorded sessions expects of the next one."""

import numpy as np
import pytest

from riglm.application.prediction.calibration import MAX_LEARNED_TOOLS, LearnedSessions
from riglm.application.prediction.prediction_settings import Strategy
from riglm.domain.learning import MAX_TOOLS, SessionUse, WarmSetKey
from riglm.domain.prediction import Prediction
from riglm.ports.predictor import PREDICTORS, PredictorPort

TOOLS = tuple(f"files__tool{number:02}" for number in range(30))


class Scripted(PredictorPort):
    """Answers what a test says, and remembers what it learned."""

    def __init__(self, answer):
        self._answer = answer
        self.learned = []

    def learn(self, prediction_input, tool, weight=1.0):
        self.learned.append((prediction_input, tool))

    def predict(self, prediction_input, *, explain=False):
        return Prediction(scores=np.array(self._answer(prediction_input.candidates), np.float64))


def a_use(*tools, calls=0, started_at=1e9, **known):
    return SessionUse(started_at=started_at, tools=tools, calls=calls or len(tools), **known)


def estimated(predictor, *sessions, candidates=TOOLS, key=WarmSetKey()):  # noqa: B008  # frozen
    """Return the usage that a predictor estimates from sessions, the latest last, and who decided."""
    strategy = Strategy(name="chosen", key="chosen", make=lambda: predictor)
    learned = LearnedSessions(strategy, sessions[::-1], candidates, lambda tool: tool.partition("__")[0])
    warm_set = learned.warm_set(key, 2e9)
    assert (warm_set.key, warm_set.strategy, warm_set.created_at) == (key, "chosen", 2e9)
    return warm_set.usage, warm_set.predictor


def favoring(favored):
    return lambda candidates: [float(tool == favored) for tool in candidates]


def test_a_tool_that_the_strategy_is_certain_of_has_probability_one():
    usage, decided = estimated(Scripted(favoring(TOOLS[7])), *[a_use(TOOLS[3])] * 5)
    assert [tool for tool, share in usage.probabilities.items() if share] == [TOOLS[7]]
    assert usage.probabilities[TOOLS[7]] == 1.0
    assert decided == "chosen"


@pytest.mark.parametrize("kind", ["frequency", "hybrid", "cooccurrence"])
def test_six_sessions_give_about_the_shares_of_them(kind):
    sessions = [a_use(TOOLS[0], *TOOLS[1 : 1 + number % 2], *[TOOLS[2]] * (number == 3)) for number in range(6)]
    usage, _ = estimated(PREDICTORS.make(kind), *sessions)
    shares = [usage.probabilities[tool] for tool in TOOLS]
    assert shares[:3] == pytest.approx([1.0, 0.5, 1 / 6], abs=0.2)
    assert shares[0] > shares[1] > shares[2] > max(shares[3:])
    assert sum(shares) == pytest.approx(usage.distinct_tools, rel=0.5)


def test_a_session_is_learned_call_by_call_among_the_catalog_and_what_sessions_used():
    strategy = Scripted(favoring(TOOLS[0]))
    known = {"principal": "p", "client": "c", "profile": "default", "project": "q"}
    estimated(strategy, a_use("gone", TOOLS[1], started_at=7.0, **known), a_use(TOOLS[2], started_at=8.0))
    assert [(known.calls, tool) for known, tool in strategy.learned] == [
        ((), "gone"),
        (("gone",), TOOLS[1]),
        ((), TOOLS[2]),
    ]
    first = strategy.learned[0][0]
    assert first.candidates == (*TOOLS, "gone")
    assert {name: getattr(first, name) for name in known} == known
    assert first.time == 7.0
    assert (first.servers[TOOLS[0]], first.servers["gone"]) == ("files", "gone")


def test_the_likeliest_tools_are_kept_and_the_latest_sessions_learned_where_there_are_too_many():
    strategy = Scripted(lambda candidates: np.linspace(0.0, 1.0, len(candidates)))
    many = tuple(f"tool{number}" for number in range(MAX_TOOLS + 100))
    sessions = [a_use(*many[number : number + 400]) for number in range(5)]
    usage, _ = estimated(strategy, *sessions, candidates=many)
    assert len(usage.probabilities) == MAX_TOOLS
    assert min(usage.probabilities.values()) > 0.1
    assert usage.evidence == 5
    assert [tool for known, tool in strategy.learned if not known.calls] == [many[3], many[4]]
    assert len(strategy.learned) <= MAX_LEARNED_TOOLS
