"""The report: what filtering would have hidden, missed and saved, by strategy, by day and by tool, and a verdict."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from riglm.application.evaluation.history import Step, figures
from riglm.application.reporting.by_day import days_of
from riglm.application.reporting.by_tool import missed_tools
from riglm.application.reporting.counted import lists_of, percents, shares_of
from riglm.application.reporting.intervals import Interval, mean_by_session
from riglm.application.reporting.record import Record, RecordedList, RecordedUse
from riglm.application.reporting.verdict import FEWEST_CALLS, FEWEST_SESSIONS, Basis, Evidence, judge
from riglm.domain.schemas.settings import Settings
from riglm.domain.surface import Surface
from riglm.domain.tokens import CACHED_PRICE, WRITTEN_PRICE

_SMALL_TOOLS: Final = 20
_SMALL_TOKENS: Final = 5_000
MODES: Final = ("shadow", "enforce")
EXPLANATION: Final = (
    "What was recorded is what these rules showed, or in shadow mode would have shown: few lists in a session, all "
    "tools while little is known of it, and a tool stays in the list for some turns after it was used. The walk makes "
    "a new list before every call, from the calls in the store alone; it is there to compare strategies, and mostly "
    "hides more and misses more. in_list is the share of calls whose tool was in the list, new_in_list the same for "
    "tools that the session had not used before. Ranges hold the true number in 95 of 100 cases. Tokens are estimates; "
    "hidden less own tools, with what these answered, less re-sent is net. `riglm stats` counts the same lists, of all "
    "sessions, and calls as they really were: in shadow mode every tool was shown, and each call had zero hops."
)
"""What the two ways to know are, and why they differ."""

_SHORTER: Final = frozenset({Surface.DYNAMIC, Surface.STABLE})
"""Surfaces on which a list may be shorter than the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a report is made of.

    `sessions` are all that used a tool, `walks` the steps of each strategy in those that were judged, `record` what was
    recorded of these. `unused`
    are the names of tools that were shown and never used. `own_tokens` are what riglm's own tools take in a list. Times
    are in seconds since the epoch; `since` is 0 when all sessions count.
    """

    settings: Settings
    sessions: int
    walks: Mapping[str, Sequence[Step]]
    record: Record
    unused: Sequence[str]
    own_tokens: int
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
    size = _catalogue(steps, found.record)
    evidence = _evidence(found, steps, at_work, size, is_on=is_on)
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
        "catalogue": size,
        "verdict": asdict(judge(evidence)),
        "record": {mode: _recorded(its) for mode, its in modes.items()},
        "strategies": [_strategy(name, walk, size, found.own_tokens) for name, walk in found.walks.items()],
        "walked": walked,
        "days": days_of(steps, at_work, day_of),
        "tools": {"missed": missed_tools(steps, at_work.uses), "never_used": sorted(found.unused)},
        "explanation": EXPLANATION,
    }


def _mode_now(found: Findings) -> str:
    """The mode of the latest list: the configuration at hand may be another one than that of what runs."""
    latest = max((each for each in found.record.lists if each.mode in MODES), key=lambda each: each.at, default=None)
    return found.settings.filtering.mode if latest is None else latest.mode


def _catalogue(steps: Sequence[Step], record: Record) -> dict[str, float | None]:
    """How large a usual catalogue is: the median of the sessions."""
    tools = {step.session: step.candidates for step in steps}
    tokens = {each.session: each.tokens_all for each in record.lists if each.tokens_all}
    per_tool = [each.tokens_all / each.available for each in record.lists if each.tokens_all and each.available]
    return {
        "tools": statistics.median(tools.values()) if tools else None,
        "tokens": statistics.median(tokens.values()) if tokens else None,
        "tokens_per_tool": round(statistics.median(per_tool), 1) if per_tool else None,
    }


def _evidence(
    found: Findings, steps: Sequence[Step], at_work: Record, size: Mapping[str, float | None], *, is_on: bool
) -> Evidence:
    lists = [each for each in at_work.lists if each.surface in _SHORTER]
    uses = _made_with(at_work.uses, lists)
    is_told = len(uses) >= FEWEST_CALLS and len({use.session for use in uses}) >= FEWEST_SESSIONS
    basis: Basis = "record" if is_told else "replay"
    hits = shares_of(uses if basis == "record" else steps)
    net, priced = _savings(lists, uses)
    hidden = any(each.tokens_hidden or each.shown < each.available for each in lists)
    sessions = len({step.session for step in steps})
    return Evidence(
        is_on=is_on,
        others=found.sessions - sessions,
        sessions=sessions,
        calls=len(steps),
        tools=size["tools"],
        tokens=size["tokens"],
        whole_tools=_SMALL_TOOLS,
        whole_tokens=_SMALL_TOKENS,
        recorded=len({each.session for each in lists}),
        basis=basis,
        hits=hits,
        hidden=None if at_work.lists and not lists else hidden,
        net=net,
        priced=priced,
    )


def _made_with(uses: Sequence[RecordedUse], lists: Sequence[RecordedList]) -> list[RecordedUse]:
    sessions = {each.session for each in lists}
    return [use for use in uses if use.session in sessions]


def _savings(lists: Sequence[RecordedList], uses: Sequence[RecordedUse]) -> tuple[Interval | None, Interval | None]:
    """What sessions save with each list sent once, and with one request for each call, at the prices of a cache."""
    net: dict[object, float] = {}
    priced: dict[object, float] = {}
    for each in lists:
        net[each.session] = net.get(each.session, 0.0) + each.tokens_net
        cost = (WRITTEN_PRICE - CACHED_PRICE) * (each.tokens_resent + each.tokens_answered)
        priced[each.session] = priced.get(each.session, 0.0) - cost
    for use in uses:
        priced[use.session] += CACHED_PRICE * use.saved
    return mean_by_session(list(net.values())), mean_by_session(list(priced.values()))


def _recorded(its: Record) -> dict[str, Any] | None:
    """The figures of one mode; None when no list was recorded in it."""
    if not its.lists:
        return None
    fresh = [use for use in its.uses if use.fresh]
    missed = [use for use in its.uses if not use.in_list]
    return {
        **lists_of(its.lists),
        "calls": len(its.uses),
        "new_calls": len(fresh),
        "in_list": percents(its.uses),
        "new_in_list": percents(fresh),
        "missed": len(missed),
        "found_by_search": sum(use.found == "searched" for use in missed),
        "in_list_interval": _percents(shares_of(its.uses)),
        "mean_list": _mean([use.shown for use in its.uses]),
        "mean_available": _mean([use.available for use in its.uses]),
        "saved_per_request": _mean([use.saved for use in its.uses]),
        "surfaces": {
            name: sum(each.surface == name for each in its.lists)
            for name in sorted({each.surface for each in its.lists})
        },
    }


def _strategy(name: str, steps: Sequence[Step], size: Mapping[str, float | None], own_tokens: int) -> dict[str, Any]:
    per_tool = size["tokens_per_tool"]
    hidden = _mean([step.candidates - step.size for step in steps])
    saved = None if per_tool is None or hidden is None else round(per_tool * hidden - own_tokens)
    return {
        "predictor": name,
        **figures(steps),
        "in_list_interval": _percents(shares_of(steps)),
        "new_in_list_interval": _percents(shares_of([step for step in steps if step.fresh])),
        "saved_per_list": saved,
    }


def _percents(found: Interval | None) -> list[float] | None:
    return None if found is None else [round(100 * found.low, 2), round(100 * found.high, 2)]


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 2) if values else None
