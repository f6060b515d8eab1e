"""Why a session is shown what it is shown: the list as it would be made now, taken apart."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from riglm.application.filtering.active_rules import ActiveRules
from riglm.application.tool_lists.list_writer import OwnerOf
from riglm.domain.exposure import Surface
from riglm.domain.policy import OverrideKind, ToolVisibility
from riglm.domain.prediction import Prediction, Scores, ranked
from riglm.domain.schemas.control_api import ListWithout, PredictedTool, SessionPrediction
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import PermittedTools, ToolCatalog

_MARKED: Final = "marked: loading it at once pays"


REST: Final = "other"
"""The signal for the prior, and for scores whose origin a predictor does not reveal."""

_ROUNDED: Final = 1e-9
_MIN_PROBABILITY: Final = 1e-6

Parts = Mapping[str, Scores]
"""What each signal adds to the log-odds of the scores, in the order of the candidates."""


class Explanation:
    """One list, taken apart: what it is made from, and what would be made of something else.

    It is created with a list, without changing anything. `to_prediction` may be called on any thread: it is slower
    and uses only immutable data.
    """

    def __init__(
        self,
        decisions: ActiveRules,
        session: Session,
        state: SessionState,
        catalog: ToolCatalog,
        owner: OwnerOf,
        *,
        at: float,
        live: bool,
    ) -> None:
        """`state` is how far the session has come, `catalog` what it may be shown; `at` is the time, in seconds."""
        view = decisions.views.of(session, catalog)
        self._decisions = decisions
        self._session = session
        self._catalog = catalog
        self._owner = owner
        self._at = at
        self._is_live = live
        self._view = view
        self._surface = decisions.planner.surface(session)
        past = replace(state)
        self._plan = decisions.planner.plan(session, past, view)
        self._names = decisions.planner.names(session, past, view)
        self._prediction = decisions.predicting.predict(session, state, view.candidates, explain=True)
        need = decisions.planner.need(session, view, self._prediction, frozenset(state.calls))
        self._decided_by = "" if self._prediction is None else need.predictor
        self._scores = np.array([need.probabilities.get(name, 0.0) for name in view.candidates])
        self._log_odds = _log_odds(self._scores)
        self._parts = {} if self._prediction is None else _parts(self._log_odds, self._prediction)
        self._shown = frozenset(self._names)
        self._own = frozenset(decisions.planner.offered(session, past, view))
        self._rules = decisions.rules
        self._overrides = decisions.views.concerning(session)
        self._used = frozenset(state.used_in_turn)
        self._probabilities = decisions.planner.usage(session, view).probabilities
        self._without = {signal: self._list_without(part) for signal, part in self._parts.items()}
        self._has_context = state.context is not None
        self._context_confidence = float(decisions.predicting.context_confidence(session, state))

    def to_prediction(self) -> SessionPrediction:
        """What the next list would be, and why."""
        plan, prediction = self._plan, self._prediction
        confidence = plan.confidence if self._has_context or prediction is None else prediction.confidence
        is_on = self._decisions.is_on
        return SessionPrediction(
            session_id=self._session.id,
            at=self._at,
            live=self._is_live,
            predictor=self._decided_by,
            surface=self._surface.value,
            mode=self._decisions.rules.mode if is_on else "off",
            confidence=float(confidence),
            reason=plan.reason if is_on else "filtering is off",
            has_context=self._has_context,
            context_confidence=self._context_confidence,
            size=len(self._names),
            signals=tuple(self._parts),
            tools=tuple(self._tools()),
            shown=self._names,
            without=self._without,
        )

    def _tools(self) -> Iterator[PredictedTool]:
        """All tools of the catalogue: those that can be shown, the likeliest first, then the others."""
        view = self._view
        places = {name: place for place, name in enumerate(view.candidates)}
        scores = None if self._prediction is None else self._scores.tolist()
        parts = {signal: part.tolist() for signal, part in self._parts.items()}
        order = list(view.candidates) if scores is None else ranked(view.candidates, scores, len(places))
        others = [name for name in self._catalog.names if name not in places]
        for rank, name in enumerate([*order, *others], start=1):
            place, visibility = places.get(name), _visibility(view, name)
            is_ranked, shown = scores is not None and place is not None, place is not None and name in self._shown
            yield PredictedTool(
                tool=name,
                upstream=self._owner(name)[0],
                rank=None if place is None else rank,
                score=None if scores is None or place is None else scores[place],
                shown=shown,
                visibility=visibility.value,
                why=self._why(name, visibility, rank if is_ranked else None, shown=shown),
                contributions={} if place is None else {signal: part[place] for signal, part in parts.items()},
            )

    def _list_without(self, part: Scores) -> ListWithout:
        """Return how the ranking of as many tools as the list holds would change without one signal."""
        then, now = self._best(self._log_odds - part), self._best(self._log_odds)
        return ListWithout(
            shown=self._in_order(then), added=self._in_order(then - now), removed=self._in_order(now - then)
        )

    def _best(self, scores: Scores) -> frozenset[str]:
        return frozenset(ranked(self._view.candidates, scores, len(self._names))) - self._own

    def _in_order(self, names: frozenset[str]) -> tuple[str, ...]:
        return tuple(name for name in self._view.candidates if name in names)

    def _why(self, tool: str, visibility: ToolVisibility, rank: int | None, *, shown: bool) -> str:
        """Return why a tool is shown or hidden; `rank` is its place by prediction, if there is one."""
        match visibility:
            case ToolVisibility.DENIED:
                return self._denied()
            case ToolVisibility.NEVER:
                return self._overridden(tool, OverrideKind.EXCLUDE) or "it is excluded"
            case ToolVisibility.ALWAYS if shown:
                pinned = self._overridden(tool, OverrideKind.PIN) or self._overridden(tool, OverrideKind.INCLUDE)
                return pinned or "filtering.pinned names it"
        return self._why_shown(tool, rank) if shown else self._why_hidden(tool, rank)

    def _denied(self) -> str:
        if not self._rules.denylist:
            return "denied: filtering.allowlist does not name it"
        if not self._rules.allowlist:
            return "denied: filtering.denylist names it"
        return "denied: filtering.denylist names it, or filtering.allowlist does not"

    def _overridden(self, tool: str, kind: OverrideKind) -> str | None:
        found = [each for each in self._overrides if each.tool == tool and each.kind is kind]
        if not found:
            return None
        last = max(found, key=lambda each: each.created_at)
        words = f"an override ({kind.value}, {last.scope.value}) was made for it"
        return f"{words}: {last.reason}" if last.reason else words

    def _why_shown(self, tool: str, rank: int | None) -> str:
        if not self._rules.is_on:
            return "all are shown: filtering is off"
        if self._surface is Surface.HINTS:
            return _MARKED if tool in (self._plan.tools or ()) else "shown, and not marked"
        if self._plan.tools is None:
            return f"all are shown: {self._plan.reason}"
        if self._rules.coverage is None:
            return f"listing it pays or makes hits likelier ({self._need(tool)})"
        if tool in self._used:
            return "used in this session"
        return f"listed: {self._plan.reason}" if rank is None else f"number {rank} by prediction"

    def _why_hidden(self, tool: str, rank: int | None) -> str:
        if tool in self._own:
            return "a meta-tool has this name: call_tool reaches it"
        if self._rules.coverage is not None:
            place = "not chosen" if rank is None else f"number {rank} by prediction"
            return f"{place}, and the list holds {len(self._plan.listed)}"
        words = "listing it costs more than searching for it when it is needed"
        if tool in self._used:
            words = "used in this session, so its definition is known; changing the list would cost more than it saves"
        place = "" if rank is None else f"; number {rank} by prediction"
        return f"{words} ({self._need(tool)}){place}"

    def _need(self, tool: str) -> str:
        return f"a session needs it with probability {self._probabilities[tool]:.2f}"


def _parts(log_odds: Scores, prediction: Prediction) -> Parts:
    """The contributions, with a rest where they do not add up to the log-odds."""
    parts = dict(prediction.contributions)
    rest = log_odds - sum(parts.values(), 0.0 * log_odds)
    if abs(rest).max(initial=0.0) > _ROUNDED:
        parts[REST] = parts.get(REST, 0.0) + rest
    return parts


def _log_odds(probabilities: Scores) -> Scores:
    p = np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    found: Scores = np.log(p / (1 - p))
    return found


def _visibility(view: PermittedTools, name: str) -> ToolVisibility:
    if name in view.kept:
        return ToolVisibility.ALWAYS
    if name in view.candidate_set:
        return ToolVisibility.AUTO
    return ToolVisibility.NEVER if name in view.never_shown else ToolVisibility.DENIED
