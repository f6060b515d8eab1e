"""The report: what filtering would have hidden, missed and saved, by strategy, by day and by tool, and a verdict."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from riglm.application.evaluation.history import Step, figures
from riglm.application.evaluation.record import Record, cost_fields
from riglm.application.reporting.by_day import days_of
from riglm.application.reporting.by_tool import missed_tools
from riglm.application.reporting.counted import lists_of, percents, shares_of
from riglm.application.reporting.intervals import Interval, ratio_by_session
from riglm.application.reporting.verdict import Evidence, judge
from riglm.domain.schemas.settings import Settings
from riglm.domain.surface import Surface

MODES: Final = ("shadow", "enforce")
EXPLANATION: Final = (
    "Recorded lists are those that these rules showed, or in shadow mode would have shown. The walk makes a new list "
    "before every call, from the calls in the store alone; it compares strategies, and mostly hides more and misses "
    "more. price is that of all model requests, with prompt caching, relative to no proxy. in_list is the share of "
    "calls whose tool was in the list, new_in_list the same for tools that the session had not used before; of "
    "recorded lists, only those that hid something count. Ranges hold the true number in 95 of 100 cases. Tokens are "
    "estimates: hidden less those of the meta-tools and their results, less re-sent is net."
)
"""What the two ways to know are, and why they differ."""

_SHORTER: Final = frozenset({Surface.DYNAMIC, Surface.STABLE})
"""Surfaces on which a list may be shorter than the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a report is made of.

    `sessions` are all that used a tool, `walks` the steps of each strategy in those that were judged, `record` what was
    recorded of these. `unused`
    are the names of tools that were shown and never used. Times are in seconds since the epoch; `since` is 0 when all
    sessions count.
    """

    settings: Settings
    sessions: int
    walks: Mapping[str, Sequence[Step]]
    record: Record
    unused: Sequence[str]
    since: float
    until: float


def build_report(found: Findings, day_of: Callable[[float], str]) -> dict[str, Any]:
    """The report as plain values; shares are in percent, an interval is where 95 of 100 lie, or None.

    `day_of` names the day of a time. Days and tools go by the walk of the configured strategy, or else of the first
    that was judged: `walked` names it.
    """
    kind = found.settings.predictor.kind
    walked = kind if kind in found.walks else next(iter(found.walks), "")
    steps = found.walks.get(walked, ())
    modes = {mode: found.record.of(mode) for mode in MODES}
    rules = found.settings.filtering
    is_on = rules.is_on and rules.strategy == "prediction" and _mode_now(found) == "enforce"
    at_work = modes["enforce"] if is_on and modes["enforce"].lists else modes["shadow"]
    evidence = _evidence(found, steps, at_work, is_on=is_on)
    return {
        "since": found.since or None,
        "until": found.until,
        "rules": {
            "mode": _mode_now(found) if rules.is_on else "off",
            "strategy": kind if rules.strategy == "prediction" else rules.strategy,
            "coverage": rules.coverage,
            "min_tools": rules.min_tools,
            "max_tools": rules.max_tools,
        },
        "verdict": asdict(judge(evidence)),
        "record": {mode: _recorded(its) for mode, its in modes.items()},
        "strategies": [_strategy(name, walk) for name, walk in found.walks.items()],
        "walked": walked,
        "days": days_of(steps, at_work, day_of),
        "tools": {"missed": missed_tools(steps, at_work.uses), "never_used": sorted(found.unused)},
        "explanation": EXPLANATION,
    }


def _mode_now(found: Findings) -> str:
    """The mode of the latest list: the configuration at hand may be another one than that of what runs."""
    latest = max((each for each in found.record.lists if each.mode in MODES), key=lambda each: each.at, default=None)
    return found.settings.filtering.mode if latest is None else latest.mode


def _evidence(found: Findings, steps: Sequence[Step], at_work: Record, *, is_on: bool) -> Evidence:
    lists = [each for each in at_work.lists if each.surface in _SHORTER]
    sessions = len({step.session for step in steps})
    costs = [each.cost for each in at_work.costs]
    return Evidence(
        is_on=is_on,
        others=found.sessions - sessions,
        sessions=sessions,
        calls=len(steps),
        recorded=len({each.session for each in lists}),
        hidden=None if at_work.lists and not lists else any(each.shown < each.available for each in lists),
        price=ratio_by_session([cost.riglm for cost in costs], [cost.no_proxy for cost in costs]),
    )


def _recorded(its: Record) -> dict[str, Any] | None:
    """The figures of one mode; None when no list was recorded in it."""
    if not its.lists:
        return None
    judged = its.judged
    fresh = [use for use in judged if use.fresh]
    missed = [use for use in judged if not use.in_list]
    return {
        **lists_of(its.lists),
        "cost": cost_fields(its.cost),
        "calls": len(judged),
        "new_calls": len(fresh),
        "in_list": percents(judged),
        "new_in_list": percents(fresh),
        "missed": len(missed),
        "found_by_search": sum(use.found == "searched" for use in missed),
        "in_list_interval": _percents(shares_of(judged)),
        "mean_list": _mean([use.shown for use in judged]),
        "mean_available": _mean([use.available for use in judged]),
        "surfaces": {
            name: sum(each.surface == name for each in its.lists)
            for name in sorted({each.surface for each in its.lists})
        },
    }


def _strategy(name: str, steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "predictor": name,
        **figures(steps),
        "in_list_interval": _percents(shares_of(steps)),
        "new_in_list_interval": _percents(shares_of([step for step in steps if step.fresh])),
    }


def _percents(found: Interval | None) -> list[float] | None:
    return None if found is None else [round(100 * found.low, 2), round(100 * found.high, 2)]


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 2) if values else None
