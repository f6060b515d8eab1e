"""A predictor that was not written here: it may raise, answer nonsense or take its time, and nobody notices."""

import logging
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import Final

import numpy as np

from riglm.application.prediction.worker import Worker
from riglm.domain.prediction import Prediction, Situation
from riglm.ports.predictor import PredictorPort

_log: Final = logging.getLogger("riglm.prediction")
_MOST_UNLEARNED: Final = 100


class GuardedPredictor(PredictorPort):
    """Asks a predictor on a thread of its own, and another one in its place while it is late or wrong.

    `patience` is in seconds. A predictor that was late is not asked again before it has come back.
    """

    def __init__(self, guarded: PredictorPort, instead: PredictorPort, *, patience: float = 0.05) -> None:
        """`instead` answers on the caller's thread."""
        self._guarded = guarded
        self._instead = instead
        self._patience = patience
        self._worker = Worker("riglm-predictor")
        self._worker.start()
        self._unlearned: list[Future[None]] = []
        self._late: Future[Prediction] | None = None
        self._told: set[str] = set()

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Both learn; what a slow one cannot keep up with it misses."""
        self._instead.learn(situation, tool, weight)
        self._unlearned = [future for future in self._unlearned if not future.done()]
        if len(self._unlearned) >= _MOST_UNLEARNED:
            self._tell("it cannot keep up with what it is to learn")
            return
        future = self._worker.submit(lambda: self._guarded.learn(situation, tool, weight))
        future.add_done_callback(self._learned)
        self._unlearned.append(future)

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """The guarded predictor's answer if it comes in time and is one."""
        if self._late is not None and not self._late.done():
            return self._instead.predict(situation, explain=explain)
        asked = self._worker.submit(lambda: self._guarded.predict(situation, explain=explain))
        try:
            found = asked.result(self._patience)
        except Late:
            self._late = asked
            self._tell(f"it did not answer within {self._patience * 1000:.0f} ms")
        except Exception:  # noqa: BLE001  # a plug-in may raise anything
            self._tell("it raised", traceback=True)
        else:
            if _is_sound(found, len(situation.candidates)):
                return found
            self._tell("its answer is not one finite score for each candidate")
        return self._instead.predict(situation, explain=explain)

    def close(self) -> None:
        """Stop asking; a call that never returns dies with the process."""
        self._worker.close(timeout=0.1)

    def _learned(self, future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._tell(f"it raised while learning: {future.exception()!r}")

    def _tell(self, what: str, *, traceback: bool = False) -> None:
        if what not in self._told:
            self._told.add(what)
            name = type(self._guarded).__name__
            _log.error(
                "predictor %s failed: %s; another one stands in, and this is said once", name, what, exc_info=traceback
            )


def _is_sound(found: object, count: int) -> bool:
    if not isinstance(found, Prediction):
        return False
    scores = np.asarray(found.scores)
    return scores.shape == (count,) and scores.dtype.kind in "fiu" and bool(np.isfinite(scores).all())
