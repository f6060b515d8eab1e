"""Why a session is shown what it is shown: the list as it would be made now, taken apart."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from riglm.application.decisions import Decisions
from riglm.application.grounds import Grounds
from riglm.application.surfaces import Outlook
from riglm.domain.control import ListWithout, PredictedTool, SessionPrediction
from riglm.domain.policy import Standing
from riglm.domain.prediction import Prediction, Scores
from riglm.domain.ranking import ranked
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.surface import Surface
from riglm.domain.tool import Catalogue
from riglm.domain.view import View

REST: Final = "other"
"""The signal that stands for what a predictor does not tell the origin of."""

_ROUNDED: Final = 1e-9

Parts = Mapping[str, Scores]
"""What each signal adds to the scores, in the order of the candidates."""

OwnerOf = Callable[[str], tuple[str, str]]
"""The server of a tool and its own name there, by the name that clients use."""


def explained(
    decisions: Decisions,
    session: Session,
    state: SessionState,
    catalogue: Catalogue,
    owner: OwnerOf,
    *,
    at: float,
    live: bool,
) -> SessionPrediction:
    """What the next list of a session would be, and why; nothing changes by asking.

    `state` is how far the session has come, `catalogue` what it may be shown; `at` is in seconds since the epoch.
    """
    state = replace(state)
    view = decisions.views.of(session, catalogue)
    common = decisions.views.of(session, catalogue, whoever=True)
    outlook = decisions.surfaces.outlook(session, replace(state), view, common)
    names = outlook.view.candidates
    prediction = decisions.predicting.predict(session, state, names, explain=True)
    parts = {} if prediction is None else _parts(prediction)
    making = _Making(decisions, session, state, outlook, prediction)
    choice = outlook.choice
    confidence = choice.confidence if making.is_predicted or prediction is None else prediction.confidence
    return SessionPrediction(
        session_id=session.id,
        at=at,
        live=live,
        predictor="" if prediction is None else decisions.predictor,
        surface=making.surface.value,
        mode=decisions.rules.mode if decisions.is_on else "off",
        confidence=float(confidence),
        reason=choice.reason if decisions.is_on else "filtering is off",
        has_context=state.context is not None,
        context_confidence=float(decisions.predicting.context_confidence(session, state)),
        size=len(outlook.names),
        signals=tuple(parts),
        tools=_tools(making, catalogue, owner, parts),
        shown=outlook.names,
        without={signal: _without(making, part) for signal, part in parts.items()},
    )


@dataclass(frozen=True, slots=True)
class _Making:
    """What the next list of one session is made from."""

    decisions: Decisions
    session: Session
    state: SessionState
    outlook: Outlook
    prediction: Prediction | None

    @property
    def surface(self) -> Surface:
        return self.decisions.surfaces.of(self.session)

    @property
    def is_predicted(self) -> bool:
        """Whether prediction for this very session chooses the list."""
        return self.surface is Surface.DYNAMIC and not self.outlook.passes

    def chosen_by(self, prediction: Prediction | None) -> frozenset[str]:
        """What would be in the list if it were chosen now by this prediction."""
        view = self.outlook.view
        choice = self.decisions.dynamic.chosen_by(self.session, self.state, view, prediction)
        return (choice.chosen | view.kept) & view.candidate_set

    def grounds(self) -> Grounds:
        surfaces = self.decisions.surfaces
        return Grounds(
            rules=self.decisions.rules,
            surface=self.surface,
            outlook=self.outlook,
            state=self.state,
            overrides=self.decisions.views.concerning(self.session),
            chosen=self.chosen_by(self.prediction) if self.is_predicted else frozenset(),
            own=frozenset(surfaces.offered(self.session, self.outlook.view)),
        )


def _parts(prediction: Prediction) -> Parts:
    """The contributions, with a rest where they do not add up to the scores."""
    parts = dict(prediction.contributions)
    rest = prediction.scores - sum(parts.values(), 0.0 * prediction.scores)
    if abs(rest).max(initial=0.0) > _ROUNDED * max(1.0, float(abs(prediction.scores).max(initial=0.0))):
        parts[REST] = parts.get(REST, 0.0) + rest
    return parts


def _tools(making: _Making, catalogue: Catalogue, owner: OwnerOf, parts: Parts) -> tuple[PredictedTool, ...]:
    view, grounds, prediction = making.outlook.view, making.grounds(), making.prediction
    place = {name: index for index, name in enumerate(view.candidates)}
    order = list(view.candidates)
    if prediction is not None:
        order = ranked(view.candidates, prediction.scores, len(order))
    ranks = {name: rank for rank, name in enumerate(order, start=1)}
    shown = frozenset(making.outlook.names)
    found = []
    for name in (*order, *(name for name in catalogue.names if name not in place)):
        standing, index = _standing(view, name), place.get(name)
        told = prediction is not None and index is not None
        found.append(
            PredictedTool(
                tool=name,
                upstream=owner(name)[0],
                rank=ranks.get(name),
                score=float(prediction.scores[index]) if prediction is not None and index is not None else None,
                shown=name in shown,
                standing=standing.value,
                why=grounds.why(name, standing, ranks.get(name) if told else None, shown=name in shown),
                contributions={signal: float(part[index]) for signal, part in parts.items()} if told else {},
            )
        )
    return tuple(found)


def _standing(view: View, name: str) -> Standing:
    if name in view.kept:
        return Standing.KEPT
    if name in view.candidate_set:
        return Standing.OPEN
    return Standing.AWAY if name in view.away else Standing.DENIED


def _without(making: _Making, part: Scores) -> ListWithout:
    """The list with what a choice made now would gain and lose by one signal's silence."""
    names, prediction = making.outlook.names, making.prediction
    if not making.is_predicted or prediction is None:
        return ListWithout(shown=names, added=(), removed=())
    now, then = making.chosen_by(prediction), making.chosen_by(_less(prediction, part))
    reserved = frozenset(making.decisions.surfaces.offered(making.session, making.outlook.view))
    gained, lost = then - now - reserved, now - then
    shown = tuple(
        name for name in making.outlook.view.candidates if name in gained or (name in names and name not in lost)
    )
    return ListWithout(
        shown=shown,
        added=tuple(name for name in shown if name not in names),
        removed=tuple(name for name in names if name in lost),
    )


def _less(prediction: Prediction, part: Scores) -> Prediction:
    """A prediction less what one signal added to it; probabilities go with the places that the scores give."""
    import numpy as np  # noqa: PLC0415  # a start without prediction does not need it

    scores = prediction.scores - part
    likely = prediction.log_probabilities
    if likely is not None:
        moved = np.empty_like(likely)
        moved[np.argsort(-scores, kind="stable")] = likely[np.argsort(-prediction.scores, kind="stable")]
        likely = moved
    return replace(prediction, scores=scores, contributions={}, log_probabilities=likely)
