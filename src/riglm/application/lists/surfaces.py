"""What a view of a catalogue becomes on each surface."""

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from riglm.application.lists.dynamic import DynamicList
from riglm.application.lists.meta_tool_definitions import NAMES
from riglm.application.lists.predicting import Predicting
from riglm.application.lists.shown import Selection, ShownList
from riglm.application.lists.unpredicted import Unpredicted
from riglm.application.lists.writing import ListWriter, own_entries
from riglm.domain.exposure import NOTHING_TO_SAVE
from riglm.domain.ranking import Choice
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.surface import Surface, surface_for
from riglm.domain.tokens import estimated_tokens
from riglm.domain.view import View

_MOST_CLIENTS: Final = 1_000
_log: Final = logging.getLogger("riglm.filtering")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a list is made from: what may be seen, what was chosen of it, and the names shown, in their order.

    When it `passes`, there is nothing to choose.
    """

    view: View
    choice: Choice
    names: tuple[str, ...]
    passes: bool = False


class Surfaces:
    """Composes lists where there is prediction."""

    def __init__(self, rules: Filtering, predicting: Predicting, dynamic: DynamicList, predictor: str) -> None:
        """`predictor` is the name of the strategy, for the record."""
        self._rules = rules
        self._predicting = predicting
        self._dynamic = dynamic
        self._predictor = predictor
        self._writer = ListWriter()
        self._own = _own(rules)
        self._own_tokens = own_tokens(rules)
        by_client = {pattern: Surface(name) for pattern, name in rules.clients.items()}
        self._by_client = lru_cache(_MOST_CLIENTS)(lambda name, era: surface_for(name, era, by_client))
        self._predicts = not isinstance(predicting, Unpredicted)
        self._told: set[str] = set()

    def of(self, session: Session) -> Surface:
        """How a selection reaches the client of a session."""
        if not self._predicts:
            return Surface.FULL
        if self._rules.surface != "auto":
            return Surface(self._rules.surface)
        return self._by_client(session.client.name, session.era)

    def passes(self, view: View) -> bool:
        """Whether there is nothing to save: the catalogue is small, or all of it is always shown."""
        bounds = self._rules.passthrough_below
        small = len(view.candidates) <= bounds.tools and view.tokens <= bounds.tokens
        return small or view.kept == view.candidate_set

    def chooses(self, session: Session, view: View) -> bool:
        """Whether the lists of a session differ from the upstream's; marks do, however few tools there are."""
        match self.of(session):
            case Surface.FULL:
                return False
            case Surface.HINTS:
                return True
            case _:
                return not self.passes(view)

    def predicts(self, session: Session, view: View) -> bool:
        """Whether it takes a model to choose; what is small is marked by use alone."""
        return self.of(session) is not Surface.FULL and not self.passes(view)

    def offered(self, session: Session, view: View | None) -> tuple[str, ...]:
        """The names of riglm's own tools that a session is offered beside what it may see."""
        if self._rules.mode == "shadow" or self.of(session) not in (Surface.DYNAMIC, Surface.STABLE):
            return ()
        return () if view is not None and self.passes(view) else self._own

    def compose(self, session: Session, state: SessionState, view: View, common: View) -> ShownList:
        """The list of a session; `common` is what all sessions of its principal may see: what is learned goes by it."""
        found = self.outlook(session, state, view, common)
        if found.passes:
            return self.everything(session, found.view, found.choice.reason)
        if self.of(session) is Surface.HINTS:
            return self._with_hints(session, found.view, found.choice)
        return self._limited(session, found)

    def outlook(self, session: Session, state: SessionState, view: View, common: View) -> Outlook:
        """What a list of a session is made from now; the state takes note of a choice that is made for it."""
        surface = self.of(session)
        if surface is not Surface.HINTS and self.passes(view):
            return _whole(view, NOTHING_TO_SAVE)
        match surface:
            case Surface.FULL:
                return _whole(view, "the surface is full")
            case Surface.HINTS:
                return Outlook(view, self._warm(session, view, common), view.candidates)
            case Surface.STABLE:
                choice = self._warm(session, view, common, least=self._rules.min_tools)
            case Surface.DYNAMIC:
                choice = self._dynamic.choice(session, state, view)
        return Outlook(view, choice, _in_order(view, self._chosen(session, view, choice)))

    def names(self, session: Session, state: SessionState, view: View, common: View) -> tuple[str, ...]:
        """The names that `compose` would show now; nothing is written, and nothing changes."""
        return self.outlook(session, replace(state), view, common).names

    def everything(self, session: Session, view: View, reason: str) -> ShownList:
        """All that policy leaves."""
        choice = Choice(candidates=view.candidates, reason=reason)
        return self._as_it_is(view, self._selection(session, view, view.candidates, choice))

    def _as_it_is(self, view: View, selection: Selection) -> ShownList:
        """All that policy leaves, without any tool or mark of riglm's."""
        if view.is_whole:
            return ShownList(self._writer.whole(view.catalogue), selection, untouched=True)
        return ShownList(self._writer.some(view.catalogue, view.candidate_set), selection)

    def _with_hints(self, session: Session, view: View, choice: Choice) -> ShownList:
        selection = self._selection(session, view, view.candidates, choice)
        if self._rules.mode == "shadow":
            return self._as_it_is(view, selection)
        warm = (
            choice.tools or frozenset()
        )  # not untouched even then: other principals have marks, so no cache may share it
        return ShownList(self._writer.marked(view.catalogue, view.candidate_set, warm), selection)

    def _warm(self, session: Session, view: View, common: View, least: int = 0) -> Choice:
        """The learned tools of this epoch, filled up to `least`; all while nothing was learned.

        The same for all sessions of a principal, but for what people decided about this one.
        """
        names = view.candidates
        learned = self._predicting.warm_set(session, common.candidates, self._rules.profile)
        if not learned:
            return Choice(candidates=names, reason="nothing was learned yet")
        warm = [name for name in learned if name in view.candidate_set]
        filling = [name for name in names if name not in warm][: max(0, least - len(warm))]
        tools = view.kept.union(warm, filling)
        reason = "the warm set of this epoch"
        return Choice(candidates=names, tools=tools, search_first=True, predictor=self._predictor, reason=reason)

    def _limited(self, session: Session, found: Outlook) -> ShownList:
        """A list of what was chosen, beside riglm's own tools."""
        own = self.offered(session, found.view)
        own_tokens = self._own_tokens if own else 0
        selection = self._selection(session, found.view, found.names, found.choice, own_tokens=own_tokens)
        if self._rules.mode == "shadow":
            return self._as_it_is(found.view, selection)
        names, search_first = frozenset(found.names), found.choice.search_first
        return ShownList(self._writer.some(found.view.catalogue, names, own, search_first=search_first), selection)

    def _chosen(self, session: Session, view: View, choice: Choice) -> frozenset[str]:
        names = (choice.chosen | view.kept) & view.candidate_set
        return self._without_reserved(names) if self.offered(session, view) else names

    def _without_reserved(self, names: frozenset[str]) -> frozenset[str]:
        """Names without those of riglm's own tools: an upstream's tool of such a name is reached by `call_tool`."""
        reserved = names.intersection(self._own)
        for name in sorted(reserved - self._told):
            self._told.add(name)
            _log.warning("an upstream's tool has the name of one of riglm's: it is reached by call_tool: %s", name)
        return names - reserved

    def _selection(
        self, session: Session, view: View, shown: tuple[str, ...], choice: Choice, own_tokens: int = 0
    ) -> Selection:
        there = frozenset(shown)
        visible = view.tokens_of(there)
        return Selection(
            shown=shown,
            hidden=tuple(name for name in view.catalogue.names if name not in there and view.allows(name)),
            predictor=choice.predictor,
            reason=choice.reason,
            mode=self._rules.mode,
            surface=self.of(session),
            tokens_shown=visible + own_tokens,
            tokens_hidden=max(0, view.tokens - visible),
            tokens_own=own_tokens,
        )


def own_tokens(rules: Filtering) -> int:
    """The estimated tokens of riglm's own tools, where they are offered beside a list."""
    return estimated_tokens(sum(map(len, own_entries(_own(rules), search_first=False)[1])))


def _own(rules: Filtering) -> tuple[str, ...]:
    return tuple(name for name in NAMES if getattr(rules.meta_tools, name))


def _whole(view: View, reason: str) -> Outlook:
    return Outlook(view, Choice(candidates=view.candidates, reason=reason), view.candidates, passes=True)


def _in_order(view: View, names: frozenset[str]) -> tuple[str, ...]:
    if names == view.candidate_set:
        return view.candidates
    return tuple(name for name in view.candidates if name in names)
