"""One prediction and one lesson, from a context that is embedded, with a full dynamic index."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.load import catalog
from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.prediction import Context, PredictionInput, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.tool import Tool, profile

GOALS_MS = {500: 5, 10_000: 25}
_PAIRS = 5_000
_DIMENSIONS = 384
_QUESTIONS = 200
_MODEL = "bench"


def run() -> None:
    """Print milliseconds by the clock, and of processor time: on a busy machine the first shows who else is there."""
    threadpool_limits(1, user_api="blas")
    print(
        "| tools | what | p50 ms | p99 ms | p50 cpu ms | p99 cpu ms | goal p99 |\n|---:|---|---:|---:|---:|---:|---:|"
    )
    for count, goal in GOALS_MS.items():
        stage = _Stage(count)
        _print(count, "predict", stage.predict, str(goal))
        _print(count, "learn", stage.learn, "")


class _Stage:
    def __init__(self, count: int) -> None:
        self._chance = np.random.default_rng(0)
        made = [Tool(tool["name"], Raw(jsonrpc.encode(tool))) for tool in catalog.make(count)]
        profiles = [profile(tool, server=tool.name.partition("_")[0]) for tool in made]
        self._names = tuple(each.name for each in profiles)
        self._prints = {each.name: each.fingerprint for each in profiles}
        self._servers = {each.name: each.server for each in profiles}
        self._texts = [each.description for each in profiles]
        self._pairs = LearnedPairs()
        vectors = dict(zip(self._names, self._vectors(len(self._names)), strict=True))
        self._retriever = Retriever(profiles, pairs=self._pairs).with_vectors(_MODEL, vectors)
        self._predictor = HybridPredictor()
        for number in range(_PAIRS):
            self._pair(self._context(number), number)
        for number in range(_QUESTIONS):
            self._predictor.learn(self._prediction_input(number), self._names[number % 50])

    def predict(self, number: int) -> None:
        prediction_input = self._prediction_input(number)
        assert prediction_input.context is not None
        relevance = self._retriever.relevance(prediction_input.context, prediction_input.candidates)
        self._predictor.predict(replace(prediction_input, relevance=relevance))

    def learn(self, number: int) -> None:
        prediction_input = self._prediction_input(number)
        context = prediction_input.context or self._context(number)
        relevance = self._retriever.relevance(context, prediction_input.candidates)
        prediction_input = replace(prediction_input, relevance=relevance)
        self._predictor.predict(prediction_input)
        self._predictor.learn(prediction_input, self._names[number % 50])
        self._pair(context, number)

    def _pair(self, context: Context, number: int) -> None:
        tool = self._names[number * 7 % len(self._names)]
        self._pairs.learn(context, tool, 1.0, scope="", at=float(number), description_hash=self._prints[tool])

    def _prediction_input(self, number: int) -> PredictionInput:
        calls = tuple(self._names[(number + step) % 50] for step in range(20))
        return PredictionInput(
            candidates=self._names, calls=calls, servers=self._servers, context=self._context(number), time=1e9
        )

    def _context(self, number: int) -> Context:
        texts = self._texts
        text = f"{texts[number % len(texts)]} {texts[number * 13 % len(texts)]} {number}"
        return Context(text=text, vector=self._vectors(4), model=_MODEL)

    def _vectors(self, count: int) -> Vector:
        rows = self._chance.standard_normal((count, _DIMENSIONS)).astype(np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _print(count: int, what: str, ask: Callable[[int], None], goal: str) -> None:
    wall, used = [], []
    for number in range(_QUESTIONS):
        began, worked = time.perf_counter(), time.process_time()
        ask(number)
        wall.append(1e3 * (time.perf_counter() - began))
        used.append(1e3 * (time.process_time() - worked))
    figures = " | ".join(f"{np.quantile(taken, share):.1f}" for taken in (wall, used) for share in (0.5, 0.99))
    print(f"| {count} | {what} | {figures} | {goal} |", flush=True)
