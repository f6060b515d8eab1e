"""What the next session of a principal needs, estimated by a strategy from recorded sessions."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from riglm.application.prediction.calibration import CalibratedPredictor
from riglm.application.prediction.prediction_settings import Strategy
from riglm.domain.list_plan import ALIKE
from riglm.domain.prediction import PredictionInput
from riglm.domain.usage import MAX_TOOLS, SessionUse, Usage, WarmSet, WarmSetKey

MAX_LEARNED_TOOLS: Final = 1_000
"""Maximum number of first uses that are learned: `hybrid` takes up to a millisecond for each, and a list waits."""


class LearnedSessions:
    """A strategy that has learned the recorded sessions of a principal, or of all."""

    def __init__(
        self,
        strategy: Strategy,
        sessions: Sequence[SessionUse],
        candidates: Sequence[str],
        server_of: Callable[[str], str],
    ) -> None:
        """Have a strategy learn sessions, newest first, that has learned nothing yet.

        `candidates` are the tools of the next session, in the catalog's order.
        """
        sizes = accumulate(len(session.tools) for session in sessions)
        learned = [session for session, size in zip(sessions, sizes, strict=True) if size <= MAX_LEARNED_TOOLS]
        self._sessions = sessions
        self._tools = tuple(dict.fromkeys([*candidates, *(tool for session in learned for tool in session.tools)]))
        self._servers = {tool: server_of(tool) for tool in self._tools}
        self._strategy = strategy
        self._predictor = CalibratedPredictor(strategy.make(), snapshots=(0,))
        for session in reversed(learned):
            for place, tool in enumerate(session.tools):
                self._predictor.learn(self._input(session, session.started_at, session.tools[:place]), tool)
            self._predictor.end_session()

    def warm_set(self, key: WarmSetKey, now: float) -> WarmSet:
        """Return what the next session needs, at a time in seconds since the epoch."""
        prediction = self._predictor.predict(self._input(key, now))
        scores, likeliest = prediction.scores, dict[str, float]()
        if scores.size and float(np.ptp(scores)) > ALIKE * float(scores.max()):
            order = np.argsort(-scores, kind="stable")[:MAX_TOOLS]
            likeliest = {self._tools[place]: float(scores[place]) for place in order.tolist()}
        usage = Usage(
            evidence=len(self._sessions),
            probabilities=likeliest,
            requests=1 + float(np.mean([session.calls for session in self._sessions])),
            distinct_tools=float(np.mean([len(session.tools) for session in self._sessions])),
        )
        predictor = prediction.fallback or self._strategy.name
        return WarmSet(key=key, strategy=self._strategy.key, predictor=predictor, usage=usage, created_at=now)

    def _input(self, whose: SessionUse | WarmSetKey, time: float, calls: tuple[str, ...] = ()) -> PredictionInput:
        return PredictionInput(
            candidates=self._tools,
            calls=calls,
            servers=self._servers,
            principal=whose.principal,
            profile=whose.profile,
            client=whose.client,
            project=whose.project,
            time=time,
        )
