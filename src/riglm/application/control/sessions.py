"""Sessions of this process and sessions in the store."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.application.filtering.explanations import Explanation
from riglm.application.filtering.service import FilteringService
from riglm.application.sessions.registry import SessionRegistry
from riglm.domain import session_state
from riglm.domain.control import NotFoundError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import OWN_UPSTREAM, USES, ToolInvocation
from riglm.domain.schemas.control_api import (
    MAX_CALLS_PER_SESSION_DETAIL,
    MAX_LISTS_PER_SESSION_DETAIL,
    ExposedList,
    Page,
    SessionCall,
    SessionClient,
    SessionDetail,
    SessionEntry,
    SessionPrediction,
)
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.dashboard import SessionKey, SessionSummary

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def cursor_of(*key: object) -> str:
    """A cursor that leads behind the place of a key; its parts are what JSON knows."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def key_of(cursor: str, read: Callable[..., _Key]) -> _Key:
    """The key that a cursor holds, made by `read` of its parts.

    Raises:
        NotFoundError: the cursor leads nowhere.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts: Any = json.loads(text)
        return read(*parts)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise NotFoundError(
            "the cursor leads nowhere: take the next_cursor of an answer, or begin without one"
        ) from error


def page(items: Sequence[_Item], limit: int, place: Callable[[_Item], str]) -> Page[_Item]:
    """The first `limit` items, with a cursor when there are more; `place` gives the cursor behind an item."""
    given = tuple(items[:limit])
    return Page(items=given, next_cursor=place(given[-1]) if len(items) > limit else None)


class SessionQueries:
    """Merges the sessions of this process with the stored ones."""

    def __init__(self, proxy: ProxyLoop, store: StoreThread[AnalyticsPort], registry: SessionRegistry) -> None:
        """The registry is asked on the proxy's loop."""
        self._proxy = proxy
        self._store = store
        self._registry = registry

    async def entries(self, *, active_only: bool, limit: int, cursor: str | None) -> Page[SessionEntry]:
        """Sessions, newest first, each once however many begin meanwhile."""
        key = key_of(cursor, _session_key) if cursor is not None else None
        here = {each.id: each for each in await self._proxy.look(self._registry.live)}
        stored = await self._store.ask(
            lambda store: store.list_sessions(limit + 1, active_only=active_only, before=key)
        )
        found = {each.session.id: _entry(each.session, each, here) for each in stored}
        for session in here.values():
            if session.id not in found and (key is None or _key(session) < key):
                found[session.id] = _entry(session, None, here)
        ordered = sorted(found.values(), key=lambda each: (each.started_at, each.id), reverse=True)
        return page(ordered, limit, lambda each: cursor_of(each.started_at, each.id.hex))

    async def detail(self, session_id: UUID) -> SessionDetail:
        """One session, with its latest calls and lists.

        Raises:
            NotFoundError: there is no such session.
        """
        session = await self._proxy.look(lambda: self._registry.known(session_id))

        def recorded(
            store: AnalyticsPort,
        ) -> "tuple[SessionSummary | None, tuple[SessionCall, ...], tuple[Exposure, ...]]":
            calls = store.list_invocations(session_id, MAX_CALLS_PER_SESSION_DETAIL)
            shown = store.latest_exposures(session_id, MAX_LISTS_PER_SESSION_DETAIL)
            return store.find_session(session_id), tuple(map(_call, calls)), tuple(shown)

        summary, calls, shown = await self._store.ask(recorded)
        if summary is not None:
            entry = _entry(summary.session, summary, {} if session is None else {session_id: session})
        elif session is not None:
            entry = _entry(session, None, {session_id: session})
        else:
            raise unknown_session(session_id)
        return SessionDetail(**dict(entry), calls=calls, shown=tuple(map(_list, shown)))


def unknown_session(session_id: object) -> NotFoundError:
    """Return the error for an unknown session."""
    return NotFoundError(f"there is no session {session_id}: it was forgotten, purged, or never was")


