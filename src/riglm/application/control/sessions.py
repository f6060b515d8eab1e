"""Sessions of this process and sessions in the store."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from riglm.application.control.running_proxy import RunningProxy
from riglm.application.filtering.explanations import Explanation
from riglm.domain import session_state
from riglm.domain.errors import NotFoundError
from riglm.domain.invocation import OWN_UPSTREAM, USES, ToolInvocation
from riglm.domain.schemas import control_api as models
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.analytics import AnalyticsPort, SessionKey, SessionSummary

_IDENTITY: Final = ("id", "client", "era", "transport", "method", "confidence", "principal", "project", "profile")
_COUNTS: Final = ("failures", "lists", "list_changes", "searches")
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def cut_page(items: Sequence[_Item], limit: int, place: Callable[[_Item], Sequence[object]]) -> models.Page[_Item]:
    """Return the first `limit` items; with a cursor if there are more, which holds the `place` of the last item."""
    given = tuple(items[:limit])
    if len(items) <= limit:
        return models.Page(items=given)
    key = json.dumps(place(given[-1]), default=str).encode()
    return models.Page(items=given, next_cursor=base64.urlsafe_b64encode(key).decode().rstrip("="))


def parse_cursor(cursor: str, read: Callable[..., _Key]) -> _Key:
    """Return the place that a cursor holds, made by `read` of its parts.

    Raises:
        NotFoundError: the cursor leads nowhere.
    """
    try:
        parts: Any = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        return read(*parts)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise NotFoundError(
            "the cursor leads nowhere: take the next_cursor of an answer, or begin without one"
        ) from error


async def list_sessions(
    proxy: RunningProxy, *, active_only: bool = False, limit: int = 100, cursor: str | None = None
) -> models.Page[models.SessionEntry]:
    """Return the sessions of this process and of the store, newest first, each once however many begin meanwhile.

    Raises:
        NotFoundError: the cursor leads nowhere.
    """
    key = parse_cursor(cursor, _read_session_key) if cursor is not None else None
    here = {each.id: each for each in await proxy.loop.look(proxy.parts.sessions.live)}
    stored = await proxy.store.ask(lambda store: store.list_sessions(limit + 1, active_only=active_only, before=key))
    found = {each.session.id: _to_session_entry(each.session, each, here) for each in stored}
    for session in here.values():
        if session.id not in found and (key is None or _get_place(session) < key):
            found[session.id] = _to_session_entry(session, None, here)
    return cut_page(sorted(found.values(), key=_get_place, reverse=True), limit, _get_place)


async def get_session(proxy: RunningProxy, session_id: UUID) -> models.SessionDetail:
    """Return one session, with its latest calls and lists.

    Raises:
        NotFoundError: there is no such session.
    """
    session = await proxy.loop.look(lambda: proxy.parts.sessions.known(session_id))
    summary, calls, shown = await proxy.store.ask(
        lambda store: (
            store.find_session(session_id),
            store.list_invocations(session_id, models.MAX_CALLS_PER_SESSION_DETAIL),
            store.latest_exposures(session_id, models.MAX_LISTS_PER_SESSION_DETAIL),
        )
    )
    recorded = session if summary is None else summary.session
    if recorded is None:
        raise create_unknown_session(session_id)
    entry = _to_session_entry(recorded, summary, {} if session is None else {session_id: session})
    of_calls, of_lists = map(models.SessionCall.model_validate, calls), map(models.ExposedList.model_validate, shown)
    return models.SessionDetail(**dict(entry), calls=tuple(of_calls), shown=tuple(of_lists))


def create_unknown_session(session_id: object) -> NotFoundError:
    """Return the error for an unknown session."""
    return NotFoundError(f"there is no session {session_id}: it was forgotten, purged, or never was")


def _read_session_key(started_at: float, id_: str) -> SessionKey:
    if not math.isfinite(started_at):
        raise ValueError("no time")
    return SessionKey(float(started_at), UUID(hex=id_))


def _get_place(session: Session | models.SessionEntry) -> SessionKey:
    return SessionKey(session.started_at, session.id)


def _to_session_entry(
    recorded: Session, summary: SessionSummary | None, here: Mapping[UUID, Session]
) -> models.SessionEntry:
    """A session as it is here, else as it is recorded; what is counted may be a moment behind."""
    live = here.get(recorded.id)
    session = live or recorded
    ended_at = None if live is not None else recorded.ended_at
    counts: dict[str, Any] = {name: getattr(summary, name, 0) for name in _COUNTS}
    return models.SessionEntry(
        **{name: getattr(session, name) for name in _IDENTITY},
        **counts,
        started_at=recorded.started_at,
        ended_at=ended_at,
        active=ended_at is None,
        invocations=max(session.sequence if live else 0, summary.invocations if summary else 0),
        tools_available=len(session.tools_available),
    )


_MAX_LISTS_SEARCHED: Final = 20


async def get_prediction(proxy: RunningProxy, session_id: UUID) -> models.SessionPrediction:
    """Return the next list of a session, and why each tool is shown or hidden; this changes nothing.

    Raises:
        NotFoundError: there is no such session.
    """
    filtering = proxy.filtering
    live = await proxy.loop.look(lambda: proxy.parts.sessions.known(session_id))
    found = (live, None, ()) if live else await proxy.store.ask(lambda store: _find_recorded(store, session_id))
    session, calls, tools = found

    async def explain() -> Explanation:
        await filtering.predicting.acquaint(session)
        past = None if calls is None else _past_state(calls, filtering.rules.turn_pause)
        return filtering.explain(session, past, tools)

    return (await proxy.loop.ask(explain)).to_prediction()


def _past_state(calls: Sequence[ToolInvocation], turn_pause: float) -> SessionState:
    """Return the state of a session after these calls; contexts are not recorded."""
    state = SessionState()
    for call in calls:
        if call.upstream == OWN_UPSTREAM or call.error_kind not in USES:
            continue
        if session_state.begins_turn(state, "", call.timestamp, turn_pause):
            session_state.begin_turn(state)
        state.called(call.tool, call.timestamp, success=call.success)
    return state


def _find_recorded(
    store: AnalyticsPort, session_id: UUID
) -> tuple[Session, Sequence[ToolInvocation] | None, tuple[str, ...]]:
    """Return a session, its latest calls, and the tools of its last list."""
    summary = store.find_session(session_id)
    if summary is None:
        raise create_unknown_session(session_id)
    lists = [each for each in store.latest_exposures(session_id, _MAX_LISTS_SEARCHED) if each.is_list]
    tools = (*lists[-1].shown, *lists[-1].hidden) if lists else summary.session.tools_available
    return summary.session, store.list_invocations(session_id, models.MAX_CALLS_PER_SESSION_DETAIL), tools
