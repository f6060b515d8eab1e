"""The report: what filtering would have hidden, missed and saved, by strategy, by day and by tool, and a verdict."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from riglm.application.reports.figures import (
    CallObservation,
    JudgedCall,
    ListObservation,
    Observations,
    UsageFigures,
    cost_fields,
    hit_figures,
    list_figures,
)
from riglm.application.reports.session_replay import ReplayedHistory, figures, percent_hit
from riglm.domain.client_support import support_of
from riglm.domain.duration import format_count
from riglm.domain.exposure import Mode, Surface
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.control_api import VerdictCheckModel, VerdictCode, VerdictModel
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.session_cost import CODING_AGENT, DEFAULT_SIZES, MIN_PRICED_SESSIONS, ClientBill, Cost, SessionSizes

_OF_DAY: Final = ("sessions", "calls", "new_calls", "hit_rate", "new_hit_rate", "mean_list")
_ARMS: Final = ("no_proxy", "host_search", "riglm")
_TOKENS: Final = ("uncached", "cached", "written", "output")


_Z: Final = 1.959964
"""Standard deviations that contain 95 % of a normal distribution."""
_DRAWS: Final = 2_000
_FEW_DRAWS: Final = 400
_MANY: Final = 20_000
"""Of more sessions fewer draws do: their intervals are narrow."""
_NUMBER_BATCH_SIZE: Final = 2_000_000
_ENDS: Final = (0.025, 0.975)
_SEED: Final = 7
"""The same record gives the same report."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true number lies in 95 of 100 cases."""

    low: float
    high: float


def wilson(hits: int, of: int) -> Interval | None:
    """Of a share between 0 and 1, for things that have nothing to do with each other; None of nothing."""
    if not of:
        return None
    share, square = hits / of, _Z * _Z / of
    middle = (share + square / 2) / (1 + square)
    reach = _Z * math.sqrt(share * (1 - share) / of + square / of / 4) / (1 + square)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def share_by_session(hits: Sequence[int], calls: Sequence[int]) -> Interval | None:
    """Of a share between 0 and 1 that was counted in sessions, hits and calls of each; None without calls.

    Calls of one session are alike, so whole sessions are drawn many times (bootstrap). Where these agree by chance,
    as when no call missed in a few sessions, that is too optimistic: the interval is never narrower than Wilson's.
    """
    plain = wilson(sum(hits), sum(calls))
    if plain is None:
        return None
    low, high = _draw_ends(np.array(hits, dtype=np.float64), np.array(calls, dtype=np.float64))
    return Interval(max(0.0, min(plain.low, low)), min(1.0, max(plain.high, high)))


