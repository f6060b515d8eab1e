"""Whether filtering is worth switching on, in words, and why."""

from dataclasses import dataclass
from typing import Final, Literal

from riglm.application.reporting.intervals import Interval

FEWEST_SESSIONS: Final = 20
"""With fewer sessions one odd day decides."""

FEWEST_CALLS: Final = 100
"""With fewer calls a share is not known to six points, even where calls have nothing to do with each other."""

LEAST_HITS: Final = 0.8
"""Of a hundred calls, so many must find their tool in the list: each other one takes a search more."""

Code = Literal[
    "empty", "nothing_to_save", "too_early", "nothing_hidden", "too_many_misses", "costs_more", "unsure", "worth_it"
]
Basis = Literal["record", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a verdict goes by.

    `others` are sessions that say nothing, since they were before the time in question or were shown no list. `tools`
    and `tokens` are those of a usual catalogue, which passes whole up to `whole_tools` and `whole_tokens`. `recorded`
    are the sessions whose lists were recorded, by which `hidden`, `net` and `priced` go. `hits` is where the share of
    calls lies whose tool was in the list, by the `basis`. `hidden` says whether any list hid anything; None where no
    list could have, since clients get all and are told what to load. `net` is where the tokens lie that a session
    saves, each list sent once, and `priced` the same for every request that is known of, at the prices of a prompt
    cache, in units of tokens outside of it.
    """

    is_on: bool
    others: int
    sessions: int
    calls: int
    tools: float | None
    tokens: float | None
    whole_tools: int
    whole_tokens: int
    recorded: int
    basis: Basis
    hits: Interval | None
    hidden: bool | None
    net: Interval | None
    priced: Interval | None


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
    reasons = (_size(evidence), _enough(evidence), _hidden(evidence), _hits(evidence), _tokens(evidence))
    code = _code(reasons)
    return Verdict(code=code, text=_text(code, evidence), reasons=reasons)


_FAILING: Final[dict[str, Code]] = {
    "catalogue": "nothing_to_save",
    "sessions": "too_early",
    "hidden": "nothing_hidden",
    "hits": "too_many_misses",
    "tokens": "costs_more",
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
        "nothing_to_save": "Not worth it: your catalogue is small, and passes whole in either mode.",
        "too_early": f"Too early to say: {go_on}, and ask again.",
        "nothing_hidden": "Not yet: nothing would have been hidden.",
        "too_many_misses": "Not yet: too many calls would have needed a search first.",
        "costs_more": "Not yet: it would have cost more tokens than it saved.",
        "unsure": "Not sure yet: the numbers may still fall to either side.",
    }[code]
    return f"{words} Filtering is on: `riglm shadow` shows everything again." if evidence.is_on else words


def _size(evidence: Evidence) -> Reason:
    tools, tokens = evidence.tools, evidence.tokens
    if tools is None:
        return Reason(name="catalogue", met=None, text="it is not known how many tools there are")
    if tokens is None and tools <= evidence.whole_tools:
        return Reason(name="catalogue", met=None, text=f"it is not known how many tokens {tools:,.0f} tools are")
    small = tools <= evidence.whole_tools and tokens is not None and tokens <= evidence.whole_tokens
    size = f"{tools:,.0f} tools" + (f" of about {tokens:,.0f} tokens" if tokens else "")
    bounds = f"{evidence.whole_tools} tools and {evidence.whole_tokens:,} tokens"
    if small:
        return Reason(name="catalogue", met=False, text=f"a session has {size}: up to {bounds} all are shown")
    return Reason(name="catalogue", met=True, text=f"a session has {size}, more than {bounds}")


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
    text = (
        "no list would have been shorter: little was known of these sessions, or they ended in their first turn; see "
        "filtering.turn_pause and filtering.cold_start_limit"
    )
    return Reason(name="hidden", met=False, text=text)


def _hits(evidence: Evidence) -> Reason:
    found = evidence.hits
    if found is None:
        return Reason(name="hits", met=None, text="no call was judged yet")
    by = "by what was recorded" if evidence.basis == "record" else "by the sessions walked again"
    low, high = _of_100(found.low), _of_100(found.high)
    text = f"{low} to {high} of 100 calls find their tool in the list, {by}; at least {_of_100(LEAST_HITS)} must"
    return Reason(name="hits", met=_above(found, LEAST_HITS) if _is_enough(evidence) else None, text=text)


def _of_100(share: float) -> int:
    """A share in percent, never rounded to the other side of `LEAST_HITS`: the mark beside it would look wrong."""
    nearest = round(100 * share)
    return min(nearest, round(100 * LEAST_HITS) - 1) if share < LEAST_HITS else nearest


def _tokens(evidence: Evidence) -> Reason:
    if evidence.hidden is None:
        return Reason(name="tokens", met=True, text="the list itself costs the same")
    net, priced = evidence.net, evidence.priced
    if net is None:
        return Reason(name="tokens", met=None, text="too few lists were recorded to say what they save")
    known = [_above(net, 0.0), None if priced is None else _above(priced, 0.0)]
    met = True if True in known else None if None in known else False
    text = f"a session saves {round(net.low):+,} to {round(net.high):+,} tokens net, each list sent once"
    if priced is not None:
        text += f"; {round(priced.low):+,} to {round(priced.high):+,} over all its requests"
        text += ", at the prices of a prompt cache"
    if not _is_enough_recorded(evidence):
        met, text = None, f"{text}, by the lists of {_sessions(evidence.recorded)}"
    return Reason(name="tokens", met=met, text=text)


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
