"""The rules that are active, with everything needed to select a list and to permit a call."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.tool_lists.planning import ListPlanner
from riglm.application.tool_lists.selection import NullPrediction, UsageSource
from riglm.application.worker import Worker
from riglm.domain.access import AccessRules
from riglm.domain.list_plan import Prices
from riglm.domain.naming import SEPARATOR, NamePatterns
from riglm.domain.policy import Override, Policy, ToolVisibility, by_tool
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import Session
from riglm.domain.tool import PermittedTools, ToolCatalog
from riglm.ports.analytics import OverridesPort

MAX_VIEWS: Final = 64
"""Maximum number of views in the cache."""

MAX_NAMES: Final = 10_000
"""Maximum number of tools whose standing is in the cache."""


class ToolPermissions:
    """Applies the policy to whole catalogues."""

    def __init__(
        self,
        policy: Policy,
        overrides: Callable[[], Sequence[Override]] = tuple,
        *,
        owner: Callable[[str], tuple[str, str]] = lambda name: ("", name),
        access: AccessRules | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`overrides` gives all that there are now, and does not block.

        `owner` returns a tool's server and its name there, given the name that clients use. What `access` does not
        permit is denied, regardless of the policy and of overrides.
        """
        self._access = access
        self._policy = policy
        self._owner = owner
        self._overrides = overrides
        self._clock = clock
        self._kept: OrderedDict[tuple[int, tuple[Override, ...], str], PermittedTools] = OrderedDict()
        self._by_policy: dict[tuple[str, str, str], ToolVisibility] = {}

    def of(self, session: Session, catalog: ToolCatalog) -> PermittedTools:
        """Return the tools of a catalog that a session may use."""
        overrides = self.concerning(session)
        key = (id(catalog), overrides, session.access)
        view = self._kept.get(key)
        if view is None or view.catalog is not catalog:
            view = self._kept[key] = self._made(catalog, overrides, session.access)
            if len(self._kept) > MAX_VIEWS:
                self._kept.popitem(last=False)
        return view

    def visibility(self, session: Session, name: str, owner: tuple[str, str] | None = None) -> ToolVisibility:
        """What may become of one tool in a session, whether it is in a catalogue or not; `owner` if that is known."""
        overrides = self.concerning(session)
        return self._decided(name, by_tool(overrides) if overrides else None, session.access, owner)

    def denies_by_name(self, name: str) -> bool:
        """True if the denylist contains a name, regardless of the allowlist."""
        return self._policy.denies_by_name(name)

    def concerning(self, session: Session) -> tuple[Override, ...]:
        """The overrides that hold for a session now."""
        everything = self._overrides()
        if not everything:
            return ()
        now, key = self._clock(), str(session.id)
        return tuple(each for each in everything if each.holds(now) and each.concerns(key, session.principal))

    def _decided(
        self,
        name: str,
        overrides: Mapping[str, Sequence[Override]] | None,
        access: str,
        owner: tuple[str, str] | None = None,
    ) -> ToolVisibility:
        """What may become of a tool, by all its names: a long one is cut for clients, and denied by the whole of it."""
        server, own = owner or self._owner(name)
        if access and self._access is not None and not self._access.permits(access, server, own):
            return ToolVisibility.DENIED
        key = (name, server, own)
        if overrides is None and key in self._by_policy:
            return self._by_policy[key]
        visibility = self._policy.decide(name, overrides, (own, f"{server}{SEPARATOR}{own}") if server else ())
        if overrides is None and len(self._by_policy) < MAX_NAMES:
            self._by_policy[key] = visibility
        return visibility

    def _made(self, catalog: ToolCatalog, overrides: tuple[Override, ...], access: str) -> PermittedTools:
        mine = by_tool(overrides)
        visibilities = {name: self._decided(name, mine, access) for name in catalog.names}
        shown = (ToolVisibility.AUTO, ToolVisibility.ALWAYS)
        if all(visibility in shown for visibility in visibilities.values()):
            candidates = catalog.names
        else:
            candidates = tuple(name for name in catalog.names if visibilities[name] in shown)
        return PermittedTools(
            catalog=catalog,
            candidates=candidates,
            kept=frozenset(name for name, visibility in visibilities.items() if visibility is ToolVisibility.ALWAYS),
            never_shown=frozenset(
                name for name, visibility in visibilities.items() if visibility is ToolVisibility.NEVER
            ),
        )


