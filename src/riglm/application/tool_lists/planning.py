"""Which tools a session's list holds, decided once, and how it is composed for the session's surface."""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
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
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import session_state
from riglm.domain.client_support import NO_TOOL_SEARCH, ChosenSurface, choose_surface, most_tools_of
from riglm.domain.everyday import everyday_weights
from riglm.domain.exposure import NOTHING_HIDDEN, Surface
from riglm.domain.list_plan import (
    ALIKE,
    CALL_TOKENS,
    COLD_USAGE,
    EXPECTED_HITS,
    META_TOOL_TOKENS,
    PROMPT_TOKENS,
    SURE,
    UNSURE,
    ListPlan,
    Prices,
    ToolCosts,
    blended,
    cheapest_list,
    covering_list,
    expected_usage,
    filled,
    prior_probabilities,
)
from riglm.domain.prediction import Prediction
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra, Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import BYTES_PER_TOKEN, PermittedTools, estimated_tokens, profile
from riglm.domain.usage import Usage, WarmSet

_MAX_CLIENTS: Final = 1_000
_MAX_PLANS: Final = 64
_MAX_SELECTIONS: Final = 32
_WITH_META_TOOLS: Final = (Surface.DYNAMIC, Surface.STABLE)
_LEARNED: Final = "recorded use"
_COLD: Final = "nothing was learned yet"
_NOT_PREDICTED: Final = ChosenSurface(Surface.FULL, "lists are not predicted")
_log: Final = logging.getLogger("riglm.filtering")


_CAUTION: Final = 0.8


class Need(NamedTuple):
    """The probability of each permitted tool that the rest of a session needs it.

    `predictor` is the name of the strategy that decided, empty if the prior alone did.
    """

    probabilities: Mapping[str, float]
    predictor: str


