"""All at a glance."""

import math
from collections.abc import Callable, Sequence

from riglm.application.control.thread_bridge import CachedQueries
from riglm.application.control.tool_use import ToolQueries, mean
from riglm.application.evaluation.record import CallObservation, Observations, read_record
from riglm.application.recording.record_queue import RecordCounts
from riglm.domain.exposure import ExposureTotals
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.control_api import (
    ListTotals,
    PriceTotals,
    RecordTotals,
    SessionTotals,
    Summary,
    TokenTotals,
    ToolTotals,
    ZeroHop,
)
from riglm.domain.session_cost import MAX_SESSIONS
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.dashboard import UsageCounts


class Statistics:
    """Sums up what was used, shown and found."""

    def __init__(
        self,
        counting: CachedQueries,
        tools: ToolQueries,
        records: Callable[[], RecordCounts],
        prices: Callable[[], Prices] = Prices,
    ) -> None:
        """`records` and `prices` may be called by any thread; `prices` returns those in force."""
        self._prices = prices
        self._counting = counting
        self._tools = tools
        self._records = records

    async def summary(self, since: float) -> Summary:
        """All at a glance."""

        def counted(
            store: AnalyticsPort,
        ) -> tuple[UsageCounts, Sequence[ExposureTotals], tuple[int, int], Observations]:
            [usage] = store.usage(since, math.inf)
            latest = store.recent_calls(MAX_SESSIONS, since)
            exposures = store.list_exposures(*(session.id for session in latest))
            record = read_record(latest, exposures, self._prices())
            return usage, store.exposure_totals(since), store.count_sessions(since), record.of(record.mode)

        usage, shown, (active, total), record = await self._counting.counted(("summary", since), counted)
        known = [each for each in await self._tools.known(since) if each.upstream != OWN_UPSTREAM]
        used = len({each.tool for each in known if each.uses})
        names = len({each.tool for each in known})
        records = self._records()
        return Summary(
            since=since,
            sessions=SessionTotals(active=active, total=total),
            calls=usage.calls,
            failures=usage.failures,
            price=PriceTotals(
                mode=record.mode,
                sessions=record.cost.sessions,
                of_no_proxy=record.cost.price,
                of_host_search=record.cost.price_of_search,
            ),
            zero_hop=_zero_hop(record.judged),
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


def _zero_hop(uses: Sequence[CallObservation]) -> ZeroHop:
    missed = [use for use in uses if not use.in_list]
    searched = sum(use.found is DiscoveryMethod.SEARCHED for use in missed)
    return ZeroHop(hits=len(uses) - len(missed), searched=searched, missed=len(missed) - searched)


def _tokens(shown: Sequence[ExposureTotals]) -> TokenTotals:
    """Sum up what clients got: in mode `shadow` that is all, and nothing is hidden."""
    lists = [each for each in shown if each.mode != "shadow"]
    shadowed = sum(each.tokens_shown + each.tokens_hidden for each in shown if each.mode == "shadow")
    return TokenTotals(
        shown=shadowed + sum(each.tokens_shown for each in lists),
        hidden=sum(each.tokens_hidden for each in lists),
        own=sum(each.tokens_own for each in lists),
        resent=sum(each.tokens_resent for each in lists),
    )