_PLANNING: Final = (
    "enabled",
    "strategy",
    "surface",
    "clients",
    "min_tools",
    "max_tools",
    "coverage",
    "cold_start_limit",
    "index_tokens",
    "profiles",
)
"""The rules that the plan of a list follows from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDependencies:
    """Dependencies of decisions that do not change with the rules."""

    predicting: NullPrediction | None = None
    usage: UsageSource | None = None
    prices: Prices = field(default_factory=Prices)
    overrides: Callable[[], Sequence[Override]] = tuple
    owner: Callable[[str], tuple[str, str]] = lambda name: ("", name)
    access: AccessRules | None = None
    clock: Callable[[], float] = time.time


class ActiveRules:
    """Rules and what depends on them; if filtering is off, all tools are listed and callable."""

    def __init__(
        self,
        rules: FilteringSettings,
        surroundings: RuleDependencies,
        predictor: str,
        views: ToolPermissions | None = None,
    ) -> None:
        """`predictor` is the name of the strategy, for the record; `views` are those of rules with the same policy."""
        self.rules: Final = rules
        self.is_on: Final = rules.is_on or surroundings.access is not None
        """True if a list or a call may differ from what it would be without riglm."""
        self.is_shadow: Final = rules.is_on and rules.mode == "shadow"
        """True if clients get all tools, and what would have been hidden is recorded."""
        self.by_profile: Final = {
            name: ActiveRules(rules.of_profile(name), surroundings, predictor) for name in rules.profiles
        }
        """The rules that hold in each profile instead of these."""
        self.guards: Final = (rules.is_on and rules.denies) or surroundings.access is not None
        """True if tools are denied, in some profile at least."""
        self.predictor: Final = predictor
        self.is_predicted: Final = (
            surroundings.predicting is not None and rules.is_on and rules.strategy == "prediction"
        )
        self.predicting: Final = _predicting(rules, surroundings.predicting)
        self.views: Final = views or _views(rules, surroundings)
        self.usage: Final = surroundings.usage if self.is_predicted else None
        self.prices: Final = surroundings.prices
        self.planner: Final = ListPlanner(rules, self.prices, self.usage, surroundings.owner, predictor)

    def followed_by(self, rules: FilteringSettings, surroundings: RuleDependencies, predictor: str) -> "ActiveRules":
        """Decisions by other rules; what policy leaves is kept where the policy is the same."""
        return ActiveRules(
            rules, surroundings, predictor, self.views if _policy_of(rules) == _policy_of(self.rules) else None
        )

    def plans_like(self, other: "ActiveRules") -> bool:
        """Return True if these rules lead to the same plans as other ones."""
        return self.prices == other.prices and all(
            getattr(self.rules, key) == getattr(other.rules, key) for key in _PLANNING
        )


def _policy_of(rules: FilteringSettings) -> tuple[object, ...]:
    return rules.is_on, rules.allowlist, rules.denylist, rules.pinned


def _views(rules: FilteringSettings, surroundings: RuleDependencies) -> ToolPermissions:
    policy = Policy()
    overrides: Callable[[], Sequence[Override]] = tuple
    if rules.is_on:
        overrides = surroundings.overrides
        policy = Policy(
            allowed=NamePatterns(rules.allowlist) if rules.allowlist else None,
            denied=NamePatterns(rules.denylist),
            pinned=NamePatterns(rules.pinned),
        )
    return ToolPermissions(
        policy, overrides, owner=surroundings.owner, access=surroundings.access, clock=surroundings.clock
    )


def _predicting(rules: FilteringSettings, predicting: NullPrediction | None) -> NullPrediction:
    return predicting if predicting is not None and rules.is_on and rules.strategy == "prediction" else NullPrediction()


_log: Final = logging.getLogger("riglm.filtering")


class Overrides:
    """The overrides in force, as they were when the store was last looked at.

    If the store is unavailable, the last overrides stay active. Reading never blocks.
    """

    def __init__(
        self, worker: Worker, store: Callable[[], OverridesPort], *, clock: Callable[[], float] = time.time
    ) -> None:
        """The store is asked on the worker; `clock` gives seconds since the epoch."""
        self._worker = worker
        self._store = store
        self._clock = clock
        self._read: tuple[Override, ...] = ()
        self._in_force: tuple[Override, ...] = ()
        self._is_known = False
        self._listener: Callable[[], None] | None = None
        self._guarded = FailingOpen(_log, "overrides could not be read; those that were read last count, and")

    def in_force(self) -> Sequence[Override]:
        """All that had not expired when the store was last looked at."""
        return self._in_force

    def known(self) -> Sequence[Override] | None:
        """Return the overrides in force, None if the store was not available yet."""
        return self._in_force if self._is_known else None

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Register a callback for changes of the active overrides."""
        self._listener = listener

    async def refresh(self) -> None:
        """Read the store now."""
        with self._guarded:
            self._read = tuple(await self._worker.run(lambda: self._store().list_overrides()))
            self._is_known = True
        now, before = self._clock(), self._in_force
        self._in_force = tuple(each for each in self._read if each.holds(now))
        if self._in_force != before and self._listener is not None:
            self._listener()