class ListPlanner:
    """Plans lists where prediction is on."""

    def __init__(
        self,
        rules: FilteringSettings,
        prices: Prices,
        warm_set: Callable[[Session], WarmSet | None] | None,
        owner: OwnerOf,
        predictor: str,
    ) -> None:
        """`warm_set` returns what was learned for a session; None if lists are not predicted.

        `predictor` is the name of the strategy, for the record.
        """
        self._rules = rules
        self._prices = prices
        self._warm_set = warm_set
        self._owner = owner
        self._predictor = predictor
        by_client = {pattern: Surface(name) for pattern, name in rules.clients.items()}
        self._by_client = lru_cache(_MAX_CLIENTS)(
            lambda name, era, no_search: choose_surface(name, era, by_client, no_search)
        )
        self._most_tools = lru_cache(_MAX_CLIENTS)(most_tools_of)
        self._meta_tools = tuple(name for name in NAMES if getattr(rules.meta_tools, name))
        self._pinned = tuple(name for name in self._meta_tools if name in rules.pinned)
        self._weights: OrderedDict[int, tuple[PermittedTools, Mapping[str, float]]] = OrderedDict()
        self._expected: OrderedDict[tuple[int, int], tuple[PermittedTools, WarmSet | None, Usage]] = OrderedDict()
        self._base: OrderedDict[tuple[int, int, Surface, int | None], tuple[PermittedTools, Usage, ListPlan]] = (
            OrderedDict()
        )
        self._selections: OrderedDict[
            tuple[int, int, ChosenSurface, ProtocolEra], tuple[PermittedTools, ListPlan, ListSelection]
        ] = OrderedDict()
        self._reported: set[str] = set()

    def surface(self, session: Session) -> Surface:
        """Return how a selection reaches the client of a session."""
        return self.chosen_surface(session).surface

    def chosen_surface(self, session: Session) -> ChosenSurface:
        """Return how a selection reaches the client of a session, and why."""
        if self._warm_set is None:
            return _NOT_PREDICTED
        if self._rules.surface != "auto":
            return ChosenSurface(Surface(self._rules.surface), "`filtering.surface` is set")
        return self._by_client(session.client.name, session.era, session.metadata.get(NO_TOOL_SEARCH, ""))

    def costs(self, view: PermittedTools) -> ToolCosts:
        """Return what each permitted tool costs."""
        return ToolCosts(
            tokens={name: size / BYTES_PER_TOKEN for name, size in view.sizes.items()}, prices=self._prices
        )

    def usage(self, session: Session, view: PermittedTools) -> Usage:
        """Return what a session is expected to need that has called nothing: by the prior and what was learned."""
        found = None if self._warm_set is None else self._warm_set(session)
        key = (id(view), id(found))
        kept = self._expected.get(key)
        if kept is None or kept[0] is not view or kept[1] is not found:
            usage = expected_usage(COLD_USAGE if found is None else found.usage, self._everyday(view))
            kept = self._expected[key] = (view, found, usage)
            if len(self._expected) > _MAX_PLANS:
                self._expected.popitem(last=False)
        return kept[2]

    def _everyday(self, view: PermittedTools) -> Mapping[str, float]:
        """Return how likely each permitted tool is an everyday utility."""
        kept = self._weights.get(id(view))
        if kept is None or kept[0] is not view:
            described = [(name, profile(view.catalog.by_name[name]).description) for name in view.candidates]
            kept = self._weights[id(view)] = (view, everyday_weights(described))
            if len(self._weights) > _MAX_PLANS:
                self._weights.popitem(last=False)
        return kept[1]

    def need(
        self, session: Session, view: PermittedTools, prediction: Prediction | None, used: Collection[str]
    ) -> Need:
        """Return what the rest of a session is expected to need by a prediction, None if nothing is known.

        If all tools that it has not `used` are equally likely, the prior decides.
        """
        if prediction is None:
            return Need(self.usage(session, view).probabilities, "")
        scores: list[float] = prediction.scores.tolist()
        prior = prior_probabilities(self._everyday(view))
        new = [score for name, score in zip(view.candidates, scores, strict=True) if name not in used]
        if new and max(new) - min(new) <= ALIKE * max(new):
            return Need(prior, "")
        recorded = dict(zip(view.candidates, scores, strict=True))
        return Need(blended(recorded, prior, prediction.evidence), prediction.fallback or self._predictor)

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
        surface = self.surface(session)
        if surface is Surface.FULL:
            return ListPlan(candidates=view.candidates, reason="the surface is full")
        usage, learned = self.usage(session, view), None if self._warm_set is None else self._warm_set(session)
        most_listed = self._most_tools(session.client.name)
        key = (id(view), id(usage), surface, most_listed)
        kept = self._base.get(key)
        if kept is None or kept[0] is not view or kept[1] is not usage:
            plan = self._hinted(view, usage) if surface is Surface.HINTS else self._listed(view, usage, most_listed)
            if learned is not None and plan.tools is not None:
                plan = replace(plan, predictor=learned.predictor if learned.usage.probabilities else "")
            kept = self._base[key] = (view, usage, plan)
            if len(self._base) > _MAX_PLANS:
                self._base.popitem(last=False)
        return kept[2]

    def replan(
        self, session: Session, state: SessionState, view: PermittedTools, need: Need, confidence: float
    ) -> bool:
        """Plan for a new context; return True if the list differs from the one that the client has.

        The list changes only if that pays.
        """
        target = self._for_context(session, state, view, need, confidence)
        return self._adopt(session, state, view, target, need.probabilities)

    def resize(
        self, session: Session, state: SessionState, view: PermittedTools, need: Need, confidence: float
    ) -> bool:
        """Plan a list that holds the share `coverage` of the need; return True if it differs from the client's.

        Tools of the last turns are listed in addition. A context of low confidence leaves a learned list as it is.
        """
        current = self.plan(session, state, view)
        if (
            state.context is not None
            and not confidence >= UNSURE
            and current.tools is not None
            and self._has_learned(session)
        ):
            state.plan = replace(current, confidence=confidence)
            return False
        is_cold = not self._has_learned(session)
        (least, most), coverage = self._bounds(is_cold=is_cold), self._rules.coverage or 1.0
        bounds = (most if is_cold else least, most)
        tools = covering_list(need.probabilities, view.kept, self._cold_order(view), bounds, coverage)
        tools |= self._used_lately(state, view)
        by = "the context" if state.context is not None else "what was used"
        target = ListPlan(
            candidates=view.candidates,
            tools=None if tools == view.candidate_set else tools,
            search_first=confidence <= SURE,
            confidence=confidence,
            predictor=need.predictor,
            reason=f"predicted by {by}",
        )
        return self._adopt(session, state, view, target, {})

    def add_matches(self, session: Session, state: SessionState, view: PermittedTools, matches: Sequence[str]) -> None:
        """Plan the learned list of a session with up to half of its places for matches of the context, best first."""
        base, limit = self.base_plan(session, view), self._rules.max_tools
        if base.tools is None or not self._has_learned(session):
            return
        probabilities = self.usage(session, view).probabilities
        likeliest = sorted(base.tools, key=lambda name: (-probabilities.get(name, 0.0), name))
        added = [name for name in matches if name not in base.tools][: limit // 2]
        used = self._used_lately(state, view)
        tools = view.kept.union(used, added, likeliest[: limit - len(added)])
        state.plan = replace(self.plan(session, state, view), tools=tools)

    def _used_lately(self, state: SessionState, view: PermittedTools) -> frozenset[str]:
        return view.candidate_set & session_state.used_lately(state, self._rules.retained_turns)

    def _has_learned(self, session: Session) -> bool:
        return self._warm_set is not None and self._warm_set(session) is not None

    def add_used(self, session: Session, state: SessionState, view: PermittedTools) -> None:
        """Add the tools of the last turns to the plan of a session."""
        plan = self.plan(session, state, view)
        if plan.tools is not None:
            used = self._used_lately(state, view)
            state.plan = replace(plan, tools=plan.tools | used)

    def _adopt(
        self, session: Session, state: SessionState, view: PermittedTools, target: ListPlan, needed: Mapping[str, float]
    ) -> bool:
        """Take the target as the session's plan if that pays; return True if the list differs."""
        current = self.plan(session, state, view)
        if state.shown is None:
            state.plan = target
            return False
        if target.listed == current.listed:
            state.plan = replace(target, search_first=current.search_first, lists_context=current.lists_context)
            return False
        if self._rules.coverage is None and not self._change_pays(
            session, state, view, current.listed, target.listed, needed
        ):
            state.plan = replace(current, confidence=target.confidence)
            return False
        state.plan = target
        return True

    def offered(self, session: Session, state: SessionState, view: PermittedTools | None) -> tuple[str, ...]:
        """Return the names of the meta-tools that a session can call: all if its list hides something.

        All of them are listed, but for set_context where it does not pay.
        """
        answered = self.answered(session)
        if not answered or view is None:
            return answered
        return self._offered(self.plan(session, state, view), view)

    def answered(self, session: Session) -> tuple[str, ...]:
        """Return the names of the meta-tools that a session can call where no upstream tool has the name."""
        if self._rules.mode == "shadow" or self.surface(session) not in _WITH_META_TOOLS:
            return ()
        return self._meta_tools

    def names(self, session: Session, state: SessionState, view: PermittedTools) -> tuple[str, ...]:
        """Return the names that a list would have now, without changing the session."""
        plan = self.plan(session, replace(state), view)
        return self._shown(self.surface(session), view, plan, self._offered(plan, view))

    def compose(self, session: Session, state: SessionState, view: PermittedTools) -> ListSelection:
        """Return the list of a session, the same object for the same plan, surface and era."""
        chosen, plan = self.chosen_surface(session), self.plan(session, state, view)
        key = (id(view), id(plan), chosen, session.era)
        kept = self._selections.get(key)
        if kept is None or kept[0] is not view or kept[1] is not plan:
            kept = self._selections[key] = (view, plan, self._selection(view, plan, chosen, session.era))
            if len(self._selections) > _MAX_SELECTIONS:
                self._selections.popitem(last=False)
        return kept[2]

    def everything(self, session: Session, view: PermittedTools, reason: str) -> ListSelection:
        """Return a list of all permitted tools."""
        plan = ListPlan(candidates=view.candidates, reason=reason)
        return self._selection(view, plan, self.chosen_surface(session), session.era, own=())

    def _selection(
        self,
        view: PermittedTools,
        plan: ListPlan,
        chosen: ChosenSurface,
        era: ProtocolEra,
        own: tuple[str, ...] | None = None,
    ) -> ListSelection:
        surface = chosen.surface
        is_shadow = self._rules.mode == "shadow"
        if own is None:
            own = self._offered(plan, view) if surface in _WITH_META_TOOLS else ()
        shown = self._shown(surface, view, plan, () if is_shadow else own)
        listed = frozenset(shown)
        entries = self._definitions(own, plan, tuple(name for name in view.candidates if name not in listed))
        is_whole = is_shadow or (plan.tools is None and not entries)
        is_passthrough = False
        if surface is Surface.HINTS and not is_shadow:
            raw = marked_entries(view.catalog, view.candidate_set, plan.tools or frozenset())
        elif is_whole:
            raw = some_entries(view.catalog, view.candidate_set, {})
            # where the list may change, the upstream's ttlMs and cacheScope would be wrong
            may_change = era is ProtocolEra.MODERN and surface is Surface.STABLE and not is_shadow
            is_passthrough = view.is_whole and not may_change
        else:
            raw = some_entries(
                view.catalog, listed, entries, search_first=plan.search_first, has_hints=chosen.has_hints
            )
        preloaded = None
        if surface is Surface.HINTS:
            marked = plan.tools or frozenset()
            preloaded = tuple(name for name in shown if name in marked)
        tokens = view.tokens_of(listed if preloaded is None else frozenset(preloaded))
        tokens_own = estimated_tokens(sum(map(len, entries.values())))
        return ListSelection(
            raw=raw,
            is_passthrough=is_passthrough,
            shown=shown,
            hidden=tuple(name for name in view.catalog.names if name not in listed and view.allows(name)),
            preloaded=preloaded,
            meta_tools=() if is_shadow else own,
            predictor=plan.predictor,
            reason=plan.reason,
            mode=self._rules.mode,
            surface=surface,
            tokens_shown=tokens + tokens_own,
            tokens_hidden=max(0, view.tokens - tokens),
            tokens_own=tokens_own,
        )

    def _listed(self, view: PermittedTools, usage: Usage, most_listed: int | None) -> ListPlan:
        """Return the plan of a list for a client that takes at most `most_listed` tools."""
        rules, costs, order = self._rules, self.costs(view), self._cold_order(view)
        bounds = self._bounds(is_cold=not usage.evidence)
        tools: frozenset[str] | None
        if rules.coverage is not None and not usage.evidence:
            bounds = (bounds[1], bounds[1])
        if rules.coverage is not None:
            tools = covering_list(usage.probabilities, view.kept, order, bounds, rules.coverage)
            tools = None if tools == view.candidate_set else tools
        else:
            own_tokens = META_TOOL_TOKENS + min(
                rules.index_tokens, INDEX_TOKENS, sum(len(name) / BYTES_PER_TOKEN + 1 for name in view.candidates)
            )
            tools = cheapest_list(costs, usage, view.kept, order, bounds, own_tokens, EXPECTED_HITS)
        tools = self._within(most_listed, tools, view, order, usage.probabilities)
        if tools is None:
            return ListPlan(candidates=view.candidates, reason=NOTHING_HIDDEN)
        return ListPlan(
            candidates=view.candidates,
            tools=tools,
            search_first=True,
            lists_context=rules.coverage is not None or SET_CONTEXT in self._pinned or costs.context_pays(tools, usage),
            reason=_LEARNED if usage.evidence else _COLD,
        )

    def _bounds(self, *, is_cold: bool) -> tuple[int, int]:
        """Return the least and the largest number of tools in a list that hides some."""
        least, most = self._rules.min_tools, self._rules.max_tools
        return least, max(least, min(most, self._rules.cold_start_limit) if is_cold else most)

    def _within(
        self,
        limit: int | None,
        tools: frozenset[str] | None,
        view: PermittedTools,
        order: Sequence[str],
        probabilities: Mapping[str, float],
    ) -> frozenset[str] | None:
        """Return the same tools, or the likeliest of them that make `limit` with the meta-tools.

        `order` decides among tools of equal probability. Pinned tools are always among them. Without meta-tools nothing
        is left out, as nothing else could be reached.
        """
        own = len(self._pinned if tools is None else self._meta_tools)
        among = view.candidate_set if tools is None else tools
        if limit is None or not self._meta_tools or own + len(among) <= limit:
            return tools
        room = max(0, limit - len(self._meta_tools) - len(view.kept))
        likeliest = sorted(order, key=lambda name: -probabilities.get(name, 0.0))
        return view.kept.union([name for name in likeliest if name in among and name not in view.kept][:room])

    def _hinted(self, view: PermittedTools, usage: Usage) -> ListPlan:
        costs = self.costs(view).next_to_search
        # hints must not be dearer than the client's search, also where probabilities are a quarter too high
        probabilities = {name: _CAUTION * share for name, share in usage.probabilities.items()}
        paying = costs.paying(probabilities, usage.requests)[: self._rules.max_tools]
        reason = _LEARNED if usage.evidence else _COLD
        return ListPlan(candidates=view.candidates, tools=view.kept.union(paying), reason=reason)

    def _cold_order(self, view: PermittedTools) -> Sequence[str]:
        """Return all candidates: everyday utilities first, then in turn from each server."""
        seen: dict[str, int] = {}
        turn: dict[str, int] = {}
        for name in view.candidates:
            server = self._owner(name)[0]
            turn[name] = seen[server] = seen.get(server, 0) + 1
        everyday = self._everyday(view)
        return sorted(view.candidates, key=lambda name: (-everyday.get(name, 0.0), turn[name]))

    def _for_context(
        self, session: Session, state: SessionState, view: PermittedTools, need: Need, confidence: float
    ) -> ListPlan:
        base, needed = self.base_plan(session, view), need.probabilities
        if not confidence >= UNSURE:
            return replace(base, confidence=confidence)
        rules = self._rules
        retained = self._used_lately(state, view)
        kept = view.kept | retained
        fresh = {name: share for name, share in needed.items() if name not in kept}
        paying = self.costs(view).paying(fresh, self.usage(session, view).requests)[: rules.max_tools]
        order = sorted(view.candidates, key=lambda name: (name not in base.listed, -needed.get(name, 0.0)))
        found = filled(paying, kept, order, rules.min_tools)
        tools = self._within(
            self._most_tools(session.client.name),
            None if found == view.candidate_set else found,
            view,
            order,
            {**needed, **dict.fromkeys(retained, math.inf)},
        )
        return ListPlan(
            candidates=view.candidates,
            tools=tools,
            search_first=confidence <= SURE,
            lists_context=base.lists_context,
            confidence=confidence,
            predictor=need.predictor,
            reason="predicted by the context",
        )

    def _change_pays(
        self,
        session: Session,
        state: SessionState,
        view: PermittedTools,
        before: frozenset[str],
        after: frozenset[str],
        needed: Mapping[str, float],
    ) -> bool:
        costs, usage = self.costs(view), self.usage(session, view)
        calls = len(state.calls)
        left = max(1.0, usage.requests - calls)
        messages = PROMPT_TOKENS + CALL_TOKENS * calls
        tokens = costs.tokens
        change = self._prices.list_change(
            messages, sum(tokens[name] for name in before & tokens.keys()), sum(tokens[name] for name in after), left
        )
        unsent = sum(self._prices.added(tokens[name], left) for name in after - before - state.sent)
        detour = self._prices.detour(messages, left / 2)
        missed = sum(needed.get(name, 0.0) for name in before - after) * detour
        return unsent > change + missed

    def _carried_over(self, plan: ListPlan, session: Session, view: PermittedTools) -> ListPlan:
        """Return the plan for a catalog that has changed: a few new tools are listed, of many those that pay."""
        if plan.tools is None:
            return self.base_plan(session, view)
        added = view.candidate_set.difference(plan.candidates)
        if len(added) > self._rules.max_tools:
            added &= self.base_plan(session, view).listed
        tools = (plan.tools | added) & view.candidate_set
        if self._within(self._most_tools(session.client.name), tools, view, (), {}) != tools:
            return self.base_plan(session, view)
        return replace(plan, candidates=view.candidates, tools=tools)

    def _offered(self, plan: ListPlan, view: PermittedTools) -> tuple[str, ...]:
        if plan.tools is not None and plan.tools != view.candidate_set:
            return self._meta_tools
        missing = (SEARCH,) if view.catalog.missing and SEARCH in self._meta_tools else ()
        return tuple(name for name in NAMES if name in self._pinned or name in missing)

    def _shown(self, surface: Surface, view: PermittedTools, plan: ListPlan, own: Sequence[str]) -> tuple[str, ...]:
        if plan.tools is None or surface is Surface.HINTS:
            names = view.candidate_set
        else:
            names = (plan.tools | view.kept) & view.candidate_set
        names = self._without_reserved(names, own)
        if names == view.candidate_set:
            return view.candidates
        return tuple(name for name in view.candidates if name in names)

    def _without_reserved(self, names: frozenset[str], own: Sequence[str]) -> frozenset[str]:
        """Return the names without those of the meta-tools: an upstream tool of such a name is reached by call_tool."""
        reserved = names.intersection(own)
        for name in sorted(reserved - self._reported):
            self._reported.add(name)
            _log.warning("an upstream tool has the name of a meta-tool; call_tool reaches it", extra={"tool": name})
        return names - reserved

    def _definitions(self, own: tuple[str, ...], plan: ListPlan, hidden: tuple[str, ...]) -> Mapping[str, bytes]:
        """Return the definitions of the meta-tools of a list, the search with the index of what is hidden."""
        listed = [name for name in own if plan.lists_context or name != SET_CONTEXT]
        index = hidden_index(hidden, self._owner, self._rules.index_tokens) if listed and hidden else ""
        return definitions(listed, index)
