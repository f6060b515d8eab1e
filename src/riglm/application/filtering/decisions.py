"""One set of rules at work: all that is asked to make a list or to let a call pass."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from riglm.application.lists.planning import ListPlanner
from riglm.application.lists.predicting import Predicting, UsageSource
from riglm.application.lists.unpredicted import Unpredicted
from riglm.application.lists.views import Views
from riglm.domain.override import Override
from riglm.domain.policy import Policy
from riglm.domain.prices import Prices
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.spelling import Spellings

_PLANNING: Final = (
    "strategy",
    "surface",
    "clients",
    "min_tools",
    "max_tools",
    "coverage",
    "cold_start_limit",
    "index_tokens",
)
"""The rules that the plan of a list follows from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decisions are made from, whatever the rules."""

    predicting: Predicting | None = None
    usage: UsageSource | None = None
    prices: Prices = field(default_factory=Prices)
    overrides: Callable[[], Sequence[Override]] = tuple
    owner: Callable[[str], tuple[str, str]] = lambda name: ("", name)
    clock: Callable[[], float] = time.time


class Decisions:
    """Rules, and what goes by them; where the rules are off, everything is shown, and may be used."""

    def __init__(
        self, rules: Filtering, surroundings: Surroundings, predictor: str, views: Views | None = None
    ) -> None:
        """`predictor` is the name of the strategy, for the record; `views` are those of rules with the same policy."""
        self.rules: Final = rules
        self.predictor: Final = predictor
        self.is_predicted: Final = (
            surroundings.predicting is not None and rules.is_on and rules.strategy == "prediction"
        )
        self.predicting: Final = _predicting(rules, surroundings.predicting)
        self.views: Final = views or _views(rules, surroundings)
        self.usage: Final = surroundings.usage if self.is_predicted else None
        self.prices: Final = surroundings.prices
        usage = self.usage
        self.planner: Final = ListPlanner(
            rules,
            surroundings.prices,
            (lambda session: None if usage is None else usage.usage(session, rules.profile))
            if self.is_predicted
            else None,
            surroundings.owner,
            predictor,
        )

    @property
    def is_on(self) -> bool:
        """Whether anything may be another one than without riglm."""
        return self.rules.is_on

    @property
    def is_shadow(self) -> bool:
        """Whether everything is shown, and what would have been hidden is recorded."""
        return self.is_on and self.rules.mode == "shadow"

    def followed_by(self, rules: Filtering, surroundings: Surroundings, predictor: str) -> "Decisions":
        """Decisions by other rules; what policy leaves is kept where the policy is the same."""
        return Decisions(
            rules, surroundings, predictor, self.views if _policy_of(rules) == _policy_of(self.rules) else None
        )

    def plans_like(self, other: "Decisions") -> bool:
        """Return True if these rules lead to the same plans as other ones."""
        return self.prices == other.prices and all(
            getattr(self.rules, key) == getattr(other.rules, key) for key in _PLANNING
        )


def _policy_of(rules: Filtering) -> tuple[object, ...]:
    return rules.is_on, rules.allowlist, rules.denylist, rules.pinned


def _views(rules: Filtering, surroundings: Surroundings) -> Views:
    if not rules.is_on:
        return Views(Policy(), owner=surroundings.owner, clock=surroundings.clock)
    policy = Policy(
        allowed=Spellings(rules.allowlist) if rules.allowlist else None,
        denied=Spellings(rules.denylist),
        pinned=Spellings(rules.pinned),
    )
    return Views(policy, surroundings.overrides, owner=surroundings.owner, clock=surroundings.clock)


def _predicting(rules: Filtering, predicting: Predicting | None) -> Predicting:
    return predicting if predicting is not None and rules.is_on and rules.strategy == "prediction" else Unpredicted()
