"""Which tools a session's list holds, decided once, and how it is composed for the session's surface."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

from riglm.application.tool_lists.list_writer import (
    INDEX_TOKENS,
    NAMES,
    SEARCH,
    SET_CONTEXT,
    OwnerOf,
    definitions,
    hidden_index,
    marked_entries,
    some_entries,
)
from riglm.application.tool_lists.selection import ListSelection, UsageSource
from riglm.domain.client_support import NO_TOOL_SEARCH, ChosenSurface, choose_surface, most_tools_of
from riglm.domain.everyday import everyday_weights
from riglm.domain.exposure import NOTHING_HIDDEN, Surface
from riglm.domain.learning import Usage, WarmSet
from riglm.domain.list_plan import (
    ALIKE,
    COLD_USAGE,
    META_TOOL_TOKENS,
    SURE,
    UNSURE,
    ListPlan,
    Prices,
    ToolCosts,
    blended,
    covering_list,
    expected_usage,
    extend_list,
    prior_probabilities,
)
from riglm.domain.prediction import Prediction
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra, Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import BYTES_PER_TOKEN, PermittedTools, estimated_tokens, profile

_MAX_PLANS: Final = 64
_MAX_SELECTIONS: Final = 32
_WITH_META_TOOLS: Final = (Surface.DYNAMIC, Surface.STABLE)
_NOT_PREDICTED: Final = ChosenSurface(Surface.FULL, "lists are not predicted")


class Need(NamedTuple):
    """The probability of each permitted tool that the rest of a session needs it.

    `predictor` is the name of the strategy that decided, empty if the prior alone did.
    """

    probabilities: Mapping[str, float]
    predictor: str


@lru_cache(_MAX_PLANS)
def _get_prior(view: PermittedTools) -> Mapping[str, float]:
    """Return the probability of each permitted tool while nothing was learned."""
    described = [(name, profile(view.catalog.by_name[name]).description) for name in view.candidates]
    return prior_probabilities(everyday_weights(described))


class ListPlanner:
    """Plans lists where prediction is on."""

    def __init__(
        self, rules: FilteringSettings, prices: Prices, source: UsageSource | None, owner: OwnerOf, predictor: str
    ) -> None:
        """`source` has what was learned for sessions; None if lists are not predicted.

        `predictor` is the name of the strategy, for the record.
        """
        self._rules = rules
        self._prices = prices
        self._source = source
        self._owner = owner
        self._predictor = predictor
        self._meta_tools = tuple(name for name in NAMES if getattr(rules.meta_tools, name))
        self._pinned = tuple(name for name in self._meta_tools if name in rules.pinned)
        self._expect = lru_cache(_MAX_PLANS)(self._estimate)
        self._plan_first = lru_cache(_MAX_PLANS)(self._first_plan)
        self._select = lru_cache(_MAX_SELECTIONS)(self._selection)

    def surface(self, session: Session) -> Surface:
        """Return how a selection reaches the client of a session."""
        return self.chosen_surface(session).surface

    def chosen_surface(self, session: Session) -> ChosenSurface:
        """Return how a selection reaches the client of a session, and why."""
        if self._source is None:
            return _NOT_PREDICTED
        rules, no_search = self._rules, session.metadata.get(NO_TOOL_SEARCH, "")
        return choose_surface(session.client.name, session.era, rules.clients, no_search, rules.surface)

    def costs(self, view: PermittedTools) -> ToolCosts:
        """Return what each permitted tool costs."""
        return ToolCosts(tokens=view.sizes, prices=self._prices)

    def usage(self, session: Session, view: PermittedTools) -> Usage:
        """Return what a session is expected to need that has called nothing: by the prior and what was learned."""
        return self._expect(view, self._learned(session))

    def need(
        self, session: Session, view: PermittedTools, prediction: Prediction | None, used: Collection[str]
    ) -> Need:
        """Return what the rest of a session is expected to need by a prediction, None if nothing is known.

        If all tools that it has not `used` are equally likely, the prior decides on them.
        """
        if prediction is None:
            return Need(self.usage(session, view).probabilities, "")
        recorded, prior = dict(zip(view.candidates, prediction.scores.tolist(), strict=True)), _get_prior(view)
        new = {name: score for name, score in recorded.items() if name not in used}
        is_alike = bool(new) and max(new.values()) - min(new.values()) <= ALIKE * max(new.values())
        if is_alike:
            recorded |= {name: prior[name] for name in new}
        return Need(
            blended(recorded, prior, prediction.evidence), "" if is_alike else prediction.fallback or self._predictor
        )

    def plan(self, session: Session, state: SessionState, view: PermittedTools) -> ListPlan:
        """Return the plan of a session's next list, which the session keeps.

        In the modern era, where lists must not vary per connection, a new warm set counts for all sessions at once.
        """
        if session.era is ProtocolEra.MODERN and self.surface(session) is not Surface.DYNAMIC:
            return self.base_plan(session, view)
        plan = state.plan
        if plan is None:
            plan = self.base_plan(session, view)
        elif plan.candidates is not view.candidates and plan.candidates != view.candidates:
            plan = self._carried_over(plan, session, view)
        if not view.catalog.missing:
            state.plan = plan
        return plan

    def base_plan(self, session: Session, view: PermittedTools) -> ListPlan:
        """Return the plan of a session of which nothing is known yet: the same for all sessions of its warm set."""
        limit = most_tools_of(session.client.name)
        return self._plan_first(view, self._learned(session), self.surface(session), limit)

    def replan(
        self, session: Session, state: SessionState, view: PermittedTools, need: Need, confidence: float
    ) -> bool:
        """Plan by the context or the calls of a session; return True if its list differs from the client's.

        The list changes only if that pays, or to hold the share `coverage` of the need.
        """
        current, target = self.plan(session, state, view), self._needed_plan(session, state, view, need, confidence)
        if state.shown is None:
            state.plan = target
            return False
        is_change = target.listed != current.listed
        if is_change and self._rules.coverage is None:
            missed = sum(need.probabilities.get(name, 0.0) for name in current.listed - target.listed)
            requests, calls = self.usage(session, view).requests, len(state.calls)
            is_change = self.costs(view).change_pays(current.listed, target.listed, state.sent, missed, calls, requests)
        state.plan = target if is_change else replace(current, confidence=confidence)
        return is_change

    def add_matches(self, session: Session, state: SessionState, view: PermittedTools, matches: Sequence[str]) -> None:
        """Plan the learned list of a session with up to half of its places for matches of the context, best first."""
        base, limit = self.base_plan(session, view), self._rules.max_tools
        if base.tools is None or self._learned(session) is None:
            return
        probabilities = self.usage(session, view).probabilities
        likeliest = sorted(base.tools, key=lambda name: (-probabilities.get(name, 0.0), name))
        added = [name for name in matches if name not in base.tools][: limit // 2]
        tools = self._retained(state, view).union(added, likeliest[: limit - len(added)])
        state.plan = replace(self.plan(session, state, view), tools=tools)

    def add_used(self, session: Session, state: SessionState, view: PermittedTools) -> None:
        """Add the tools of the last turns to the plan of a session."""
        plan = self.plan(session, state, view)
        if plan.tools is not None:
            state.plan = replace(plan, tools=plan.tools | self._retained(state, view))

    def offered(self, session: Session, state: SessionState, view: PermittedTools | None) -> tuple[str, ...]:
        """Return the names of the meta-tools that a session can call: all if its list hides something.

        All of them are listed, but for set_context where it does not pay.
        """
        answered = self.answered(session)
        if not answered or view is None:
            return answered
        return self._offered(self.surface(session), view, self.plan(session, state, view))

    def answered(self, session: Session) -> tuple[str, ...]:
        """Return the names of the meta-tools that a session can call where no upstream tool has the name."""
        if self._rules.mode == "shadow" or self.surface(session) not in _WITH_META_TOOLS:
            return ()
        return self._meta_tools

    def names(self, session: Session, state: SessionState, view: PermittedTools) -> tuple[str, ...]:
        """Return the names that a list would have now, without changing the session."""
        selection = self.compose(session, replace(state), view)
        return view.candidates if selection.surface == Surface.HINTS else selection.shown

    def compose(self, session: Session, state: SessionState, view: PermittedTools) -> ListSelection:
        """Return the list of a session, the same object for the same plan, surface and era."""
        return self._select(view, self.plan(session, state, view), self.chosen_surface(session), session.era)

    def everything(self, session: Session, view: PermittedTools, reason: str) -> ListSelection:
        """Return a list of all permitted tools."""
        plan = ListPlan(candidates=view.candidates, reason=reason)
        return self._select(view, plan, self.chosen_surface(session), session.era)

    def _learned(self, session: Session) -> WarmSet | None:
        return None if self._source is None else self._source.warm_set(session)

    def _estimate(self, view: PermittedTools, learned: WarmSet | None) -> Usage:
        return expected_usage(COLD_USAGE if learned is None else learned.usage, _get_prior(view))

    def _retained(self, state: SessionState, view: PermittedTools) -> frozenset[str]:
        """Return the pinned tools and those of the last turns."""
        return view.kept | (view.candidate_set & state.used_lately(self._rules.retained_turns))

    def _first_plan(
        self, view: PermittedTools, learned: WarmSet | None, surface: Surface, limit: int | None
    ) -> ListPlan:
        """Return the plan of a list for a client that takes at most `limit` tools."""
        if surface is Surface.FULL:
            return ListPlan(candidates=view.candidates, reason="the surface is full")
        rules, costs, usage, is_cold = self._rules, self.costs(view), self._expect(view, learned), learned is None
        order = self._order(view, usage.probabilities)
        if surface is Surface.HINTS:
            paying = costs.paying(usage.probabilities, usage.requests, has_host_search=True)
            tools = view.kept.union(paying[: rules.max_tools])
        else:
            if rules.coverage is not None:
                bounds = self._bounds(is_cold=is_cold)
                tools = covering_list(usage.probabilities, view.kept, order, bounds, rules.coverage)
            else:
                names = sum(len(name) / BYTES_PER_TOKEN + 1 for name in view.candidates)
                own_tokens = META_TOOL_TOKENS + min(rules.index_tokens, INDEX_TOKENS, names)
                tools = costs.cheapest_list(usage, view.kept, order, self._bounds(is_cold=is_cold), own_tokens)
            tools = self._cut(limit, view, tools, order)
            if tools == view.candidate_set:
                return ListPlan(candidates=view.candidates, reason=NOTHING_HIDDEN)
        return ListPlan(
            candidates=view.candidates,
            tools=tools,
            search_first=True,
            lists_context=rules.coverage is not None or SET_CONTEXT in self._pinned or costs.context_pays(tools, usage),
            predictor=learned.predictor if learned is not None and learned.usage.probabilities else "",
            reason="nothing was learned yet" if is_cold else "recorded use",
        )

    def _needed_plan(
        self, session: Session, state: SessionState, view: PermittedTools, need: Need, confidence: float
    ) -> ListPlan:
        """Return the plan of a list by a need.

        A context of low confidence does not narrow a list; with `coverage` it leaves a learned list as it is.
        """
        rules, base, is_cold = self._rules, self.base_plan(session, view), self._learned(session) is None
        if state.context is not None and not confidence >= UNSURE and not (rules.coverage is not None and is_cold):
            plan = base if rules.coverage is None else self.plan(session, state, view)
            return replace(plan, confidence=confidence)
        shares, retained = need.probabilities, self._retained(state, view)
        if rules.coverage is not None:
            order: Sequence[str] = self._order(view, shares)
            tools = covering_list(shares, view.kept, order, self._bounds(is_cold=is_cold), rules.coverage) | retained
        else:
            listed = base.listed
            order = sorted(view.candidates, key=lambda name: (name not in listed, -shares.get(name, 0.0)))
            fresh = {name: share for name, share in shares.items() if name not in retained}
            paying = self.costs(view).paying(fresh, self.usage(session, view).requests)[: rules.max_tools]
            tools = extend_list(retained.union(paying), order, lambda some, _: len(some - retained) < rules.min_tools)
        order = sorted(order, key=lambda name: (name not in retained, -shares.get(name, 0.0)))
        tools = self._cut(most_tools_of(session.client.name), view, tools, order)
        return replace(
            base,
            tools=None if tools == view.candidate_set else tools,
            search_first=confidence <= SURE,
            confidence=confidence,
            predictor=need.predictor,
            reason=f"predicted by {'what was used' if state.context is None else 'the context'}",
        )

    def _bounds(self, *, is_cold: bool) -> tuple[int, int]:
        """Return the least and the largest number of tools in a list that hides some."""
        rules = self._rules
        most = max(rules.min_tools, min(rules.max_tools, rules.cold_start_limit) if is_cold else rules.max_tools)
        return most if is_cold and rules.coverage is not None else rules.min_tools, most

    def _order(self, view: PermittedTools, shares: Mapping[str, float]) -> Sequence[str]:
        """Return all candidates: the likeliest first, of equal ones everyday utilities, then of each server in turn."""
        turns: defaultdict[str, Iterator[int]] = defaultdict(count)
        turn = {name: next(turns[self._owner(name)[0]]) for name in view.candidates}
        prior = _get_prior(view)
        return sorted(view.candidates, key=lambda name: (-shares.get(name, 0.0), -prior[name], turn[name]))

    def _cut(
        self, limit: int | None, view: PermittedTools, tools: frozenset[str], order: Sequence[str]
    ) -> frozenset[str]:
        """Return the same tools, or the pinned ones and the first of the order that make `limit` with the meta-tools.

        Without meta-tools nothing is left out, as nothing else could be reached.
        """
        own = len(self._pinned if tools == view.candidate_set else self._meta_tools)
        if limit is None or not self._meta_tools or own + len(tools) <= limit:
            return tools
        room = limit - len(self._meta_tools)
        return extend_list(view.kept, (name for name in order if name in tools), lambda some, _: len(some) < room)

    def _carried_over(self, plan: ListPlan, session: Session, view: PermittedTools) -> ListPlan:
        """Return the plan for a catalog that has changed: a few new tools are listed, of many those that pay."""
        base, added = self.base_plan(session, view), view.candidate_set.difference(plan.candidates)
        if len(added) > self._rules.max_tools:
            added &= base.listed
        tools = (plan.listed | added) & view.candidate_set
        if plan.tools is None or self._cut(most_tools_of(session.client.name), view, tools, ()) != tools:
            return base
        return replace(plan, candidates=view.candidates, tools=tools)

    def _offered(self, surface: Surface, view: PermittedTools, plan: ListPlan) -> tuple[str, ...]:
        """Return the meta-tools that go with a list: all if it hides tools, else those that are pinned or needed."""
        if surface not in _WITH_META_TOOLS:
            return ()
        if plan.tools is not None and plan.tools != view.candidate_set:
            return self._meta_tools
        is_partial = bool(view.catalog.missing)
        return tuple(name for name in self._meta_tools if name in self._pinned or (is_partial and name == SEARCH))

    def _selection(
        self, view: PermittedTools, plan: ListPlan, chosen: ChosenSurface, era: ProtocolEra
    ) -> ListSelection:
        surface, is_shadow = chosen.surface, self._rules.mode == "shadow"
        own = self._offered(surface, view, plan)
        # an upstream tool with the name of a meta-tool is reached by call_tool
        listed = ((plan.listed | view.kept) & view.candidate_set).difference(own)
        is_all = listed == view.candidate_set
        shown = view.candidates if is_all else tuple(name for name in view.candidates if name in listed)
        hidden = tuple(name for name in view.catalog.names if name not in listed and view.allows(name))
        may_be_found = [name for name in hidden if name in view.candidate_set]
        index = hidden_index(may_be_found, self._owner, self._rules.index_tokens) if own else ""
        entries = definitions([name for name in own if plan.lists_context or name != SET_CONTEXT], index)
        is_whole = is_shadow or (plan.tools is None and not entries)
        # where the list may change, the upstream's ttlMs and cacheScope would be wrong
        may_change = era is ProtocolEra.MODERN and surface in (Surface.STABLE, Surface.HINTS) and not is_shadow
        if is_whole:
            raw = some_entries(view.catalog, view.candidate_set, {}, search_first=False, has_hints=False)
        elif surface is Surface.HINTS:
            raw = marked_entries(view.catalog, view.candidate_set, listed)
        else:
            raw = some_entries(
                view.catalog, listed, entries, search_first=plan.search_first, has_hints=chosen.has_hints
            )
        tokens = view.tokens_of(listed)
        tokens_own = estimated_tokens(sum(map(len, entries.values())))
        return ListSelection(
            raw=raw,
            is_passthrough=is_whole and view.is_whole and not may_change,
            shown=shown,
            hidden=hidden,
            meta_tools=() if is_shadow else own,
            predictor=plan.predictor,
            reason=plan.reason,
            mode=self._rules.mode,
            surface=surface,
            tokens_shown=tokens + tokens_own,
            tokens_hidden=max(0, view.tokens - tokens),
            tokens_own=tokens_own,
        )
