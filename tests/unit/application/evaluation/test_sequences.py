"""Sessions are read, split and walked as the protocols say."""

import json
from pathlib import Path

import numpy as np
import pytest

from riglm.application.evaluation.dataset import DatasetError, digest
from riglm.application.evaluation.retrieval import EmbeddedDataset
from riglm.application.evaluation.sequences import SessionSet, evaluate_sequences, read_sessions
from riglm.domain.prediction import Context, Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort

TOOLS = ("read", "write", "search", "fetch")


class Witness(PredictorPort):
    """Remembers what it was told, and knows a workflow by heart once it has learned it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, PredictionInput, str]] = []
        self._after: dict[tuple[str, ...], str] = {}

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self.seen.append(("learn", prediction_input, tool))
        self._after[prediction_input.calls] = tool

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        self.seen.append(("predict", prediction_input, ""))
        expected = self._after.get(prediction_input.calls)
        return Prediction(scores=np.array([float(tool == expected) for tool in prediction_input.candidates]))


def written(directory: Path, sessions: list[dict[str, object]]) -> Path:
    side = directory / "dev"
    side.mkdir(parents=True)
    tools = [{"name": name, "description": f"{name} something", "server": "files"} for name in TOOLS]
    (directory / "tools.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in tools))
    (side / "sessions.jsonl").write_text("".join(json.dumps(session) + "\n" for session in sessions))
    return directory


def a_set(directory: Path, number: int = 10, context: str = "") -> SessionSet:
    sessions = [
        {"id": f"s{index}", "calls": ["search", "fetch", "write"], "context": context, "group": f"g{index // 2}"}
        for index in range(number)
    ]
    return read_sessions(written(directory, sessions))


def unembedded(found: SessionSet) -> EmbeddedDataset:
    contexts = tuple(Context(text=query.text) for query in found.dataset.queries)
    return EmbeddedDataset(dataset=found.dataset, model="", vectors={}, contexts=contexts)


def test_sessions_come_in_the_order_of_their_hashes_and_those_of_one_call_are_left_out(tmp_path):
    sessions = [{"id": f"s{index}", "calls": ["read", "write"][: 1 + index % 2]} for index in range(20)]
    found = read_sessions(written(tmp_path / "set", sessions))
    assert [one.id for one in found.sessions] == sorted([f"s{n}" for n in range(1, 20, 2)], key=digest)


def test_a_group_stays_in_one_fold(tmp_path):
    found = a_set(tmp_path / "set", 40)
    folds: dict[str, set[int]] = {}
    for session in found.sessions:
        folds.setdefault(f"g{int(session.id[1:]) // 2}", set()).add(session.fold)
    assert all(len(one) == 1 for one in folds.values())
    assert len(set.union(*folds.values())) > 1


def test_the_limit_takes_the_first_by_hash(tmp_path):
    a_set(tmp_path / "set", 10)
    whole, part = read_sessions(tmp_path / "set"), read_sessions(tmp_path / "set", limit=3)
    assert part.sessions == whole.sessions[:3]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"calls": ["read"]}, "'id'"),
        ({"id": "s", "calls": "read"}, "'calls'"),
        ({"id": "s", "calls": ["read", 3]}, "'calls'"),
        ({"id": "s", "calls": ["read", "nothing"]}, "unknown tool 'nothing'"),
        ({"id": "s", "calls": [], "context": 3}, "'context'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, row, said):
    directory = written(tmp_path / "set", [{"id": "fine", "calls": []}, row])
    with pytest.raises(DatasetError, match=r"sessions\.jsonl:2") as caught:
        read_sessions(directory)
    assert said in str(caught.value)


def test_online_nothing_is_learned_of_a_session_before_it_was_predicted(tmp_path):
    witness = Witness()
    found = a_set(tmp_path / "set")
    evaluate_sequences(found, unembedded(found), lambda: witness, protocol="online")
    kinds = "".join(kind[0] for kind, _, _ in witness.seen)
    assert kinds == "pplll" * len(found.sessions)


def test_online_the_first_session_is_a_miss_and_the_rest_are_known(tmp_path):
    found = a_set(tmp_path / "set")
    figures = evaluate_sequences(found, unembedded(found), Witness, protocol="online", cuts=(1,))
    assert figures["calls"] == 2 * len(found.sessions)
    assert figures["h@1"] == pytest.approx(100 * (figures["calls"] - 2) / figures["calls"], abs=0.01)


def test_in_folds_every_session_is_predicted_once_by_a_predictor_that_never_learned_it(tmp_path):
    made: list[Witness] = []

    def make() -> Witness:
        made.append(Witness())
        return made[-1]

    found = a_set(tmp_path / "set", 40)
    figures = evaluate_sequences(found, unembedded(found), make)
    assert len(made) == 5
    assert figures["calls"] == 2 * len(found.sessions)
    learned = [sum(kind == "learn" for kind, _, _ in one.seen) for one in made]
    asked = [sum(kind == "predict" for kind, _, _ in one.seen) for one in made]
    for training_queue, questions in zip(learned, asked, strict=True):
        assert training_queue == 3 * (len(found.sessions) - questions // 2)


def test_contexts_teach_from_earlier_sessions_only(tmp_path):
    witness = Witness()
    found = a_set(tmp_path / "set", context="look it up and write it down")
    evaluate_sequences(found, unembedded(found), lambda: witness, protocol="online")
    relevances = [prediction_input.relevance for _, prediction_input, _ in witness.seen]
    first = [relevance for relevance in relevances[:5] if relevance]
    assert len(first) == 5
    assert all(not relevance.learned.any() for relevance in first)
    last = relevances[-1]
    assert last is not None
    assert last.learned[TOOLS.index("search")] > last.learned[TOOLS.index("read")]
