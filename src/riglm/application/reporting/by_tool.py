"""Which tools would have been missed, and how they would have been found."""

import statistics
from collections.abc import Sequence
from typing import Any

from riglm.application.evaluation.history import Step
from riglm.application.evaluation.record import RecordedUse
from riglm.domain.invocation import Found


def missed_tools(steps: Sequence[Step], uses: Sequence[RecordedUse]) -> list[dict[str, Any]]:
    """Each tool that a list lacked when it was called, the most often missed first, then by name.

    `missed` of `calls` by the replay, `place` the usual one that the tool had in the ranking then, counted from 1: a
    list of that length would have held it. `recorded_missed` of `recorded_calls` by what was recorded; of those,
    `searched` were found by a search and `named` called by their name all the same. In shadow mode both are 0, since
    the client saw every tool: a search, one call more, would have found them.
    """
    found: dict[str, dict[str, Any]] = {}
    places: dict[str, list[int]] = {}
    for step in steps:
        row = _row(found, step.tool, step.server)
        row["calls"] += 1
        if not step.in_list:
            row["missed"] += 1
            places.setdefault(step.tool, []).append(step.place + 1)
    for use in uses:
        row = _row(found, use.tool, use.server)
        row["recorded_calls"] += 1
        if not use.in_list:
            row["recorded_missed"] += 1
            row["searched"] += use.found is Found.SEARCHED
            row["named"] += use.found is Found.NAMED
    for tool, its in places.items():
        found[tool]["place"] = int(statistics.median(its))
    rows = [row for row in found.values() if row["missed"] or row["recorded_missed"]]
    return sorted(rows, key=lambda row: (-row["missed"] - row["recorded_missed"], row["tool"]))


def _row(found: dict[str, dict[str, Any]], tool: str, server: str) -> dict[str, Any]:
    counts = dict.fromkeys(("calls", "missed", "recorded_calls", "recorded_missed", "searched", "named"), 0)
    return found.setdefault(tool, {"tool": tool, "server": server, **counts, "place": None})
