"""The report's figures day by day."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from riglm.application.evaluation.history import Step, figures
from riglm.application.evaluation.record import Record, RecordedList, RecordedUse
from riglm.application.reporting.counted import lists_of, percents
from riglm.application.reporting.intervals import wilson

_Timed = TypeVar("_Timed", Step, RecordedList, RecordedUse)


def days_of(steps: Sequence[Step], record: Record, day_of: Callable[[float], str]) -> list[dict[str, Any]]:
    """Each day on which something was called or listed, the first one first.

    The replay's calls by the day of the call, what was recorded of lists beside it. The interval of a day takes calls
    for independent: a day has too few sessions to draw from.
    """
    walked, lists, uses = _by_day(steps, day_of), _by_day(record.lists, day_of), _by_day(record.uses, day_of)
    return [_day(day, walked.get(day, []), lists.get(day, []), uses.get(day, [])) for day in sorted({*walked, *lists})]


def _day(day: str, steps: Sequence[Step], lists: Sequence[RecordedList], uses: Sequence[RecordedUse]) -> dict[str, Any]:
    interval = wilson(sum(step.in_list for step in steps), len(steps))
    told = figures(steps)
    judged = [use for use in uses if use.hides]
    return {
        "day": day,
        **{name: told[name] for name in ("sessions", "calls", "new_calls", "in_list", "new_in_list", "mean_list")},
        "in_list_interval": interval and [round(100 * interval.low, 2), round(100 * interval.high, 2)],
        "recorded": {
            **lists_of(lists),
            "calls": len(judged),
            "in_list": percents(judged),
            "missed": sum(not use.in_list for use in judged),
            "mean_list": round(sum(use.shown for use in judged) / len(judged), 2) if judged else None,
        },
    }


def _by_day(timed: Iterable[_Timed], day_of: Callable[[float], str]) -> dict[str, list[_Timed]]:
    found: dict[str, list[_Timed]] = {}
    for each in timed:
        found.setdefault(day_of(each.at), []).append(each)
    return found
