"""All at a glance."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from riglm.application.control.thread_bridge import CachedQueries
from riglm.application.control.tool_use import ToolQueries, mean
from riglm.application.evaluation.record import (
    CallObservation,
    ListObservation,
    Observations,
    cost_fields,
    list_figures,
    read_figures,
)
from riglm.application.recording.record_queue import RecordCounts
from riglm.application.reporting.verdict import judge_figures
from riglm.domain.exposure import Mode
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod
from riglm.domain.list_plan import Prices
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
from riglm.ports.analytics import AnalyticsPort


class Statistics:
    """Sums up what was used, shown and found."""

    def __init__(
        self,
        counting: CachedQueries,
        tools: ToolQueries,
        records: Callable[[], RecordCounts],
        prices: Callable[[], Prices] = Prices,
        predicts: Callable[[], bool] = lambda: True,
    ) -> None:
        """All may be called by any thread; `prices` returns those in force, `predicts` whether filtering predicts."""
        self._prices = prices
        self._predicts = predicts
        self._counting = counting
        self._tools = tools
        self._records = records

    async def summary(self, since: float) -> Summary:
        """All at a glance."""

        def counted(store: AnalyticsPort) -> tuple[Observations, tuple[int, int], int]:
            figures = read_figures(store, self._prices(), since=since)
            return figures, store.count_sessions(since), store.count_sessions()[1]

        figures, (active, in_time), stored = await self._counting.counted(("summary", since), counted)
        known = [each for each in await self._tools.known(since) if each.upstream != OWN_UPSTREAM]
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
            hit_rate=_hit_rate(now.judged),
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


def _hit_rate(uses: Sequence[CallObservation]) -> HitRate:
    missed = [use for use in uses if not use.in_list]
    searched = sum(use.found is DiscoveryMethod.SEARCHED for use in missed)
    return HitRate(hits=len(uses) - len(missed), searched=searched, missed=len(missed) - searched)


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