def ratio_by_session(parts: Sequence[float], wholes: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two sums over sessions; None with fewer than two sessions."""
    if len(parts) < 2:  # one session says nothing of others
        return None
    return Interval(*_draw_ends(np.array(parts, dtype=np.float64), np.array(wholes, dtype=np.float64)))


def _draw_ends(parts: NDArray[np.float64], wholes: NDArray[np.float64]) -> tuple[float, float]:
    """Between what the sum of parts by that of wholes lies, over draws of as many sessions as there are."""
    count, random = len(parts), np.random.default_rng(_SEED)
    ratios = np.empty(_DRAWS if count <= _MANY else _FEW_DRAWS)
    at_once = max(1, _NUMBER_BATCH_SIZE // count)
    for start in range(0, len(ratios), at_once):
        drawn = random.integers(0, count, size=(min(at_once, len(ratios) - start), count))
        ratios[start : start + len(drawn)] = parts[drawn].sum(axis=1) / np.maximum(wholes[drawn].sum(axis=1), 1.0)
    middle = float(parts.sum() / max(wholes.sum(), 1.0))
    low, high = (middle + _widen_interval(count) * (float(end) - middle) for end in np.quantile(ratios, _ENDS))
    return low, high


def _widen_interval(count: int) -> float:
    """How much wider an interval from few sessions must be: their spread is smaller, and itself not well known.

    Uses Student's distribution in place of the normal one, by the first term of its expansion.
    """
    free = max(count - 1, 1)
    return math.sqrt(count / free) * (1 + (_Z * _Z + 1) / (4 * free))


MIN_SESSIONS: Final = 20
"""With fewer sessions one odd day decides."""

MIN_CALLS: Final = 100
"""With fewer calls, a few odd ones decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInput:
    """The figures behind a verdict.

    `sessions` used a tool after a list that was selected by use, and `calls` are these uses. `hidden` is True if any of
    these lists hid something. With `is_deferred` all of them have preload hints instead: the client defers the tools
    without one, and `hidden` is True if any tool had one. `price` is the interval of the price relative to no proxy.
    `empty` explains why there are no such sessions, and `effect` what the latest list does for its client.
    """

    is_on: bool
    sessions: int
    calls: int
    hidden: bool
    price: Interval | None
    is_deferred: bool = False
    empty: str = ""
    effect: str = ""

    @property
    def missing(self) -> str:
        """Return the sessions and calls that a verdict still takes, in words; empty if they are enough."""
        counts = {"more session": MIN_SESSIONS - self.sessions, "more tool call": MIN_CALLS - self.calls}
        return " and ".join(format_count(count, noun) for noun, count in counts.items() if count > 0)

    @property
    def baseline(self) -> str:
        """What the price is relative to, in words."""
        return "with the client's tool search alone" if self.is_deferred else "without a proxy"


def judge_figures(figures: Observations, rules: FilteringSettings, *, stored: int) -> VerdictModel:
    """Return the verdict on recorded sessions; `stored` is the number of all sessions in the store."""
    now, is_on = figures.now, find_mode(figures, rules) == "enforce" and rules.strategy == "prediction"
    selected = [each for each in now.lists if each.mode != "off" and each.surface != Surface.FULL]
    sessions = {each.session for each in selected}
    uses = [use for use in now.uses if use.session in sessions]
    costs = [each.cost for each in now.costs if each.session in sessions]
    return judge(
        VerdictInput(
            is_on=is_on,
            sessions=len({use.session for use in uses}),
            calls=len(uses),
            hidden=any(each.shown > 0 if _is_deferred(each) else each.shown < each.available for each in selected),
            price=ratio_by_session([cost.riglm for cost in costs], [cost.no_proxy for cost in costs]),
            is_deferred=bool(selected) and all(map(_is_deferred, selected)),
            empty=_explain_empty(figures, rules, stored),
            effect=_describe_effect(figures, selected, is_on=is_on),
        )
    )


def find_mode(figures: Observations, rules: FilteringSettings) -> Mode:
    """Return the mode of the latest list that was selected, which the file may not have; `off` if riglm hides none."""
    if not rules.is_on or rules.strategy == "none":
        return "off"
    return rules.mode if figures.mode == "off" else figures.mode


def _is_deferred(shown: ListObservation) -> bool:
    return shown.surface == Surface.HINTS


def judge(evidence: VerdictInput) -> VerdictModel:
    """The first reason that is not met decides; one that is not known leaves it open."""
    if not evidence.sessions:
        return VerdictModel(code="empty", text=_join(f"No verdict yet: {evidence.empty}", evidence.effect), reasons=())
    reasons = (_check_enough(evidence), _check_hidden(evidence), _check_price(evidence))
    failing = (_FAILING[each.name] for each in reasons if each.met is False)
    code = next(failing, "worth_it" if all(each.met for each in reasons) else "unsure")
    unknown = next((each.text for each in reasons if each.met is None), "")
    return VerdictModel(code=code, text=_format_verdict(code, evidence, unknown), reasons=reasons)


_FAILING: Final[dict[str, VerdictCode]] = {"sessions": "too_early", "hidden": "nothing_hidden", "price": "costs_more"}


def _explain_empty(figures: Observations, rules: FilteringSettings, stored: int) -> str:
    """Return why no session used a tool after a list that was selected by use."""
    surfaces = {each.surface for each in figures.now.lists}
    if not rules.is_on:
        return "filtering is off (`filtering.enabled: false`), so riglm selects no tools."
    if rules.strategy != "prediction":
        return f"`filtering.strategy` is {rules.strategy}, so riglm does not select tools by their use."
    if figures.mode != "off" and surfaces == {Surface.FULL}:
        return "clients get the surface `full`, the whole list."
    return _explain_no_use(figures.usage, stored)


def _explain_no_use(usage: UsageFigures, stored: int) -> str:
    if not stored:
        return "no session is recorded. Move a client's servers behind riglm with `riglm init`, and start the client."
    if not usage.sessions:
        return (
            f"none of the {format_count(stored, 'session')} in the store counts. They started earlier, have another "
            "profile, or were imported from transcripts, which do not contain the available tools."
        )
    if not usage.used_sessions:
        return f"no tool was called yet, in {format_count(usage.sessions, 'session')}."
    if usage.unlisted_sessions:
        return (
            f"{format_count(usage.unlisted_sessions, 'session')} used a tool without a complete list. `riglm doctor` "
            "names servers that do not answer."
        )
    return "no tool was called yet while filtering was on."


def _describe_effect(figures: Observations, selected: Sequence[ListObservation], *, is_on: bool) -> str:
    """Return what clients get of which riglm hides nothing; empty if it hides something from all of them."""
    deferred = [each for each in selected if _is_deferred(each)]
    if deferred:
        latest = max(deferred, key=lambda each: each.at)
        support = support_of(next((each.client for each in figures.sessions if each.id == latest.session), ""))
        client, does = support.title if support else "the client", "has" if is_on else "would have"
        return (
            f"Nothing is hidden from {client}, which defers tools itself: riglm {does} it load {latest.shown} of "
            f"{latest.available} at once (preload hints)."
        )
    if selected and all(each.shown == each.available for each in selected):
        return f"Nothing {'is' if is_on else 'would be'} hidden: of {selected[-1].available} tools, that does not pay."
    return ""


def _join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _format_verdict(code: VerdictCode, evidence: VerdictInput, unknown: str) -> str:
    """Return the verdict in one line; `unknown` is the first reason that is not known."""
    does = "removes these hints" if evidence.is_deferred else "shows everything again"
    switch = f"Filtering is on: `riglm shadow` {does}." if evidence.is_on else ""
    costs = f"Not worth it now: sessions cost no less than {evidence.baseline}."
    sentences = {
        "worth_it": ("Filtering is on, and worth it." if evidence.is_on else "Worth switching on: `riglm enforce`.",),
        "too_early": (f"No verdict yet: it takes {evidence.missing}.",),
        "unsure": (f"No verdict yet: {unknown}.",),
        "nothing_hidden": ("Not worth it now.",),
        "costs_more": (costs,),
    }[code]
    return _join(*sentences, evidence.effect, switch if code in {"nothing_hidden", "costs_more"} else "")


def _check_enough(evidence: VerdictInput) -> VerdictCheckModel:
    counted = f"{format_count(evidence.sessions, 'session')} with {format_count(evidence.calls, 'call')}"
    text = f"{counted}; it takes {MIN_SESSIONS} and {MIN_CALLS}"
    return VerdictCheckModel(name="sessions", met=not evidence.missing, text=text)


def _check_hidden(evidence: VerdictInput) -> VerdictCheckModel:
    is_on, is_deferred = evidence.is_on, evidence.is_deferred
    if evidence.hidden:
        does = ("get" if is_on else "would get") if is_deferred else ("are" if is_on else "would be")
        text = f"tools {does} preload hints" if is_deferred else f"lists {does} shorter than the whole catalog"
        return VerdictCheckModel(name="hidden", met=True, text=text)
    nothing = "no tool got a preload hint" if is_deferred else "no list was shorter than the whole catalog"
    return VerdictCheckModel(
        name="hidden",
        met=None if evidence.missing else False,
        text=f"{nothing} so far" if evidence.missing else f"{nothing}: that would not have paid",
    )


def _check_price(evidence: VerdictInput) -> VerdictCheckModel:
    found = evidence.price
    if found is None:
        return VerdictCheckModel(name="price", met=None, text="too few sessions were recorded to price them")
    is_below = found.high <= 1 and found.low < 1
    is_known = is_below or found.low > 1 or found.low == found.high == 1
    text = f"sessions cost {found.low:.2f} to {found.high:.2f} of the price {evidence.baseline}; it must be below 1"
    return VerdictCheckModel(name="price", met=is_below if is_known and not evidence.missing else None, text=text)


def format_headline(record: Observations) -> list[str]:
    """Return the price of the recorded sessions, and of the same as those of a coding agent; nothing without prices."""
    now, billed = record.now, {bill.client for bill in record.bills}
    is_fitted = any(session.client in billed for session in record.sessions)
    sizes = "with the sizes of your own bill" if is_fitted else _format_sizes(DEFAULT_SIZES)
    agents = _format_price("coding agents", now.cost_as_coding_agent, _format_sizes(CODING_AGENT))
    return [*_format_price("price", now.cost, sizes), *agents]


def bill_fields(record: Observations, prices: Prices) -> dict[str, Any]:
    """Return the billed price of each client with token usage next to that of the price model.

    Prices are in tokens of uncached input. `modeled` is the price with the `sizes` of the client, which all its prices
    in the report use, and `modeled_by_default` that with the default sizes.
    """
    sizes = _format_sizes(DEFAULT_SIZES)
    text = f"These sizes price the sessions of these clients; those of others have {sizes}."
    if not record.bills:
        text = (
            f"No token usage is stored, so prices assume {sizes}. `riglm learn-from` reads it from the transcripts of "
            "Claude Code, Codex and Gemini CLI."
        )
    return {
        "clients": [_client_fields(bill, prices) for bill in record.bills],
        "default_sizes": asdict(DEFAULT_SIZES),
        "text": text,
    }


def _client_fields(bill: ClientBill, prices: Prices) -> dict[str, Any]:
    sizes = bill.sizes
    return {
        "client": bill.client,
        "sessions": len(bill.sessions),
        **{count: bill.total(count) for count in ("requests", "calls")},
        "requests_per_session": round(bill.total("requests") / len(bill.sessions), 1),
        "tokens": {count: bill.total(count) for count in _TOKENS},
        "billed": round(bill.billed_price(prices), 1),
        "modeled": round(bill.modeled_price(prices, sizes), 1),
        "modeled_by_default": round(bill.modeled_price(prices, DEFAULT_SIZES), 1),
        "sizes": {name: round(size, 3) for name, size in asdict(sizes).items()},
    }


def _format_price(name: str, cost: Cost, sizes: str) -> list[str]:
    fields = cost_fields(cost)
    if fields["price"] is None:
        return []
    of_search = f"{fields['price_of_search']:.2f} of the host's tool search"
    return [f"{name}: {fields['price']:.2f} of no proxy, {of_search} ({sizes})"]


def _format_sizes(sizes: SessionSizes) -> str:
    return f"prompts of {sizes.prompt_tokens:,.0f} tokens and results of {sizes.call_tokens:,.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMetrics:
    """What sessions cost, the mean number of tools in their first lists, and the share of calls whose tool was listed.

    `listed` is None if no list hid anything.
    """

    cost: Cost
    tools: float
    first_list: float
    listed: float | None


def recorded_figures(record: Observations, *, as_coding_agent: bool = False) -> CostMetrics:
    """Return the figures of recorded sessions, of one mode."""
    first = {each.session: each for each in reversed(record.lists)}
    shown = [first[each.session] for each in record.costs]
    uses = record.judged
    return CostMetrics(
        cost=record.cost_as_coding_agent if as_coding_agent else record.cost,
        tools=mean_or_zero([each.available for each in shown]),
        first_list=mean_or_zero([each.shown for each in shown]),
        listed=mean_or_zero([use.is_hit for use in uses]) if uses else None,
    )


def cost_rows(figures: CostMetrics) -> list[dict[str, Any]]:
    """Return the figures of at least one session as one row for each arm; shares are in percent."""
    cost, listed = figures.cost, figures.listed
    lists = {
        "no_proxy": (round(figures.tools, 1), 100.0),
        "host_search": (None, None),
        "riglm": (round(figures.first_list, 1), None if listed is None else round(100 * listed, 1)),
    }
    return [
        {
            "arm": arm,
            "price": round(getattr(cost, arm) / cost.no_proxy, 3),
            "requests": round(getattr(cost, f"{arm}_requests") / cost.sessions, 1),
            "first_list": lists[arm][0],
            "listed": lists[arm][1],
        }
        for arm in _ARMS
    ]


def mean_or_zero(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def _find_interval(calls: Iterable[JudgedCall]) -> list[float] | None:
    """Where the share of calls lies whose tool was in the list, in percent; None without calls."""
    hits, all_ = Counter[object](), Counter[object]()
    for call in calls:
        all_[call.session] += 1
        hits[call.session] += call.is_hit
    return _to_percents(share_by_session(list(hits.values()), list(all_.values())))


def _list_fields(lists: Sequence[ListObservation]) -> dict[str, Any]:
    """Return the figures of lists, and the mean of the tokens that one saves."""
    found = list_figures(lists)
    return {**found, "net_per_list": round(found["tokens_net"] / len(lists), 1) if lists else None}


_Timed = TypeVar("_Timed", JudgedCall, ListObservation, CallObservation)


def _list_days(
    steps: Sequence[JudgedCall], record: Observations, day_of: Callable[[float], str]
) -> list[dict[str, Any]]:
    """Return the replay's calls and the recorded lists by day, the earliest first.

    The interval of a day assumes independent calls: a day has too few sessions to draw from.
    """
    calls, lists, uses = _by_day(steps, day_of), _by_day(record.lists, day_of), _by_day(record.uses, day_of)
    return [_day_fields(day, calls[day], lists[day], uses[day]) for day in sorted({*calls, *lists})]


def _day_fields(
    day: str, steps: Sequence[JudgedCall], lists: Sequence[ListObservation], uses: Sequence[CallObservation]
) -> dict[str, Any]:
    replayed = figures(steps)
    interval = _to_percents(wilson(sum(step.is_hit for step in steps), len(steps)))
    if all(step.shown == step.available for step in steps):  # a list of all tools cannot miss one
        replayed["hit_rate"] = replayed["new_hit_rate"] = interval = None
    judged = [use for use in uses if use.hides]
    return {
        "day": day,
        **{name: replayed[name] for name in _OF_DAY},
        "hit_rate_interval": interval,
        "recorded": {
            **_list_fields(lists),
            "calls": len(judged),
            "hit_rate": percent_hit(judged),
            "missed": sum(not use.is_hit for use in judged),
            "mean_list": _mean([use.shown for use in judged]),
        },
    }


def _by_day(timed: Iterable[_Timed], day_of: Callable[[float], str]) -> dict[str, list[_Timed]]:
    found = defaultdict[str, list[_Timed]](list)
    for each in timed:
        found[day_of(each.at)].append(each)
    return found


def _list_missed_tools(steps: Sequence[JudgedCall], uses: Sequence[CallObservation]) -> list[dict[str, Any]]:
    """Each tool that a list lacked when it was called, the most often missed first, then by name.

    `missed` of `calls` by the replay, `recorded_missed` of `recorded_calls` by what was recorded; of those,
    `searched` were found by a search and `named` called by their name all the same. In shadow mode and with preload
    hints both are 0, since the client had every tool: a search, one call more, would have found them.
    """
    counts = dict.fromkeys(("calls", "missed", "recorded_calls", "recorded_missed", "searched", "named"), 0)
    rows: dict[str, dict[str, Any]] = {}
    for step in steps:
        row = rows.setdefault(step.tool, {"tool": step.tool, "server": step.server, **counts})
        row["calls"] += 1
        row["missed"] += not step.is_hit
    for use in uses:
        row = rows.setdefault(use.tool, {"tool": use.tool, "server": use.server, **counts})
        row["recorded_calls"] += 1
        if not use.is_hit:
            row["recorded_missed"] += 1
            row["searched"] += use.found is DiscoveryMethod.SEARCHED
            row["named"] += use.found is DiscoveryMethod.NAMED
    missed = [row for row in rows.values() if row["missed"] or row["recorded_missed"]]
    return sorted(missed, key=lambda row: (-row["missed"] - row["recorded_missed"], row["tool"]))


MODES: Final = ("shadow", "enforce")
EXPLANATION: Final = (
    "All figures are of the same sessions: the latest that riglm proxied, up to 1,000 without --limit, with up to "
    "50,000 calls. Recorded lists are those that these rules showed, or in shadow mode would have shown. The replay "
    "makes the first list of each session from the sessions before it in the store, without contexts; it compares "
    "strategies. price is that of all model requests, with prompt caching, relative to no proxy; it takes "
    "two sessions. hit_rate is the share of calls whose tool was in the list, new_hit_rate the same for tools that the "
    "session had not used before; only recorded lists and replayed days that hid something count; with preload hints, "
    "tools without one count as hidden, and no proxy as the client's tool search. Ranges hold the true number in 95 of "
    "100 cases. Tokens are estimates: hidden less those of the meta-tools and their results, less re-sent is net. "
    "`riglm report --json` with the same options prints the same figures."
)
"""What the two ways to know are, and why they differ."""


def build_report(
    settings: Settings,
    record: Observations,
    replays: Mapping[str, ReplayedHistory],
    day_of: Callable[[float], str],
    *,
    stored: int,
    skipped: int,
    since: float,
    until: float,
) -> dict[str, Any]:
    """The report as plain values; shares are in percent, an interval is where 95 of 100 lie, or None.

    `record` are the figures of the sessions that count, `stored` is the number of all sessions in the store, imported
    ones included. `replays` are the calls of each strategy in the sessions that were replayed, `skipped` the number of
    sessions that were not. Times are in seconds since the epoch; `since` is 0 when all sessions count. `day_of` names
    the day of a time. Days and tools are of the replay with the configured strategy, or else with the first:
    `replayed_with` names it.
    """
    kind, rules = settings.predictor.kind, settings.filtering
    strategy = kind if kind in replays else next(iter(replays), "")
    steps = replays[strategy].calls if strategy else ()
    replayed = len({step.session for step in steps})
    usage = record.usage
    return {
        "since": since or None,
        "until": until,
        "sessions": usage.sessions,
        "calls": usage.calls,
        "failed_calls": usage.failures,
        "rules": {
            "mode": find_mode(record, rules),
            "strategy": kind if rules.strategy == "prediction" else rules.strategy,
            "coverage": rules.coverage,
            "min_tools": rules.min_tools,
            "max_tools": rules.max_tools,
        },
        "verdict": judge_figures(record, rules, stored=stored).model_dump(),
        "headline": format_headline(record),
        "bill": bill_fields(record, settings.prices.prices()),
        "record": {mode: _mode_fields(record.of(mode)) for mode in MODES},
        "strategies": [
            {
                "predictor": name,
                **replay.figures(),
                "hit_rate_interval": _find_interval(replay.calls),
                "new_hit_rate_interval": _find_interval(call for call in replay.calls if call.fresh),
            }
            for name, replay in replays.items()
            if replayed >= MIN_PRICED_SESSIONS
        ],
        "replayed_with": strategy,
        "replayed": {"calls": len(steps), "sessions": replayed, "skipped": skipped},
        "days": _list_days(steps, record.now, day_of),
        "tools": {"missed": _list_missed_tools(steps, record.now.uses), "never_used": sorted(usage.known - usage.used)},
        "explanation": EXPLANATION,
    }


def _mode_fields(its: Observations) -> dict[str, Any] | None:
    """The figures of one mode; None when no list was recorded in it."""
    if not its.lists:
        return None
    judged = its.judged
    fresh = [use for use in judged if use.fresh]
    fields = {
        **_list_fields(its.lists),
        "cost": cost_fields(its.cost),
        "cost_as_coding_agent": cost_fields(its.cost_as_coding_agent),
        "calls": len(judged),
        "new_calls": len(fresh),
        "hit_rate": percent_hit(judged),
        "new_hit_rate": percent_hit(fresh),
        **hit_figures(judged),
        "hit_rate_interval": _find_interval(judged),
        "mean_list": _mean([use.shown for use in judged]),
        "mean_available": _mean([use.available for use in judged]),
        "surfaces": dict(sorted(Counter(each.surface for each in its.lists).items())),
    }
    return {**fields, "facts": _format_facts(fields, is_shadow=its.mode == "shadow")}


def _format_facts(its: Mapping[str, Any], *, is_shadow: bool) -> dict[str, str]:
    """Return the figures of one mode in words, by title."""
    cost, is_deferred = its["cost"], list(its["surfaces"]) == [Surface.HINTS]
    of_search = f"{_or_dash(cost['price_of_search'], '.2f')} of the {'client' if is_deferred else 'host'}'s tool search"
    price = of_search if is_deferred else f"{_or_dash(cost['price'], '.2f')} of no proxy, {of_search}"
    sessions = format_count(cost["sessions"], "session")
    few = f"it takes {MIN_PRICED_SESSIONS} sessions with calls" if cost["price"] is None else ""
    missed = format_count(its["missed"], "call")
    if its["missed"]:
        found = "one search more for each" if is_shadow else f"{its['found_by_search']:,} found by a search of riglm"
        missed += f": {'tools without a hint, which the client searches for' if is_deferred else found}"
    sizes = f"{_or_dash(its['mean_list'], '.1f')} of {_or_dash(its['mean_available'], '.1f')}"
    tokens = (
        f"{its['tokens_hidden']:,} hidden - {its['tokens_meta_tools']:,} meta-tools - {its['tokens_resent']:,} re-sent "
        f"= {its['tokens_net']:+,} net, {its['net_per_list']:+,.0f} a list"
    )
    return {
        "price, with every request counted": f"{few or price} ({sessions})",
        "sessions, lists": f"{its['sessions']:,}, {its['lists']:,} ({its['changes']:,} replaced a list)",
        "hit rate": f"{_or_dash(its['hit_rate'], '.1f', ' %')} of {its['calls']:,} "
        f"({format_range(its['hit_rate_interval'])})",
        "the same for tools new to the session": f"{_or_dash(its['new_hit_rate'], '.1f', ' %')} of "
        f"{its['new_calls']:,}",
        f"tools {'with a preload hint' if is_deferred else 'in the list'} at a call": sizes,
        "missed": missed,
        **({} if is_deferred else {"tokens, each list sent once": tokens}),
        "surfaces": ", ".join(f"{count:,} {name or 'none'}" for name, count in its["surfaces"].items()),
    }


def _or_dash(number: float | None, form: str, unit: str = "") -> str:
    return "-" if number is None else f"{number:{form}}{unit}"


def format_range(interval: Sequence[float] | None) -> str:
    """Return an interval in words."""
    return "-" if interval is None else f"{interval[0]:.0f} to {interval[1]:.0f} %"


def _to_percents(found: Interval | None) -> list[float] | None:
    return None if found is None else [round(100 * found.low, 2), round(100 * found.high, 2)]


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 2) if values else None
