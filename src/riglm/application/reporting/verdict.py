"""Whether filtering is worth switching on, in words, and why."""

from dataclasses import dataclass
from typing import Final, Literal

from riglm.application.reporting.intervals import Interval

FEWEST_SESSIONS: Final = 20
"""With fewer sessions one odd day decides."""

FEWEST_CALLS: Final = 100
"""With fewer calls, a few odd ones decide."""

Code = Literal["empty", "too_early", "nothing_hidden", "costs_more", "unsure", "worth_it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
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
class Reason:
    """One thing that must hold; `met` is None while that is not known."""

    name: str
    met: bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do, and the reasons, in the order in which they were looked at."""

    code: Code
    text: str
    reasons: tuple[Reason, ...]


def judge(evidence: Evidence) -> Verdict:
    """The first reason that is not met decides; one that is not known leaves it open."""
    if not evidence.sessions:
        return Verdict(code="empty", text=_empty(evidence.others), reasons=())
    reasons = (_enough(evidence), _hidden(evidence), _price(evidence))
    code = _code(reasons)
    return Verdict(code=code, text=_text(code, evidence), reasons=reasons)


_FAILING: Final[dict[str, Code]] = {
    "sessions": "too_early",
    "hidden": "nothing_hidden",
    "price": "costs_more",
}


def _empty(others: int) -> str:
    asked = "Work with riglm in front of your servers for some days (`riglm init` puts it there), then ask again."
    if not others:
        return f"Nothing is recorded yet. {asked}"
    return (
        f"No session is recorded in this time that was shown a list and used a tool. {others:,} others are: they were "
        f"before it, or were learned from what clients had kept, which does not tell what tools there were. {asked}"
    )


def _code(reasons: tuple[Reason, ...]) -> Code:
    for reason in reasons:
        if reason.met is False:
            return _FAILING[reason.name]
    return "worth_it" if all(reason.met for reason in reasons) else "unsure"


def _text(code: Code, evidence: Evidence) -> str:
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


def _enough(evidence: Evidence) -> Reason:
    counted = f"{_number(evidence.sessions, 'session')} with {_number(evidence.calls, 'call')}"
    text = f"{counted}; it takes {FEWEST_SESSIONS} and {FEWEST_CALLS}"
    return Reason(name="sessions", met=_is_enough(evidence), text=text)


def _is_enough(evidence: Evidence) -> bool:
    return evidence.sessions >= FEWEST_SESSIONS and evidence.calls >= FEWEST_CALLS


def _is_enough_recorded(evidence: Evidence) -> bool:
    return _is_enough(evidence) and evidence.recorded >= FEWEST_SESSIONS


def _hidden(evidence: Evidence) -> Reason:
    if evidence.hidden is None:
        text = "these clients are shown all tools, with marks on those to load: nothing is hidden from them"
        return Reason(name="hidden", met=True, text=text)
    if evidence.hidden:
        return Reason(name="hidden", met=True, text="lists would have been shorter than the whole catalogue")
    if not evidence.recorded:
        return Reason(name="hidden", met=None, text="no list of filtering was recorded yet, not even in shadow mode")
    if not _is_enough_recorded(evidence):
        text = f"no list would have been shorter so far, in {_sessions(evidence.recorded)}"
        return Reason(name="hidden", met=None, text=text)
    text = "no list would have been shorter: hiding tools would not have paid"
    return Reason(name="hidden", met=False, text=text)


def _price(evidence: Evidence) -> Reason:
    if evidence.hidden is None:
        return Reason(name="price", met=True, text="the list itself costs the same")
    found = evidence.price
    if found is None:
        return Reason(name="price", met=None, text="too few sessions were recorded to price them")
    below = _above(Interval(-found.high, -found.low), -1.0)
    text = f"sessions cost {found.low:.2f} to {found.high:.2f} of the price without a proxy; it must be below 1"
    if not _is_enough_recorded(evidence):
        below, text = None, f"{text}, by the lists of {_sessions(evidence.recorded)}"
    return Reason(name="price", met=below, text=text)


def _sessions(count: int) -> str:
    few = f"; it takes {FEWEST_SESSIONS} to tell" if count < FEWEST_SESSIONS else ""
    return f"{_number(count, 'session')}{few}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _above(found: Interval, bound: float) -> bool | None:
    """Whether all of an interval lies above a bound, or none of it; None when it may be either."""
    if found.low >= bound and found.high > bound:
        return True
    return False if found.high < bound or found.low == found.high == bound else None
