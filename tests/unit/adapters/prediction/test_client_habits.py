"""Two clients with habits of their own, in whatever order their sessions are learned."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.domain.prediction import PredictionInput

TOOLS = {
    "alpha": ("git__status", "git__commit", "git__push", "git__log"),
    "beta": ("wiki__read", "wiki__edit", "wiki__search", "wiki__list"),
}
OTHERS = tuple(f"server{number % 5}__tool{number}" for number in range(40))
CANDIDATES = (*TOOLS["beta"][:2], *OTHERS, *TOOLS["alpha"], *TOOLS["beta"][2:])
SERVERS = {tool: tool.partition("__")[0] for tool in CANDIDATES}


def a_prediction_input(client, *calls, time=0.0, principal=""):
    return PredictionInput(
        candidates=CANDIDATES,
        calls=calls,
        servers=SERVERS,
        client=client,
        principal=principal,
        profile="default",
        time=time,
    )


def learned(clients, *, principal="", length=4):
    """A hybrid that learned a session of each of these clients in turn, a quarter of an hour apart."""
    predictor = HybridPredictor()
    for number, client in enumerate(clients):
        calls = TOOLS[client][:length]
        for done, tool in enumerate(calls):
            asked = a_prediction_input(client, *calls[:done], time=1e9 + 900.0 * number, principal=principal)
            predictor.learn(asked, tool)
    return predictor


def first(predictor, client, time, principal=""):
    prediction = predictor.predict(a_prediction_input(client, time=time, principal=principal))
    return CANDIDATES[int(np.argmax(prediction.scores))]


@st.composite
def orders(draw):
    count = draw(st.integers(3, 8) | st.integers(9, 100))
    both = ["alpha"] * count + ["beta"] * count
    kind = draw(st.sampled_from(["one by one", "one after the other", "mixed"]))
    if kind == "mixed":
        return draw(st.permutations(both))
    order = ["alpha", "beta"] * count if kind == "one by one" else both
    return order[::-1] if draw(st.booleans()) else order


@given(orders(), st.sampled_from(["", "ann"]), st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_each_client_gets_its_own_tools_first_in_whatever_order_sessions_are_learned(order, principal, length):
    predictor = learned(order, principal=principal, length=length)
    end = 1e9 + 900.0 * len(order)
    for client, tools in TOOLS.items():
        assert first(predictor, client, end, principal) in tools[:length]


@pytest.mark.parametrize("principal", ["", "ann"])
@pytest.mark.parametrize("order", [["alpha"] * 3 + ["beta"] * 20, ["beta"] * 20 + ["alpha"] * 3])
def test_a_client_of_a_few_sessions_is_not_outvoted_by_one_of_many(order, principal):
    """Whoever has more sessions: the profile and the principal are those of both."""
    predictor = learned(order, principal=principal)
    assert first(predictor, "alpha", 2e9, principal) in TOOLS["alpha"]
    assert first(predictor, "beta", 2e9, principal) in TOOLS["beta"]
