from riglm.application.evaluation.dataset import Query
from riglm.application.evaluation.retrieval import PredictedRanking, evaluate_usage, example, halves
from riglm.domain.prediction import Prediction
from riglm.domain.tool import ToolProfile
from tests.unit.application.evaluation.sets import prepared

TOOLS = tuple(ToolProfile(name=f"tool{number}", description="does something") for number in range(40))


class ByRelevance:
    def __init__(self):
        self.learned = []

    def learn(self, prediction_input, tool, weight=1.0):
        self.learned.append(tool)

    def predict(self, prediction_input, *, explain=False):
        return Prediction(scores=prediction_input.relevance.combined)


def _queries(count, group="", text=""):
    return [Query(id=str(number), text=text or f"q{number}", group=group, gold=((0,),)) for number in range(count)]


def test_halves_are_chosen_by_hash_and_leave_nothing_out():
    history, rest = halves(_queries(100))
    assert sorted([*history, *rest]) == list(range(100))
    assert halves(_queries(100)) == (history, rest)


def test_requests_of_one_group_or_wording_are_never_split():
    assert halves(_queries(100, group="one")) is None
    assert halves(_queries(100, text="the same")) is None


def test_too_few_requests_have_no_halves():
    assert halves(_queries(30)) is None


def test_what_no_description_says_is_learned_from_the_history_and_the_control_stays_blind():
    requests = {f"violin lesson number{number}": "tool33" for number in range(60)}
    data = prepared(TOOLS, requests)
    history, rest = halves(data.dataset.queries)
    control = evaluate_usage(data, PredictedRanking(ByRelevance(), data.retriever(), data), rest)
    predictor = ByRelevance()
    learned = evaluate_usage(data, example(data, predictor, history), rest)
    assert control["r@5"] < 50
    assert learned["r@5"] == 100.0
    assert predictor.learned == ["tool33"] * len(history)
    assert learned["n"] == control["n"] == len(rest)
