"""What each strategy would have shown in the sessions that riglm recorded."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from riglm.application.evaluation.metrics import Tally, percentile, rank
from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import Situation
from riglm.domain.session_state import MOST_CALLS
from riglm.ports.analytics import RecordedSession
from riglm.ports.predictor import PredictorPort


def evaluate_history(
    history: Sequence[RecordedSession],
    predictor: PredictorPort,
    *,
    goal: float,
    least: int,
    most: int,
    on_session: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Walk the sessions once, oldest first; every call is predicted before it is learned.

    Before each call a list of `least` to `most` tools is made for the coverage `goal`. `calls` and `new_calls` (of
    tools that the session had not used) are counted, `in_list` and `new_in_list` are the shares of them whose tool was
    in that list, `reduction` how many of all tools it did not show, in percent; `mean_list` is its mean length.
    Contexts are not recorded as text, so their part is not measured here.
    """
    calibrator = CoverageCalibrator(goal, least, most)
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    tally, available = Tally(), 0
    for session in history:
        candidates = tuple(dict.fromkeys((*session.tools_available, *(call.tool for call in session.calls))))
        columns = {tool: column for column, tool in enumerate(candidates)}
        before: tuple[str, ...] = ()
        for call in session.calls:
            situation = Situation(
                candidates=candidates,
                calls=before,
                servers=servers,
                principal=session.principal,
                client=session.client,
                time=call.timestamp,
            )
            started = time.perf_counter()
            prediction = predictor.predict(situation)
            tally.taken_ms.append((time.perf_counter() - started) * 1e3)
            tally.ranks.append(rank(prediction.scores, columns[call.tool]))
            tally.fresh.append(call.tool not in before)
            tally.sizes.append(calibrator.size(prediction))
            available += len(candidates)
            calibrator.observe(prediction, columns[call.tool])
            predictor.learn(situation, call.tool, SIGNALS[call.found])
            before = (*before, call.tool)[-MOST_CALLS:]
        on_session(1)
    return {"sessions": len(history), **_figures(tally, available)}


def _figures(tally: Tally, available: int) -> dict[str, Any]:
    listed = [place < size for place, size in zip(tally.ranks, tally.sizes, strict=True)]
    fresh_listed = [found for found, fresh in zip(listed, tally.fresh, strict=True) if fresh]
    return {
        "calls": len(listed),
        "new_calls": len(fresh_listed),
        "in_list": _percent(sum(listed), len(listed)),
        "new_in_list": _percent(sum(fresh_listed), len(fresh_listed)),
        "mean_list": round(sum(tally.sizes) / len(listed), 2) if listed else None,
        "reduction": _percent(available - sum(tally.sizes), available),
        "p50_ms": percentile(tally.taken_ms, 0.5),
        "p99_ms": percentile(tally.taken_ms, 0.99),
    }


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 2) if whole else None