def _session_key(started_at: float, id_: str) -> SessionKey:
    if not math.isfinite(started_at):
        raise ValueError("no time")
    return SessionKey(float(started_at), UUID(hex=id_))


def _key(session: Session) -> SessionKey:
    return SessionKey(session.started_at, session.id)


def _entry(recorded: Session, summary: SessionSummary | None, here: Mapping[UUID, Session]) -> SessionEntry:
    """A session as it is here, else as it is recorded; what is counted may be a moment behind."""
    live = here.get(recorded.id)
    session = live or recorded
    ended_at = None if live is not None else recorded.ended_at
    return SessionEntry(
        id=session.id,
        client=SessionClient(name=session.client.name, version=session.client.version),
        era=session.era,
        transport=session.transport,
        method=session.method,
        confidence=session.confidence,
        principal=session.principal,
        project=session.project,
        profile=session.profile,
        started_at=recorded.started_at,
        ended_at=ended_at,
        active=ended_at is None,
        invocations=max(session.sequence if live else 0, summary.invocations if summary else 0),
        failures=summary.failures if summary else 0,
        lists=summary.lists if summary else 0,
        list_changes=summary.list_changes if summary else 0,
        searches=summary.searches if summary else 0,
        tools_available=len(session.tools_available),
    )


def _list(exposure: Exposure) -> ExposedList:
    return ExposedList(
        at=exposure.timestamp,
        surface=exposure.surface,
        mode=exposure.mode,
        predictor=exposure.predictor,
        reason=exposure.reason,
        shown=exposure.shown,
        hidden=len(exposure.hidden),
        tokens_shown=exposure.tokens_shown,
        tokens_hidden=exposure.tokens_hidden,
        tokens_meta_tools=exposure.tokens_own,
    )


def _call(call: ToolInvocation) -> SessionCall:
    return SessionCall(
        sequence=call.sequence_number,
        tool=call.tool,
        upstream=call.upstream,
        at=call.timestamp,
        duration_ms=call.duration_ms,
        success=call.success,
        error_kind=call.error_kind,
        found=call.found,
    )


_LISTS_LOOKED_AT: Final = 20


class PredictionQueries:
    """Takes the next list of a session apart."""

    def __init__(
        self,
        proxy: ProxyLoop,
        store: StoreThread[AnalyticsPort],
        registry: SessionRegistry,
        filtering: FilteringService,
    ) -> None:
        """Registry and filter are asked on the proxy's loop."""
        self._proxy = proxy
        self._store = store
        self._registry = registry
        self._filtering = filtering

    async def of(self, session_id: UUID) -> SessionPrediction:
        """What the next list would be, and why.

        Raises:
            NotFoundError: there is no such session.
        """
        here = await self._proxy.ask(lambda: self._of_one_here(session_id))
        if here is not None:
            return here.to_prediction()
        recorded = await self._store.ask(lambda store: _recorded(store, session_id))
        if recorded is None:
            raise unknown_session(session_id)
        session, calls, tools = recorded

        async def explained() -> Explanation:
            await self._filtering.predicting.acquaint(session)
            return self._filtering.explain(session, self._state(calls), tools)

        return (await self._proxy.ask(explained)).to_prediction()

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
            if session_state.begins_turn(state, "", call.timestamp, self._filtering.rules.turn_pause):
                session_state.begin_turn(state)
            state.called(call.tool, call.timestamp, success=call.success)
        return state


def _recorded(
    store: AnalyticsPort, session_id: UUID
) -> tuple[Session, Sequence[ToolInvocation], tuple[str, ...]] | None:
    """Return a session, its latest calls, and the tools of its last list."""
    summary = store.find_session(session_id)
    if summary is None:
        return None
    lists = [each for each in store.latest_exposures(session_id, _LISTS_LOOKED_AT) if each.is_list]
    tools = _in_order(lists[-1]) if lists else summary.session.tools_available
    return summary.session, store.list_invocations(session_id, MAX_CALLS_PER_SESSION_DETAIL), tools


def _in_order(shown: Exposure) -> tuple[str, ...]:
    return (*shown.shown, *shown.hidden)
