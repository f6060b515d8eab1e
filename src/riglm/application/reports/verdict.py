"""Whether filtering is worth switching on, in words, and why: one verdict for the report and the control API."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.application.reports.figures import Observations
from riglm.domain.duration import format_count
from riglm.domain.exposure import Surface
from riglm.domain.schemas.control_api import VerdictCheckModel, VerdictCode, VerdictModel

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

    `sessions` used a tool and got a complete list; `unlisted` used a tool and got none, and `others` are further ones
    in the store. `recorded` are the sessions with a list of filtering, by which `hidden` and `price` go. `hidden` is
    True if any of these lists hid something. With `is_deferred` all of them have preload hints instead: the client
    defers the tools without one, and `hidden` is True if any tool had one. `price` is the interval of the price
    relative to no proxy.
    """

    is_on: bool
    others: int
    unlisted: int = 0
    sessions: int
    calls: int
    recorded: int
    hidden: bool
    price: Interval | None
    is_deferred: bool = False

    @property
    def is_enough(self) -> bool:
        """True if the recorded work is enough for a verdict."""
        return self.sessions >= MIN_SESSIONS and self.calls >= MIN_CALLS and self.recorded >= MIN_SESSIONS

    @property
    def baseline(self) -> str:
        """What the price is relative to, in words."""
        return "with the client's tool search alone" if self.is_deferred else "without a proxy"


def judge_figures(figures: Observations, *, is_on: bool, stored: int) -> VerdictModel:
    """Return the verdict on recorded sessions; `is_on` is True if filtering is on now, in the mode `enforce`.

    `stored` is the number of all sessions in the store.
    """
    usage, now = figures.usage, figures.now
    selected = [each for each in now.lists if each.mode != "off" and each.surface != Surface.FULL]
    is_deferred = bool(selected) and all(each.surface == Surface.HINTS for each in selected)
    costs = [each.cost for each in now.costs]
    return judge(
        VerdictInput(
            is_on=is_on,
            others=stored - usage.listed_sessions - usage.unlisted_sessions,
            unlisted=usage.unlisted_sessions,
            sessions=usage.listed_sessions,
            calls=usage.listed_calls,
            recorded=len({each.session for each in selected}),
            hidden=any(each.shown > 0 if is_deferred else each.shown < each.available for each in selected),
            price=ratio_by_session([cost.riglm for cost in costs], [cost.no_proxy for cost in costs]),
            is_deferred=is_deferred,
        )
    )


def judge(evidence: VerdictInput) -> VerdictModel:
    """The first reason that is not met decides; one that is not known leaves it open."""
    if not evidence.sessions:
        return VerdictModel(code="empty", text=_explain_empty(evidence), reasons=())
    reasons = (_check_enough(evidence), _check_hidden(evidence), _check_price(evidence))
    failing = (_FAILING[each.name] for each in reasons if each.met is False)
    code = next(failing, "worth_it" if all(each.met for each in reasons) else "unsure")
    return VerdictModel(code=code, text=_format_verdict(code, evidence), reasons=reasons)


_FAILING: Final[dict[str, VerdictCode]] = {"sessions": "too_early", "hidden": "nothing_hidden", "price": "costs_more"}


def _explain_empty(evidence: VerdictInput) -> str:
    others, unlisted = evidence.others, evidence.unlisted
    asked = "Work with riglm in front of your servers for some days (`riglm init` puts it there), then ask again."
    if not others and not unlisted:
        return f"Nothing is recorded yet. {asked}"
    facts = ["No session is recorded in this time that got a complete tool list and used a tool."]
    if unlisted:
        facts.append(
            f"{format_count(unlisted, 'session')} used a tool without one: a server had not sent its tools in time, or "
            "the client kept an older list. `riglm doctor` names the servers that do not answer."
        )
    if others:
        facts.append(
            f"{format_count(others, 'other')} in the store used no tool, started before that time, or "
            "were imported from transcripts, which do not contain the available tools."
        )
    return " ".join([*facts, asked])


def _format_verdict(code: VerdictCode, evidence: VerdictInput) -> str:
    if code == "worth_it":
        return "Filtering is on, and worth it." if evidence.is_on else "Worth switching on: `riglm enforce`."
    go_on = "go on" if evidence.is_on else "go on in shadow mode"
    words = {
        "too_early": f"Too early to say: {go_on}, and ask again.",
        "nothing_hidden": "Not worth it now: no list hides anything, because that would not pay.",
        "costs_more": f"Not worth it now: sessions cost no less than {evidence.baseline}.",
        "unsure": "Not sure yet: the numbers may still fall to either side.",
    }[code]
    if evidence.is_deferred and code == "nothing_hidden":
        words = "Not worth it now: no tool gets a preload hint, because that would not pay."
    return f"{words} Filtering is on: `riglm shadow` shows everything again." if evidence.is_on else words


def _check_enough(evidence: VerdictInput) -> VerdictCheckModel:
    counted = f"{format_count(evidence.sessions, 'session')} with {format_count(evidence.calls, 'call')}"
    is_met = evidence.sessions >= MIN_SESSIONS and evidence.calls >= MIN_CALLS
    return VerdictCheckModel(name="sessions", met=is_met, text=f"{counted}; it takes {MIN_SESSIONS} and {MIN_CALLS}")


def _check_hidden(evidence: VerdictInput) -> VerdictCheckModel:
    is_on, is_deferred = evidence.is_on, evidence.is_deferred
    nothing = "no tool got a preload hint" if is_deferred else "no list was shorter than the whole catalog"
    is_met: bool | None = None
    if evidence.hidden:
        is_met, does = True, ("get" if is_on else "would get") if is_deferred else ("are" if is_on else "would be")
        text = f"tools {does} preload hints" if is_deferred else f"lists {does} shorter than the whole catalog"
    elif not evidence.recorded:
        text = "no complete list of filtering is recorded yet: it was off, or a server had not sent its tools in time"
    elif evidence.is_enough:
        is_met, text = False, f"{nothing}: that would not have paid"
    else:
        text = f"{nothing} so far, in {_format_sessions(evidence.recorded)}"
    return VerdictCheckModel(name="hidden", met=is_met, text=text)


def _check_price(evidence: VerdictInput) -> VerdictCheckModel:
    found = evidence.price
    if found is None:
        return VerdictCheckModel(name="price", met=None, text="too few sessions were recorded to price them")
    is_below = found.high <= 1 and found.low < 1
    is_known = is_below or found.low > 1 or found.low == found.high == 1
    text = f"sessions cost {found.low:.2f} to {found.high:.2f} of the price {evidence.baseline}; it must be below 1"
    if not evidence.is_enough:
        text += f", by the lists of {_format_sessions(evidence.recorded)}"
    return VerdictCheckModel(name="price", met=is_below if is_known and evidence.is_enough else None, text=text)


def _format_sessions(count: int) -> str:
    few = f"; {MIN_SESSIONS} are needed for a verdict" if count < MIN_SESSIONS else ""
    return f"{format_count(count, 'session')}{few}"
