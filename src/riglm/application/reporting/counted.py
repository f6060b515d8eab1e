"""What lists and calls come to."""

from collections.abc import Iterable, Sequence
from typing import Any

from riglm.application.evaluation.history import Step
from riglm.application.evaluation.record import RecordedList, RecordedUse
from riglm.application.reporting.intervals import Interval, share_by_session

Judged = Step | RecordedUse
"""A call of which it is known whether its tool was in the list."""


def shares_of(calls: Iterable[Judged]) -> Interval | None:
    """Where the share of calls lies whose tool was in the list; None without calls."""
    hits: dict[object, int] = {}
    all_: dict[object, int] = {}
    for call in calls:
        all_[call.session] = all_.get(call.session, 0) + 1
        hits[call.session] = hits.get(call.session, 0) + call.in_list
    return share_by_session(list(hits.values()), list(all_.values()))


def percents(calls: Sequence[Judged]) -> float | None:
    """The share of calls whose tool was in the list, in percent; None without calls."""
    return round(100 * sum(call.in_list for call in calls) / len(calls), 2) if calls else None


def lists_of(lists: Sequence[RecordedList]) -> dict[str, Any]:
    """How many lists there were, how many took the place of another one, and their tokens, each list sent once.

    What riglm's own tools answered counts as theirs, as in `riglm.domain.exposure.ExposureTotals`.
    """
    net = sum(each.tokens_net for each in lists)
    return {
        "sessions": len({each.session for each in lists}),
        "lists": len(lists),
        "changes": sum(each.changed for each in lists),
        "tokens_hidden": sum(each.tokens_hidden for each in lists),
        "tokens_own": sum(each.tokens_own + each.tokens_answered for each in lists),
        "tokens_resent": sum(each.tokens_resent for each in lists),
        "tokens_net": net,
        "net_per_list": round(net / len(lists), 1) if lists else None,
    }
