"""The list that follows a session: one choice for each context, to which only additions are made."""

from dataclasses import replace
from typing import Final

from riglm.application.lists.meta_tool_definitions import NAMES
from riglm.application.lists.predicting import Predicting
from riglm.domain import turns
from riglm.domain.prediction import Prediction
from riglm.domain.ranking import SURE, UNSURE, Choice, ranked, selected
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tokens import is_worth_changing
from riglm.domain.view import View

_RESERVED: Final = frozenset(NAMES)
_NOTHING_KNOWN: Final = "nothing is known of the session yet"


class DynamicList:
    """Chooses, and weighs what a changed list saves against what it costs in the client's prompt cache."""

    def __init__(self, rules: Filtering, predicting: Predicting, predictor: str) -> None:
        """`predictor` is the name of the strategy, for the record."""
        self._rules = rules
        self._predicting = predicting
        self._predictor = predictor

    def choice(self, session: Session, state: SessionState, view: View) -> Choice:
        """What a list holds now: as chosen for the context, with what the catalogue has gained since."""
        self.context_embedded(session, state, view)
        choice = state.choice
        if choice is None:
            choice = self._chosen(session, state, view)
        elif choice.candidates is not view.candidates and choice.candidates != view.candidates:
            choice = self._carried_over(choice, session, state, view)
        state.choice = choice
        return choice

    def new_context(self, session: Session, state: SessionState, view: View) -> bool:
        """Choose for a new context; whether the list is another one now than the client has."""
        old, before = state.choice, state.shown
        new = self._chosen(session, state, view)
        if old is None or before is None:
            state.choice = new
            return new.tools is not None
        had, target = frozenset(before) - _RESERVED, new.chosen - _RESERVED
        if target == had:
            state.choice = replace(new, search_first=old.search_first)
            return False
        if target < had and not self._is_worth(view, had, target):
            kept = None if had == view.candidate_set - _RESERVED else had
            reason = "a shorter list would cost more than it saves"
            state.choice = replace(new, tools=kept, search_first=old.search_first, reason=reason)
            return False
        state.choice = replace(new, settled=True)
        return True

    def context_embedded(self, session: Session, state: SessionState, view: View) -> bool:
        """Choose anew if the context has its vector only now, and nothing was changed for it; whether this does."""
        choice, context = state.choice, state.context
        if choice is None or choice.settled or context is None or context.vector is None:
            return False
        return self.new_context(session, state, view)

    def new_turn(self, session: Session, state: SessionState, view: View) -> bool:
        """Without a context, choose by what was used, once; whether the list is another one now."""
        whole = state.choice
        if state.context is not None or whole is None or whole.tools is not None:
            return False
        new = self._chosen(session, state, view)
        if new.tools is None or not self._is_worth(view, whole.chosen, new.tools):
            return False
        state.choice = new
        return True

    def used(self, state: SessionState, tool: str) -> None:
        """A tool was called: the next list of this context has it."""
        choice = state.choice
        if choice is not None and choice.tools is not None and tool in choice.candidates:
            state.choice = replace(choice, tools=choice.tools | {tool})

    def best(self, session: Session, state: SessionState, view: View, most: int) -> list[str]:
        """The tools for now, best first; none while there is nothing to go by."""
        prediction = self._predicting.predict(session, state, view.candidates)
        return [] if prediction is None else ranked(view.candidates, prediction.scores, most)

    def chosen_by(self, session: Session, state: SessionState, view: View, prediction: Prediction | None) -> Choice:
        """What a list holds that is chosen by a prediction now, whatever was chosen before."""
        if state.context is None and not state.calls:
            return self._cold(view, state, prediction, _NOTHING_KNOWN, first=self._warm(session, view))
        if prediction is None:
            return self._cold(view, state, None, "nothing was learned yet")
        confidence = prediction.confidence
        if state.context is not None:
            confidence = self._predicting.context_confidence(session, state)
        if not confidence >= UNSURE:
            return self._cold(view, state, prediction, "too little is known of the context", confidence)
        size = max(self._rules.min_tools, min(self._predicting.size(session, prediction), self._rules.max_tools))
        by = "the context" if state.context is not None else "what was used"
        chosen = self._limited(view, state, prediction, size)
        return replace(
            chosen,
            search_first=confidence <= SURE and chosen.tools is not None,
            confidence=confidence,
            predictor=self._predictor,
            reason=f"predicted by {by}",
        )

    def _chosen(self, session: Session, state: SessionState, view: View) -> Choice:
        prediction = None
        if state.context is not None or state.calls or self._rules.cold_start_limit is not None:
            prediction = self._predicting.predict(session, state, view.candidates)
        return self.chosen_by(session, state, view, prediction)

    def _warm(self, session: Session, view: View) -> frozenset[str]:
        """What a list begins with that is limited though nothing is known: the same in every process at once."""
        limit = self._rules.cold_start_limit
        if limit is None:
            return frozenset()
        return frozenset((self._predicting.warm_set(session, view.candidates, self._rules.profile) or ())[:limit])

    def _cold(
        self,
        view: View,
        state: SessionState,
        prediction: Prediction | None,
        reason: str,
        confidence: float = 0.0,
        first: frozenset[str] = frozenset(),
    ) -> Choice:
        limit = self._rules.cold_start_limit
        whole = Choice(candidates=view.candidates)
        if limit is not None and limit < len(view.candidates):
            whole = self._limited(view, state, prediction, limit, first)
        return replace(
            whole,
            search_first=whole.tools is not None,
            settled=state.context is None or state.context.vector is not None,
            confidence=confidence,
            reason=reason,
        )

    def _limited(
        self,
        view: View,
        state: SessionState,
        prediction: Prediction | None,
        size: int,
        first: frozenset[str] = frozenset(),
    ) -> Choice:
        """The best tools by prediction, else the first ones; with those that always stay, and those that come first."""
        kept = view.kept | first | (turns.used_lately(state, self._rules.retained_turns) & view.candidate_set)
        scores = [0.0] * len(view.candidates) if prediction is None else prediction.scores
        tools = selected(view.candidates, scores, kept, size)
        return Choice(candidates=view.candidates, tools=None if tools == view.candidate_set else tools)

    def _carried_over(self, choice: Choice, session: Session, state: SessionState, view: View) -> Choice:
        """The choice in a catalogue that changed: a few new tools are shown, of many only those that are predicted."""
        if choice.tools is None:
            return replace(choice, candidates=view.candidates)
        added = view.candidate_set.difference(choice.candidates)
        if len(added) > self._rules.max_tools:
            added &= self._chosen(session, state, view).chosen
        return replace(choice, candidates=view.candidates, tools=choice.tools | added)

    def _is_worth(self, view: View, before: frozenset[str], after: frozenset[str]) -> bool:
        return is_worth_changing(view.tokens_of(before), view.tokens_of(after), self._rules.expected_requests)
