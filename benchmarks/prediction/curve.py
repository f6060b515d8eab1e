"""How many calls need no hop after so many sessions of workflows that repeat, beside a control that never learns."""

import random

from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.domain.prediction import PredictionInput

_SESSIONS = (0, 5, 20, 100)
_LIST = 15
_ROUNDS = 20
_SERVERS = 20
_TOOLS_PER_SERVER = 15
_WORKFLOWS = 4
_STEPS = 8
_DEVIATION = 0.05

TOOLS = tuple(f"server{server}__tool{tool}" for server in range(_SERVERS) for tool in range(_TOOLS_PER_SERVER))
SERVERS = {tool: tool.partition("__")[0] for tool in TOOLS}


def run() -> None:
    print(f"hit rate with {_LIST} of {len(TOOLS)} tools listed, {_WORKFLOWS} workflows of {_STEPS} tools")
    print(f"{'sessions':>8}{'learned':>10}{'control':>10}")
    for sessions in _SESSIONS:
        print(f"{sessions:8}{_share(sessions, learns=True):10.2f}{_share(sessions, learns=False):10.2f}")


def _share(sessions: int, *, learns: bool) -> float:
    """Over several sets of workflows; each is measured on sessions after those that were learned."""
    held = calls = 0
    for seed in range(_ROUNDS):
        chance = random.Random(seed)
        workflows = [chance.sample(TOOLS, _STEPS) for _ in range(_WORKFLOWS)]
        predictor = HybridPredictor()
        for _ in range(sessions if learns else 0):
            session = _session(chance, workflows)
            for done, tool in enumerate(session):
                predictor.learn(_prediction_input(session[:done]), tool)
        for _ in range(_WORKFLOWS):
            session = _session(chance, workflows)
            for done, tool in enumerate(session):
                scores = predictor.predict(_prediction_input(session[:done])).scores
                held += int((scores > scores[TOOLS.index(tool)]).sum()) < _LIST
                calls += 1
    return held / calls


def _session(chance: random.Random, workflows: list[list[str]]) -> tuple[str, ...]:
    steps = chance.choice(workflows)
    return tuple(chance.choice(TOOLS) if chance.random() < _DEVIATION else step for step in steps)


def _prediction_input(calls: tuple[str, ...]) -> PredictionInput:
    return PredictionInput(candidates=TOOLS, calls=calls, servers=SERVERS)
