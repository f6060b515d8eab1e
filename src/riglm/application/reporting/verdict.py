"""Whether filtering is worth switching on, in words, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

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
    low, high = _ends(np.array(hits, dtype=np.float64), np.array(calls, dtype=np.float64))
    return Interval(max(0.0, min(plain.low, low)), min(1.0, max(plain.high, high)))


def ratio_by_session(parts: Sequence[float], wholes: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two sums over sessions; None with fewer than two sessions."""
    if len(parts) < 2:  # one session says nothing of others
        return None
    return Interval(*_ends(np.array(parts, dtype=np.float64), np.array(wholes, dtype=np.float64)))


def _ends(parts: NDArray[np.float64], wholes: NDArray[np.float64]) -> tuple[float, float]:
    """Between what the sum of parts by that of wholes lies, over draws of as many sessions as there are."""
    count, random = len(parts), np.random.default_rng(_SEED)
    ratios = np.empty(_DRAWS if count <= _MANY else _FEW_DRAWS)
    at_once = max(1, _NUMBER_BATCH_SIZE // count)
    for start in range(0, len(ratios), at_once):
        drawn = random.integers(0, count, size=(min(at_once, len(ratios) - start), count))
        ratios[start : start + len(drawn)] = parts[drawn].sum(axis=1) / np.maximum(wholes[drawn].sum(axis=1), 1.0)
    middle = float(parts.sum() / max(wholes.sum(), 1.0))
    low, high = (middle + _stretch(count) * (float(end) - middle) for end in np.quantile(ratios, _ENDS))
    return low, high


def _stretch(count: int) -> float:
    """How much wider an interval from few sessions must be: their spread is smaller, and itself not well known.

    Uses Student's distribution in place of the normal one, by the first term of its expansion.
    """
    free = max(count - 1, 1)
    return math.sqrt(count / free) * (1 + (_Z * _Z + 1) / (4 * free))


MIN_SESSIONS: Final = 20
"""With fewer sessions one odd day decides."""

MIN_CALLS: Final = 100
"""With fewer calls, a few odd ones decide."""

VerdictCode = Literal["empty", "too_early", "nothing_hidden", "costs_more", "unsure", "worth_it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInput:
    """The figures behind a verdict.

    `others` are sessions that do not count, since they started earlier or have no list. `recorded` are the sessions
    whose lists were recorded, by which `hidden` and `price` go. `hidden` is True if any list hid something, None where
    none could have, since clients get all tools with preload hints. `price` is the interval of the price relative to no
    proxy.
    """

    is_on: bool
    others: int
    sessions: int
    calls: int
    recorded: int
    hidden: bool | None
    price: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCheck:
    """One thing that must hold; `met` is None while that is not known."""

    name: str
    met: bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do, and the reasons, in the order in which they were looked at."""

    code: VerdictCode
    text: str
    reasons: tuple[VerdictCheck, ...]


def judge(evidence: VerdictInput) -> Verdict:
    """The first reason that is not met decides; one that is not known leaves it open."""
    if not evidence.sessions:
        return Verdict(code="empty", text=_empty(evidence.others), reasons=())
    reasons = (_enough(evidence), _hidden(evidence), _price(evidence))
    code = _code(reasons)
    return Verdict(code=code, text=_text(code, evidence), reasons=reasons)


_FAILING: Final[dict[str, VerdictCode]] = {"sessions": "too_early", "hidden": "nothing_hidden", "price": "costs_more"}


def _empty(others: int) -> str:
    asked = "Work with riglm in front of your servers for some days (`riglm init` puts it there), then ask again."
    if not others:
        return f"Nothing is recorded yet. {asked}"
    return (
        f"No session is recorded in this time that was shown a list and used a tool. {others:,} others are: they were "
        f"before it, or were imported from transcripts, which do not contain the available tools. {asked}"
    )


def _code(reasons: tuple[VerdictCheck, ...]) -> VerdictCode:
    for reason in reasons:
        if reason.met is False:
            return _FAILING[reason.name]
    return "worth_it" if all(reason.met for reason in reasons) else "unsure"


def _text(code: VerdictCode, evidence: VerdictInput) -> str:
    if code == "worth_it":
        return "Filtering is on, and worth it." if evidence.is_on else "Worth switching on: `riglm enforce`."
    go_on = "go on" if evidence.is_on else "go on in shadow mode"
    words = {
        "too_early": f"Too early to say: {go_on}, and ask again.",
        "nothing_hidden": "Not worth it now: no list hides anything, because that would not pay.",
        "costs_more": "Not worth it now: sessions cost no less than without a proxy.",
        "unsure": "Not sure yet: the numbers may still fall to either side.",
    }[code]
    return f"{words} Filtering is on: `riglm shadow` shows everything again." if evidence.is_on else words


def _enough(evidence: VerdictInput) -> VerdictCheck:
    counted = f"{_number(evidence.sessions, 'session')} with {_number(evidence.calls, 'call')}"
    text = f"{counted}; it takes {MIN_SESSIONS} and {MIN_CALLS}"
    return VerdictCheck(name="sessions", met=_is_enough(evidence), text=text)


def _is_enough(evidence: VerdictInput) -> bool:
    return evidence.sessions >= MIN_SESSIONS and evidence.calls >= MIN_CALLS


def _is_enough_recorded(evidence: VerdictInput) -> bool:
    return _is_enough(evidence) and evidence.recorded >= MIN_SESSIONS


def _hidden(evidence: VerdictInput) -> VerdictCheck:
    if evidence.hidden is None:
        text = "these clients are shown all tools, with marks on those to load: nothing is hidden from them"
        return VerdictCheck(name="hidden", met=True, text=text)
    if evidence.hidden:
        return VerdictCheck(name="hidden", met=True, text="lists would have been shorter than the whole catalogue")
    if not evidence.recorded:
        return VerdictCheck(
            name="hidden", met=None, text="no list of filtering was recorded yet, not even in shadow mode"
        )
    if not _is_enough_recorded(evidence):
        text = f"no list would have been shorter so far, in {_sessions(evidence.recorded)}"
        return VerdictCheck(name="hidden", met=None, text=text)
    text = "no list would have been shorter: hiding tools would not have paid"
    return VerdictCheck(name="hidden", met=False, text=text)


def _price(evidence: VerdictInput) -> VerdictCheck:
    if evidence.hidden is None:
        return VerdictCheck(name="price", met=True, text="the list itself costs the same")
    found = evidence.price
    if found is None:
        return VerdictCheck(name="price", met=None, text="too few sessions were recorded to price them")
    below = _above(Interval(-found.high, -found.low), -1.0)
    text = f"sessions cost {found.low:.2f} to {found.high:.2f} of the price without a proxy; it must be below 1"
    if not _is_enough_recorded(evidence):
        below, text = None, f"{text}, by the lists of {_sessions(evidence.recorded)}"
    return VerdictCheck(name="price", met=below, text=text)


def _sessions(count: int) -> str:
    few = f"; {MIN_SESSIONS} are needed for a verdict" if count < MIN_SESSIONS else ""
    return f"{_number(count, 'session')}{few}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _above(found: Interval, bound: float) -> bool | None:
    """Whether all of an interval lies above a bound, or none of it; None when it may be either."""
    if found.low >= bound and found.high > bound:
        return True
    return False if found.high < bound or found.low == found.high == bound else None
