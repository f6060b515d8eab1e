"""Which tools a client is shown, and which it may use: one decision, the same on every path."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.filtering.active_rules import ActiveRules, RuleDependencies
from riglm.application.tool_lists.planning import Need
from riglm.application.tool_lists.selection import ListSelection, NullPrediction, UsageSource
from riglm.domain import session_state
from riglm.domain.access import AccessRules
from riglm.domain.exposure import Surface
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import SURE, UNSURE, Prices
from riglm.domain.policy import Override, ToolVisibility
from riglm.domain.prediction import ToolSearchResult
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_state import MAX_SESSIONS, ClientToolList, SessionState, SessionStates
from riglm.domain.tool import PermittedTools, ToolCatalog, named

if TYPE_CHECKING:
    from riglm.application.filtering.explanations import Explanation

MAX_FRESH_SECONDS: Final = 31_536_000.0
"""Seconds for which a list may be kept that riglm does not change."""

PROMISED_SECONDS: Final = 2.0
"""Seconds for which a warm set is promised: no longer than it takes until an override counts.

It is constant, because a remaining time would make each response different.
"""

_DIGITS: Final = 4
"""Digits of the relevance of search hits: those that differ by less are equally relevant."""

_NOT_RUN: Final = frozenset({ErrorKind.PROTOCOL, ErrorKind.UNAVAILABLE})
"""How calls end that ran no tool."""

_log: Final = logging.getLogger("riglm.filtering")


class FilteringService:
    """Decides what each list shows and each call may do; remembers for that how far each session has come."""

    def __init__(
        self,
        rules: FilteringSettings | None = None,
        predicting: NullPrediction | None = None,
        *,
        usage: UsageSource | None = None,
        prices: Prices | None = None,
        predictor: str = "",
        overrides: Callable[[], Sequence[Override]] = tuple,
        owner: Callable[[str], tuple[str, str]] = lambda name: ("", name),
        access: AccessRules | None = None,
        is_steered: bool = False,
        most_sessions: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without `predicting`, only policy decides. `predictor` is its name for the record.

        `usage` has the estimates that lists are made from. `overrides` returns all current overrides and does not
        block; `owner` returns a tool's server and its name there. `access` holds even if the rules are off. With
        `is_steered` the rules may change at any time.
        """
        self._surroundings = RuleDependencies(
            predicting=predicting,
            usage=usage,
            prices=prices or Prices(),
            overrides=overrides,
            owner=owner,
            access=access,
            clock=clock,
        )
        self._follow(ActiveRules(rules or FilteringSettings(), self._surroundings, predictor))
        self._is_steered = is_steered
        self._states = SessionStates(most_sessions)
        self._clock = clock
        self._last_catalog: ToolCatalog | None = None
        self._foreshadowed: Callable[[Session, ListSelection], None] = lambda _, __: None
        self._guarded = FailingOpen(_log, "filtering failed; all that is allowed is shown, and")
        self._at_calls = FailingOpen(_log, "filtering failed at a call; it goes through, and")

    def _follow(self, now: ActiveRules) -> None:
        """Go by other rules from now on."""
        self._now = now
        self.rules = now.rules
        """The rules in force."""
        self.prices = now.prices
        """The prices in force."""
        self.predicting = now.predicting
        """What predicts by the rules in force."""
        self.is_on = now.is_on
        """True if a list or a call may differ from that without riglm."""
        self.guards = now.guards
        """Whether there are tools that are denied."""

    @property
    def predicts(self) -> bool:
        """Whether lists go by what is likely to be used."""
        return self.rules.is_on and self.rules.strategy == "prediction"

    def prepared(self, rules: FilteringSettings, predictor: str, prices: Prices | None = None) -> Callable[[], None]:
        """Make ready for other rules and prices; what is given changes over to them at once.

        Sessions stay as they are, but for lists that other rules choose in another way.
        """
        if prices is not None:
            self._surroundings = replace(self._surroundings, prices=prices)
        made = self._now.followed_by(rules, self._surroundings, predictor)

        def change_over() -> None:
            if not made.plans_like(self._now):
                self.rechoose()
            self._follow(made)

        return change_over

    def rechoose(self) -> None:
        """Recompute each list at the next request; all other session state is kept."""
        self._states.rechoose()

    def surface(self, session: Session) -> Surface:
        """How a selection reaches the client of a session."""
        return self._rules_of(session).planner.surface(session)

    def announces(self, session: Session) -> bool:
        """Whether the lists of a session may change while its client is connected."""
        if self._is_steered:
            return self.is_on
        surface = self.surface(session)
        varies = surface is Surface.DYNAMIC or (session.era is ProtocolEra.MODERN and surface is not Surface.FULL)
        return varies and not self._rules_of(session).is_shadow

    def announces_to(self, era: ProtocolEra, transport: Transport, client: ClientInfo) -> bool:
        """Whether lists may change for a client that has no session yet."""
        method = IdentificationMethod.ADDRESS
        return self.announces(Session(started_at=0.0, era=era, transport=transport, method=method, client=client))

    def when_foreshadowed(self, listener: Callable[[Session, ListSelection], None]) -> None:
        """Register a callback for list changes that are not announced in shadow mode."""
        self._foreshadowed = listener

    def reconfigured(self, session: Session) -> bool:
        """Apply changed rules. Returns True if the session's list differs from the one that its client has."""
        state = self._states.known(session)
        if state is None or state.view is None or (state.shown is None and state.has is None):
            return False
        with self._guarded:
            view = self._rules_of(session).views.of(session, state.view.catalog)
            return self._list_of(session, state, view) != state.has
        return True

    def passed(self, session: Session, catalog: ToolCatalog, *, is_whole: bool) -> None:
        """A client got a list as the upstream gave it; the first tools of one that is not whole are not all it has."""
        state = self._states.of(session)
        state.view = self._rules_of(session).views.of(session, catalog)
        state.has = ClientToolList(catalog.names if is_whole else ())
        self._last_catalog = catalog

    def overridden(self, session: Session) -> bool:
        """Apply changed overrides. Returns True if the session's list differs from the one that its client has."""
        state = self._states.known(session)
        if state is None or state.view is None:
            return False
        now = self._rules_of(session)
        before, view = state.view, now.views.of(session, state.view.catalog)
        if (view.candidates, view.kept) == (before.candidates, before.kept):
            return False
        if now.is_shadow:
            return view.candidates != before.candidates
        with self._guarded:
            return now.planner.names(session, state, view) != state.shown
        return False

    def state(self, session: Session) -> SessionState:
        """How far a session has come."""
        return self._states.of(session)

    def forget(self, session: Session) -> None:
        """A session ended."""
        state = self._states.known(session)
        if state is not None:
            with self._guarded:
                self.predicting.ended(session, state)
        self._states.forget(session)

    def view(self, session: Session) -> PermittedTools | None:
        """Return the permitted tools of a session's last catalog, or of the last catalog at all; None before any."""
        known = self._states.of(session).view
        catalog = known.catalog if known is not None else self._last_catalog
        return None if catalog is None else self._rules_of(session).views.of(session, catalog)

    def denial(self, session: Session, name: str, owner: tuple[str, str] | None = None) -> str | None:
        """Return why a session may not call a tool, regardless of its list; None if it may.

        `owner` is the tool's server and its name there, if they are known for certain.
        """
        if self._rules_of(session).views.visibility(session, name, owner) is ToolVisibility.DENIED:
            return f"Unknown tool: {name}"
        return None

    def denies_by_name(self, name: str) -> bool:
        """True if the denylist contains a meta-tool; an allowlist need not contain it."""
        return self._now.views.denies_by_name(name)

    def listed(self, session: Session) -> frozenset[str]:
        """The names of the tools in the list that a session's client has."""
        state = self._states.of(session)
        names = state.listed_names(is_shadow=self._rules_of(session).is_shadow)
        if names is None:
            return frozenset()
        return state.view.candidate_set if state.view and names is state.view.candidates else frozenset(names)

    def offered(self, session: Session) -> tuple[str, ...]:
        """Return the names of the meta-tools that a session is offered; none if planning fails."""
        with self._guarded:
            return self._rules_of(session).planner.offered(session, self._states.of(session), self.view(session))
        return ()

    def answered(self, session: Session) -> tuple[str, ...]:
        """Return the names of the meta-tools that are answered in a session even if its list hides nothing."""
        return self._rules_of(session).planner.answered(session)

    def know(self, session: Session, catalog: ToolCatalog) -> PermittedTools:
        """Note the tools of a session, whether it gets a list of them now or not; return those it may use."""
        view = self._states.of(session).view = self._rules_of(session).views.of(session, catalog)
        self._last_catalog = catalog
        with self._guarded:
            self.predicting.know(catalog)
        return view

    def hides(self, session: Session) -> bool:
        """Return True if the session's next list hides tools, or marks some."""
        view, state = self.view(session), self._states.of(session)
        return view is not None and self._rules_of(session).planner.plan(session, state, view).tools is not None

    def fresh_seconds(self, session: Session) -> float:
        """Return for how many seconds a list that is composed now may be cached; the same for the same list."""
        surface = self.surface(session)
        if surface is Surface.FULL:
            is_overridden = self._rules_of(session).views.concerning(session)
            return PROMISED_SECONDS if is_overridden else MAX_FRESH_SECONDS
        return 0.0 if surface is Surface.DYNAMIC else min(PROMISED_SECONDS, self.rules.period)

    def needs_usage(self, session: Session) -> bool:
        """Return True if the session's next list depends on recorded use that has to be read first."""
        if self._rules_of(session).usage is None or self.surface(session) is Surface.FULL:
            return False
        return self._states.of(session).shown is None

    async def prepare(self, session: Session, catalog: ToolCatalog) -> None:
        """Read the recorded use that the session's list of a catalog is made from; to be awaited before `compose`."""
        usage = self._rules_of(session).usage
        if usage is not None and self.needs_usage(session):
            with self._guarded:
                await usage.refresh(session, catalog.names)

    def compose(self, session: Session, catalog: ToolCatalog) -> ListSelection:
        """Return the list of a session now; if planning fails, it holds all permitted tools."""
        state, view, now = self._states.of(session), self.know(session, catalog), self._rules_of(session)
        selection = None
        with self._guarded:
            selection = now.planner.compose(session, state, view)
        if selection is None:
            selection = now.planner.everything(session, view, "filtering failed")
        names = view.candidates if selection.surface == Surface.HINTS else selection.shown
        state.listed(names)
        names = view.candidates if now.is_shadow else names
        state.has = self._client_list(session, names, selection.meta_tools)
        return selection

    def discovery(self, session: Session, tool: str, *, known: bool) -> DiscoveryMethod:
        """Return how a client found the tool that it calls.

        The last list of the session counts; without one, `known` is True if the server listed the tool. A suggested
        tool counts as listed, because the client did not have to search for it.
        """
        is_listed, is_searched = known, False
        try:
            state = self._states.of(session)
            if state.shown is not None:
                is_shadow = state.has is None and self._rules_of(session).is_shadow
                is_listed = tool in (state.listed_names(is_shadow=is_shadow) or ())
            is_listed = is_listed or tool in state.suggested
            is_searched = tool in state.searched
        except Exception as error:  # noqa: BLE001  # fails open
            self._at_calls.report(error)
        if is_listed:
            return DiscoveryMethod.LISTED
        return DiscoveryMethod.SEARCHED if is_searched else DiscoveryMethod.NAMED

    def called(
        self, session: Session, tool: str, found: DiscoveryMethod, meta: Raw | bytes = b"", *, success: bool = True
    ) -> None:
        """Note a call that ran, and learn from it if it succeeded; `meta` is its raw `_meta`."""
        try:
            state, now = self._states.of(session), self._clock()
            key = session_state.turn_key(meta, self.rules.turn_keys) if meta else ""
            if session_state.begins_turn(state, key, now, self.rules.turn_pause):
                session_state.begin_turn(state)
            state.turn_key = key or state.turn_key
            view = state.view or self.view(session)
            if view is None or not view.allows(tool):
                return
            try:
                if success:
                    self.predicting.called(session, state, tool, found)
            finally:
                state.called(tool, now, success=success)
        except Exception as error:  # noqa: BLE001  # fails open
            self._at_calls.report(error)

    async def set_context(self, session: Session, text: str) -> bool:
        """Set what a session is about; return True if its list differs now and the change must be announced."""
        state = self._states.of(session)
        before = state.context
        await self.predicting.set_context(session, state, text)
        state.last_at = self._clock()
        if state.context is None:
            return False
        is_new = before is None or before.text != state.context.text
        if is_new:
            session_state.begin_turn(state)
        view = self.view(session)
        if view is None or self.surface(session) is not Surface.DYNAMIC:
            return False
        confidence = self.predicting.context_confidence(session, state)
        changed = False
        if is_new or state.plan is None or _band(confidence) != _band(state.plan.confidence):
            changed = self._replan(session, state, view, confidence)
        return self._announced(session, state, view, changed=changed)

    def follow_calls(self, session: Session) -> None:
        """Plan again by what a session used, where `coverage` asks for lists of a size.

        While a context is set, the tools used since are listed in addition.
        """
        state, view = self._states.of(session), self.view(session)
        if self.rules.coverage is None or not state.calls or view is None:
            return
        if state.context is None:
            self._replan(session, state, view, 0.0)
        else:
            with self._guarded:
                self._rules_of(session).planner.add_used(session, state, view)

    async def add_matches(self, session: Session) -> None:
        """List what matches the context of a session in addition, where it is too new to choose a list by."""
        state, view = self._states.of(session), self.view(session)
        if view is None or state.context is None or self.rules.coverage is None:
            return
        if self.predicting.context_confidence(session, state) < UNSURE:
            with self._guarded:
                allowed, limit = view.candidate_set.__contains__, self.rules.answer_tools
                found = await self.search(session, state.context.text, limit, allowed)
                matches = [] if found.abstained else [hit.name for hit in found.hits]
                self._rules_of(session).planner.add_matches(session, state, view, matches)

    def _replan(self, session: Session, state: SessionState, view: PermittedTools, confidence: float) -> bool:
        planner = self._rules_of(session).planner
        with self._guarded:
            return planner.replan(session, state, view, self.need(session), confidence)
        return False

    def need(self, session: Session, found: str = "") -> Need:
        """Return what the rest of a session is expected to need, after a call of the tool `found` if one is named."""
        state, view = self._states.of(session), self.view(session)
        if view is None:
            return Need({}, "")
        past = replace(state, calls=[*state.calls, found]) if found else state
        prediction = self.predicting.predict(session, past, view.candidates)
        return self._rules_of(session).planner.need(session, view, prediction, frozenset(past.calls))

    async def search(
        self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]
    ) -> ToolSearchResult:
        """Return the tools that fit a query, among those that are allowed; of equal ones the likeliest comes first."""
        found = await self.predicting.search(session, query, limit, allowed)
        alike = [list(some) for _, some in groupby(found.hits, lambda hit: round(hit.score, _DIGITS))]
        if len(alike) < len(found.hits):
            with self._guarded:
                likely = self.need(session).probabilities
                hits = (hit for some in alike for hit in sorted(some, key=lambda hit: -likely.get(hit.name, 0.0)))
                return ToolSearchResult(hits=tuple(hits), near=found.near, abstained=found.abstained)
        return found

    def follow_up(self, session: Session, found: str = "") -> dict[str, float]:
        """Return the probability of the tools that a session has not used, after a call of the tool `found`."""
        used = {*self._states.of(session).calls, found}
        return {name: share for name, share in self.need(session, found).probabilities.items() if name not in used}

    def sendable(self, session: Session, probabilities: Mapping[str, float]) -> list[str]:
        """Return the tools whose definition pays in a result now, the likeliest first."""
        view, state = self.view(session), self._states.of(session)
        if view is None:
            return []
        planner = self._rules_of(session).planner
        usage, limit = planner.usage(session, view), self.rules.answer_tools
        return planner.costs(view).sendable(probabilities, usage, state.made, limit)

    def explain(self, session: Session, past: SessionState | None = None, tools: Sequence[str] = ()) -> "Explanation":
        """Take a session's next list apart; asking changes nothing.

        `past` is the stored state of a session that is not active here. Then `tools` are the tools that it was given.
        """
        from riglm.application.filtering.explanations import Explanation  # noqa: PLC0415  # nothing of it is needed for a list

        state = past or self._states.known(session) or SessionState()
        catalog = state.view.catalog if state.view is not None else self._last_catalog or ToolCatalog()
        if past is not None:
            catalog = named(tools, catalog)
        owner, now = self._surroundings.owner, self._clock()
        return Explanation(self._rules_of(session), session, state, catalog, owner, at=now, live=past is None)

    def _rules_of(self, session: Session) -> ActiveRules:
        """Return the rules of a session's profile: those in force, with other lists of tools to deny and to pin."""
        profiles = self._now.by_profile
        return profiles.get(session.profile, self._now) if profiles else self._now

    def _list_of(self, session: Session, state: SessionState, view: PermittedTools) -> ClientToolList:
        """The list that a session would be given now; nothing changes by asking."""
        now = self._rules_of(session)
        if not now.is_on:
            return ClientToolList(view.catalog.names)
        names = view.candidates if now.is_shadow else now.planner.names(session, state, view)
        return self._client_list(session, names, self.offered(session))

    def _client_list(self, session: Session, names: tuple[str, ...], meta_tools: tuple[str, ...]) -> ClientToolList:
        is_marked = self.surface(session) is Surface.HINTS and not self._rules_of(session).is_shadow
        return ClientToolList(names, meta_tools, session.profile if is_marked else "")

    def _announced(self, session: Session, state: SessionState, view: PermittedTools, *, changed: bool) -> bool:
        """Whether a changed list is announced; a shadow's is noted as if it had been, and had been asked for."""
        now = self._rules_of(session)
        if changed and now.is_shadow:
            with self._guarded:
                selection = now.planner.compose(session, state, view)
                state.listed(selection.shown)
                self._foreshadowed(session, selection)
        return changed and not now.is_shadow


def _band(confidence: float) -> int:
    """Return the confidence band: below 0.3, up to 0.7, above."""
    return (confidence >= UNSURE) + (confidence > SURE)
