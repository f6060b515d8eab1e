"""All at a glance."""

import math
from collections.abc import Callable, Iterable, Sequence

from riglm.application.control.counting import Counting
from riglm.application.control.history import mean
from riglm.application.control.tool_use import ToolUse
from riglm.application.recording.record_queue import RecordCounts
from riglm.domain.control import (
    ListTotals,
    RecordTotals,
    SessionTotals,
    Summary,
    TokenTotals,
    ToolTotals,
    ZeroHop,
)
from riglm.domain.exposure import ExposureTotals
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.overview import Usage


class Statistics:
    """Sums up what was used, shown and found."""

    def __init__(self, counting: Counting, tools: ToolUse, records: Callable[[], RecordCounts]) -> None:
        """`records` may be called by any thread."""
        self._counting = counting
        self._tools = tools
        self._records = records

    async def summary(self, since: float) -> Summary:
        """All at a glance."""

        def counted(store: AnalyticsPort) -> tuple[Usage, Sequence[ExposureTotals], tuple[int, int]]:
            [usage] = store.usage(since, math.inf)
            return usage, store.exposure_totals(since), store.count_sessions(since)

        usage, shown, (active, total) = await self._counting.counted(("summary", since), counted)
        known = [each for each in await self._tools.known(since) if each.upstream != OWN_UPSTREAM]
        used = len({each.tool for each in known if each.uses})
        names = len({each.tool for each in known})
        records = self._records()
        return Summary(
            since=since,
            sessions=SessionTotals(active=active, total=total),
            calls=usage.calls,
            failures=usage.failures,
            zero_hop=ZeroHop(hits=usage.listed, searched=usage.searched, missed=usage.named),
            lists=ListTotals(
                shown=usage.lists,
                changes=sum(each.changes for each in shown if each.mode != "shadow"),
                mean_shown=mean(usage.tools_shown, usage.lists),
                mean_available=mean(usage.tools_available, usage.lists),
            ),
            tokens=_tokens(shown),
            records=RecordTotals(
                accepted=records.accepted,
                stored=records.stored,
                queued=records.queued,
                spooled=records.spooled,
                dropped=records.dropped,
                reasons=dict(records.reasons),
            ),
            tools=ToolTotals(known=names, used=used, never_used=names - used),
            searches=sum(each.searches for each in shown),
        )


def _tokens(shown: Iterable[ExposureTotals]) -> TokenTotals:
    """What clients were given: in the mode `shadow` that is all, and nothing is hidden."""
    total = TokenTotals(shown=0, hidden=0, own=0, resent=0)
    for each in shown:
        if each.mode == "shadow":
            more = TokenTotals(shown=each.tokens_shown + each.tokens_hidden, hidden=0, own=0, resent=0)
        else:
            more = TokenTotals(
                shown=each.tokens_shown, hidden=each.tokens_hidden, own=each.tokens_own, resent=each.tokens_resent
            )
        total = TokenTotals(
            shown=total.shown + more.shown,
            hidden=total.hidden + more.hidden,
            own=total.own + more.own,
            resent=total.resent + more.resent,
        )
    return total
