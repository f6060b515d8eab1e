"""Figures of public data sets: how sets are read and split, and what a ranking and a predictor are given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.evaluation.dataset import Dataset, Query, read_dataset
from benchmarks.evaluation.retrieval import (
    AbstentionMetrics,
    EmbeddedDataset,
    PredictedRanking,
    evaluate_abstention,
    evaluate_usage,
    example,
    figures,
    halves,
)
from benchmarks.evaluation.sequences import SessionSet, evaluate_sequences, read_sessions

from riglm.application.reports.session_replay import digest
from riglm.domain.prediction import Context, Prediction, PredictionInput
from riglm.domain.tool import ToolProfile
from riglm.ports.predictor import PredictorPort
from tests.unit.domain.retrieval.samples import MODEL, SPIKE, context, vectors

TOOLS = ("read", "write", "search", "fetch")


def written(directory: Path, **files: list[dict[str, Any]]) -> Path:
    (directory / "dev").mkdir(parents=True)
    files = {"tools": [{"name": name, "server": "files"} for name in TOOLS], **files}
    for name, lines in files.items():
        file = directory / ("" if name == "tools" else "dev") / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def embedded(tools: tuple[ToolProfile, ...], requests: dict[str, str]) -> EmbeddedDataset:
    """Each request needs one tool, by name."""
    columns = {tool.name: column for column, tool in enumerate(tools)}
    queries = tuple(Query(id=text, text=text, gold=((columns[tool],),)) for text, tool in requests.items())
    dataset = Dataset(name="small", side="dev", tools=tools, queries=queries)
    contexts = tuple(context(text) for text in requests)
    return EmbeddedDataset(dataset=dataset, model=MODEL, vectors=vectors(tools), contexts=contexts)


def test_requests_come_in_the_order_of_their_hashes_with_equally_right_tools_as_one_group(tmp_path):
    queries = [{"id": f"q{number}", "query": "x", "tools": ["read", "write"]} for number in range(9)]
    queries[0]["any_of"] = [["read", "fetch"]]
    read = read_dataset(written(tmp_path / "set", queries=queries), limit=9)
    assert [query.id for query in read.queries] == sorted((query["id"] for query in queries), key=digest)
    assert {query.id: query.gold for query in read.queries}["q0"] == ((0, 3),)
    assert read.queries[-1].gold == ((0,), (1,)) or read.queries[-1].id == "q0"
    assert read_dataset(tmp_path / "set", limit=4).queries == read.queries[:4]


def test_figures_are_those_of_the_protocol():
    found = figures([np.array([0]), np.array([3, 12])], (5, 15))
    assert (found["r@5"], found["r@15"], found["c@5"], found["c@15"], found["mrr"]) == (75.0, 100.0, 50.0, 100.0, 62.5)
    assert found["n@10"] == pytest.approx(50 + 50 / np.log2(5) / (1 + 1 / np.log2(3)), abs=0.01)


def test_precision_of_abstention_is_of_equally_many_requests_of_both_kinds():
    found = AbstentionMetrics(answerable=200, unanswerable=50, wrongly=10, rightly=20)
    assert (found.false_abstentions, found.recall, found.precision) == (0.05, 0.4, pytest.approx(0.4 / 0.45))
    known, unknown = ({"sum of two numbers": "get-sum"}, {"violin zeppelin": "echo"})
    own, strange = (
        EmbeddedDataset(dataset=data.dataset, model="", vectors={}, contexts=tuple(map(without_vector, data.contexts)))
        for data in (embedded(SPIKE, known), embedded(SPIKE, unknown))
    )
    assert evaluate_abstention(own, [strange], most=2).precision == 1.0


def without_vector(given: Context) -> Context:
    return Context(text=given.text)


class ByRelevance(PredictorPort):
    def __init__(self) -> None:
        self.learned: list[str] = []

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self.learned.append(tool)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        assert prediction_input.relevance is not None
        return Prediction(scores=prediction_input.relevance.combined)


def test_history_is_learned_from_one_half_and_the_control_stays_blind():
    tools = tuple(ToolProfile(name=f"tool{number}", description="does something") for number in range(40))
    data = embedded(tools, {f"violin lesson number{number}": "tool33" for number in range(60)})
    split = halves(data.dataset.queries)
    assert split is not None
    history, rest = split
    assert sorted([*history, *rest]) == list(range(60))
    control = evaluate_usage(data, PredictedRanking(ByRelevance(), data.retriever(), data), rest)
    predictor = ByRelevance()
    learned = evaluate_usage(data, example(data, predictor, history), rest)
    assert (control["r@5"] < 50, learned["r@5"]) == (True, 100.0)
    assert predictor.learned == ["tool33"] * len(history)


class Workflow(PredictorPort):
    """Knows a workflow once it has learned it, and keeps what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, PredictionInput]] = []
        self._after: dict[tuple[str, ...], str] = {}

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self.seen.append(("learn", prediction_input))
        self._after[prediction_input.calls] = tool

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        self.seen.append(("predict", prediction_input))
        expected = self._after.get(prediction_input.calls)
        return Prediction(scores=np.array([float(tool == expected) for tool in prediction_input.candidates]))


def a_set(directory: Path, number: int = 10, text: str = "") -> SessionSet:
    sessions = [
        {"id": f"s{index}", "calls": ["search", "fetch", "write"], "context": text, "group": f"g{index // 2}"}
        for index in range(number)
    ]
    return read_sessions(written(directory, sessions=[*sessions, {"id": "one call", "calls": ["read"]}]))


def unembedded(found: SessionSet) -> EmbeddedDataset:
    contexts = tuple(Context(text=query.text) for query in found.dataset.queries)
    return EmbeddedDataset(dataset=found.dataset, model="", vectors={}, contexts=contexts)


def test_online_each_session_is_predicted_before_it_is_learned(tmp_path):
    made, found = Workflow(), a_set(tmp_path / "set", text="look it up and write it down")
    of_all = evaluate_sequences(found, unembedded(found), lambda: made, protocol="online", cuts=(1,))
    assert "".join(kind[0] for kind, _ in made.seen) == "pplll" * len(found.sessions)
    assert of_all["h@1"] == pytest.approx(100 * (of_all["calls"] - 2) / of_all["calls"], abs=0.01)
    relevances = [given.relevance for _, given in made.seen]
    assert not any(relevance.learned.any() for relevance in relevances[:5] if relevance)
    assert relevances[-1] is not None
    assert relevances[-1].learned[TOOLS.index("search")] > relevances[-1].learned[TOOLS.index("read")]


def test_in_folds_every_session_is_predicted_once_by_a_predictor_that_never_learned_it(tmp_path):
    made: list[Workflow] = []

    def make() -> Workflow:
        made.append(Workflow())
        return made[-1]

    found = a_set(tmp_path / "set", 40)
    assert evaluate_sequences(found, unembedded(found), make)["calls"] == 2 * len(found.sessions)
    assert len(made) == 5
    for each in made:
        kinds = [kind for kind, _ in each.seen]
        assert kinds.count("learn") == 3 * (len(found.sessions) - kinds.count("predict") // 2)
