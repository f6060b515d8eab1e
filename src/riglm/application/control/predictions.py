"""What a session's next list would be: asked where it is made, or made anew from what is recorded."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from riglm.application.control.crossing import ProxyLoop, StoreThread
from riglm.application.control.sessions import unknown_session
from riglm.application.filtering.explaining import Explanation
from riglm.application.filtering.service import FilteringService
from riglm.application.sessions.registry import SessionRegistry
from riglm.domain import turns
from riglm.domain.control import SessionPrediction
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import OWN_UPSTREAM, USES, ToolInvocation
from riglm.domain.session import Session
from riglm.domain.session_state import MOST_CALLS, SessionState
from riglm.ports.analytics import AnalyticsPort

_LISTS_LOOKED_AT: Final = 20


class Predictions:
    """Takes the next list of a session apart."""

    def __init__(
        self, proxy: ProxyLoop, store: StoreThread, registry: SessionRegistry, filtering: FilteringService
    ) -> None:
        """Registry and filter are asked on the proxy's loop."""
        self._proxy = proxy
        self._store = store
        self._registry = registry
        self._filtering = filtering

    async def of(self, session_id: UUID) -> SessionPrediction:
        """What the next list would be, and why.

        Raises:
            NotThere: nobody knows the session.
        """
        here = await self._proxy.ask(lambda: self._of_one_here(session_id))
        if here is not None:
            return here.told()
        recorded = await self._store.ask(lambda store: _recorded(store, session_id))
        if recorded is None:
            raise unknown_session(session_id)
        session, calls, tools = recorded

        async def explained() -> Explanation:
            await self._filtering.predicting.acquaint(session)
            return self._filtering.explain(session, self._state(calls), tools)

        return (await self._proxy.ask(explained)).told()

    async def _of_one_here(self, session_id: UUID) -> Explanation | None:
        session = self._registry.known(session_id)
        if session is None:
            return None
        await self._filtering.predicting.acquaint(session)
        return self._filtering.explain(session)

    def _state(self, calls: Sequence[ToolInvocation]) -> SessionState:
        """How far a session had come with these calls; what it was about is not recorded."""
        state = SessionState()
        for call in calls:
            if call.upstream == OWN_UPSTREAM or call.error_kind not in USES:
                continue
            if turns.begins_turn(state, "", call.timestamp, self._filtering.rules.turn_pause):
                turns.begin_turn(state)
            state.called(call.tool, call.timestamp, success=call.success)
        return state


def _recorded(
    store: AnalyticsPort, session_id: UUID
) -> tuple[Session, Sequence[ToolInvocation], tuple[str, ...]] | None:
    """A session, its latest calls, and the tools that it was last told of."""
    summary = store.session_of(session_id)
    if summary is None:
        return None
    lists = [each for each in store.latest_exposures(session_id, _LISTS_LOOKED_AT) if each.is_list]
    tools = _in_order(lists[-1]) if lists else summary.session.tools_available
    return summary.session, store.latest_invocations(session_id, MOST_CALLS), tools


def _in_order(shown: Exposure) -> tuple[str, ...]:
    return (*shown.shown, *shown.hidden)
