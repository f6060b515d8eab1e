"""What the rest of a session is expected to need, and the search hits that are ordered by it."""

import pytest

from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session

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
