"""What one prediction and one lesson cost, in processor time, with everything known and much learned."""

import random
import time

import numpy as np

from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.domain.prediction import PredictionInput, Relevance

_SIZES = (500, 10_000)
_SESSIONS = 60
_CALLS = 40
_USED = 400
_REPEATED = 0.6
_VERBS = ("get", "list", "create", "search")
_NOUNS = ("user", "file", "repository", "page", "issue")


def run() -> None:
    print(f"{'tools':>8}{'predict p50':>14}{'p99 ms':>10}{'learn p50':>12}{'p99 ms':>10}")
    for size in _SIZES:
        predicting, learning = _times(size)
        p50, p99 = np.quantile(predicting, (0.5, 0.99))
        l50, l99 = np.quantile(learning, (0.5, 0.99))
        print(f"{size:8}{p50:14.2f}{p99:10.2f}{l50:12.2f}{l99:10.2f}")


def _times(size: int) -> tuple[list[float], list[float]]:
    chance = random.Random(0)
    tools = tuple(f"s{n % 40}__{_VERBS[n % 4]}_{_NOUNS[n % 5]}_{n}" for n in range(size))
    servers = {tool: tool.partition("__")[0] for tool in tools}
    numbers = np.random.default_rng(0).random((3, size))
    relevance = Relevance(described=numbers[0], learned=numbers[1], combined=numbers[2], confidence=0.5)
    predictor = HybridPredictor()
    predicting, learning = [], []
    for _ in range(_SESSIONS):
        calls: tuple[str, ...] = ()
        for _ in range(_CALLS):
            again = calls and chance.random() < _REPEATED
            tool = chance.choice(calls if again else tools[:_USED])
            prediction_input = PredictionInput(
                candidates=tools, calls=calls, servers=servers, relevance=relevance, principal="p", time=1e9
            )
            started = time.process_time()
            predictor.predict(prediction_input)
            predicted = time.process_time()
            predictor.learn(prediction_input, tool)
            predicting.append((predicted - started) * 1e3)
            learning.append((time.process_time() - predicted) * 1e3)
            calls = (*calls, tool)
    return predicting, learning
