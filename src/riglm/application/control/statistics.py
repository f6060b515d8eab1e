"""All at a glance."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from riglm.application.control.thread_bridge import CachedQueries
from riglm.application.control.tool_use import ToolQueries, mean
from riglm.application.reports.figures import ListObservation, cost_fields, hit_figures, list_figures
from riglm.application.reports.verdict import judge_figures
from riglm.application.tracking.record_queue import RecordCounts
from riglm.domain.exposure import Mode
from riglm.domain.schemas.control_api import (
    HitRate,
    ListTotals,
    PriceTotals,
    RecordTotals,
    SessionTotals,
    Summary,
    TokenTotals,
    ToolTotals,
    VerdictModel,
)
from riglm.ports.analytics import SessionHistoryPort


class Statistics:
    """Sums up what was used, shown and found."""

    def __init__(
        self,
        counting: CachedQueries,
        tools: ToolQueries,
        records: Callable[[], RecordCounts],
        predicts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`records` and `predicts` may be called by any thread; `predicts` returns whether filtering predicts."""
        self._predicts = predicts
        self._counting = counting
        self._tools = tools
        self._records = records

    async def summary(self, since: float) -> Summary:
        """All at a glance."""

        def counted(store: SessionHistoryPort) -> tuple[int, int]:
            return store.count_sessions(since)[1], store.count_sessions()[1]

        figures = await self._counting.figures(since)
        active, _ = await self._counting.counted("active sessions", lambda store: store.count_sessions())
        in_time, stored = await self._counting.counted_since(since, ("sessions", since), counted)
        known = await self._tools.known(since)
        used = len({each.tool for each in known if each.uses})
        names = len({each.tool for each in known})
        usage, now, mode = figures.usage, figures.now, figures.mode
        priced = cost_fields(now.cost)
        is_on = mode == "enforce" and self._predicts()
        others = stored - usage.listed_sessions - usage.unlisted_sessions
        records = self._records()
        return Summary(
            since=since,
            mode=mode,
            verdict=VerdictModel(**asdict(judge_figures(figures, is_on=is_on, others=others))),
            sessions=SessionTotals(active=active, total=usage.sessions, in_time=in_time),
            calls=usage.calls,
            failures=usage.failures,
            price=PriceTotals(
                mode=mode,
                sessions=priced["sessions"],
                of_no_proxy=priced["price"],
                of_host_search=priced["price_of_search"],
            ),
            hit_rate=HitRate(**hit_figures(now.judged)),
            lists=_lists(now.lists),
            tokens=_tokens(mode, now.lists),
            records=RecordTotals(
                accepted=records.accepted,
                stored=records.stored,
                queued=records.queued,
                spooled=records.spooled,
                dropped=records.dropped,
                reasons=dict(records.reasons),
            ),
            tools=ToolTotals(known=names, used=used, never_used=names - used),
            searches=list_figures(figures.lists)["searches"],
        )


def _lists(lists: Sequence[ListObservation]) -> ListTotals:
    return ListTotals(
        shown=len(lists),
        changes=list_figures(lists)["changes"],
        mean_shown=mean(sum(each.shown for each in lists), len(lists)),
        mean_available=mean(sum(each.available for each in lists), len(lists)),
    )


def _tokens(mode: Mode, lists: Sequence[ListObservation]) -> TokenTotals:
    found = list_figures(lists)
    return TokenTotals(
        mode=mode,
        shown=found["tokens_shown"],
        hidden=found["tokens_hidden"],
        meta_tools=found["tokens_meta_tools"],
        resent=found["tokens_resent"],
    )
