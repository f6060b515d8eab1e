"""Tracking: notes what happened in a session and hands it to the recorder. A failure here never reaches a call."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Literal
from uuid import UUID

from riglm.application.failing_open import FailingOpen
from riglm.application.tool_lists.selection import NO_LIST, ListSelection
from riglm.application.tracking.recorder import QueueItem
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.session import Session, uuid7
from riglm.ports.analytics import SessionClosed
from riglm.ports.telemetry import MeterPort

_log: Final = logging.getLogger("riglm.tracking")
_MAX_CODE: Final = 2**63 - 1  # what a database can hold; upstreams may send anything
_BYTES_PER_NOTE: Final = 600
_BYTES_PER_NAME: Final = 8  # lists share their names with the catalogue


ArgumentChoice = Literal["hash", "raw", "none"]
"""What of a call's arguments is stored: a keyed hash, the arguments as well, or nothing."""


class TrackingService:
    """Turns what happens into records. May be called on the event loop: it does no I/O and never raises."""

    def __init__(
        self,
        put: Callable[[QueueItem, int], None],
        hasher: KeyedHasher,
        arguments: ArgumentChoice,
        *,
        meter: MeterPort | None = None,
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`put` takes a record and its size in bytes, see `Recorder.put`.

        `meter` counts records, `audit` records sessions and calls for people; None without.
        """
        self._meter = meter
        self._audit = audit
        self._put = put
        self._hasher = hasher
        self.take_arguments(arguments)
        self._clock = clock
        self._last_exposures: dict[int, ListSelection] = {}  # by a number, which hashes faster than a UUID
        self._latest = NO_LIST
        self._listeners: list[Callable[[Session], None]] = []
        self._first_list: Callable[[], None] | None = None
        self._guarded = FailingOpen(_log, "usage could not be recorded; the call goes through, and")

    def take_arguments(self, choice: ArgumentChoice) -> None:
        """Set what is stored of the arguments of calls that end from now on."""
        self._hides_arguments = choice == "none"
        self._keeps_arguments = choice == "raw"

    def on_closed(self, listener: Callable[[Session], None]) -> None:
        """Register a callback for the end of every session."""
        self._listeners.append(listener)

    def on_listed(self, listener: Callable[[], None]) -> None:
        """Register a callback for the first list that a client gets; it is called once."""
        self._first_list = listener

    def session_opened(self, session: Session) -> None:
        """Note a new session."""
        with self._guarded:
            self._put_session(session)
            if self._meter is not None:
                self._meter.session_opened(session)
            if self._audit is not None:
                names = {"client": session.client.name, "transport": session.transport.value, "era": session.era.value}
                whose = {"session": str(session.id), "principal": session.principal}
                self._audit(AuditEvent.SESSION_OPENED, {**whose, **names})

    def session_changed(self, session: Session) -> None:
        """Note what became known of a session since it was opened."""
        with self._guarded:
            self._put_session(session)

    def session_closed(self, session: Session, ended_at: float) -> None:
        """Note the end of a session, in seconds since the epoch."""
        with self._guarded:
            self._put(SessionClosed(session_id=session.id, ended_at=ended_at), _BYTES_PER_NOTE)
        self._forget(session, has_ended=True)

    def session_left(self, session: Session) -> None:
        """A session goes on elsewhere: nothing is remembered of it here, and nothing is recorded."""
        self._forget(session, has_ended=False)

    def _forget(self, session: Session, *, has_ended: bool) -> None:
        with self._guarded:
            self._last_exposures.pop(session.id.int, None)
            if self._meter is not None:
                self._meter.session_closed(session.id, ended=has_ended)
        for listener in self._listeners:
            with self._guarded:
                listener(session)

    def exposed(self, session: Session, selection: ListSelection) -> None:
        """Record what a client was shown; a list only if it differs from the session's last one."""
        with self._guarded:
            before = self._last_exposures.get(session.id.int)
            if before == selection:
                return
            exposure = selection.to_exposure(session.id, self._clock())
            if exposure.is_list:
                self._note_list(session, selection, exposure.available)
            if self._meter is not None:
                changed = exposure.is_list and before is not None and before.shown != selection.shown
                self._meter.exposed(exposure, changed=changed)
            self._put(exposure, _BYTES_PER_NOTE + _BYTES_PER_NAME * (len(selection.shown) + len(selection.hidden)))
            if self._first_list is not None:
                listener, self._first_list = self._first_list, None
                listener()

    def list_of(self, session: Session) -> ListSelection:
        """Return the list that a session has now, without its bytes; an empty one before the first."""
        return self._last_exposures.get(session.id.int, NO_LIST)

    def called(
        self,
        session: Session,
        *,
        tool: str,
        upstream: str,
        arguments: bytes | None,
        sequence_number: int,
        started: float,
        duration_ms: float,
        error_kind: ErrorKind | None = None,
        error_code: int | None = None,
        found: DiscoveryMethod = DiscoveryMethod.NAMED,
        is_confidential: bool = False,
        with_list: ListSelection = NO_LIST,
        refusal: str = "",
    ) -> None:
        """Note an invocation that ended; `started` is in seconds since the epoch, `sequence_number` was taken then.

        `with_list` is what `list_of` gave then: lists may have changed since.
        `error_kind` is None when it succeeded. `arguments` is the JSON as it came, or None when there was none; of
        those that are confidential no more than the hash is stored. `refusal` is why riglm refused the call, if it did.
        """
        try:
            if self._audit is not None:
                self._note_call(self._audit, session, tool, upstream, error_kind, refusal)
            if self._meter is not None:
                seconds, is_hit = duration_ms / 1000.0, with_list.is_hit(tool, found) if with_list.hides else None
                self._meter.called(session.id, tool, upstream, found, error_kind, seconds, with_list.mode, is_hit)
            raw = None if self._hides_arguments else arguments
            keeps = self._keeps_arguments and not is_confidential
            code = error_code if error_code is not None and abs(error_code) <= _MAX_CODE else None
            fixed = (session.id, tool, upstream, started, duration_ms, sequence_number, error_kind, code, found)
            record = partial(self._invocation, raw, keeps, *fixed)
            self._put(record, _BYTES_PER_NOTE if raw is None else _BYTES_PER_NOTE + len(raw))
            if _log.isEnabledFor(logging.DEBUG):
                about = {"session": str(session.id), "tool": tool, "upstream": upstream}
                about["outcome"] = "success" if error_kind is None else error_kind.value
                _log.debug("tool call ended", extra={**about, "duration_ms": round(duration_ms, 1)})
        except Exception as error:  # noqa: BLE001  # fails open
            self._guarded.report(error)

    @staticmethod
    def _note_call(
        audit: AuditLog, session: Session, tool: str, upstream: str, error_kind: ErrorKind | None, refusal: str
    ) -> None:
        whose = {"session": str(session.id), "principal": session.principal, "tool": tool}
        if upstream:
            outcome = "success" if error_kind is None else error_kind.value
            audit(AuditEvent.TOOL_CALLED, {**whose, "upstream": upstream, "outcome": outcome})
        else:
            audit(AuditEvent.TOOL_REFUSED, {**whose, "reason": refusal or "no server has this tool"})

    def _invocation(
        self,
        raw: bytes | None,
        keeps: bool,
        session_id: UUID,
        tool: str,
        upstream: str,
        started: float,
        duration_ms: float,
        sequence_number: int,
        error_kind: ErrorKind | None,
        error_code: int | None,
        found: DiscoveryMethod,
    ) -> ToolInvocation:
        """Return the record of a call; its id is made late, so that ids ascend, and its hash, so that no call waits."""
        return ToolInvocation(
            id=uuid7(),
            session_id=session_id,
            tool=tool,
            upstream=upstream,
            timestamp=started,
            duration_ms=duration_ms,
            success=error_kind is None,
            sequence_number=sequence_number,
            arguments_hash="" if raw is None else self._hasher.arguments(raw),
            arguments=raw.decode("utf-8", "replace") if raw is not None and keeps else None,
            error_kind=error_kind,
            error_code=error_code,
            found=found,
        )

    def _note_list(self, session: Session, selection: ListSelection, available: tuple[str, ...]) -> None:
        """Keep a list as the session's last one."""
        if selection != self._latest:
            self._latest = replace(selection, raw=b"")
        if session.ended_at is None:
            self._last_exposures[session.id.int] = self._latest  # shared by all sessions that are shown the same
        if session.tools_available != available:
            session.tools_available = available
            self._put_session(session)

    def _put_session(self, session: Session) -> None:
        """Queue the session as it is now: it goes on changing while the record waits."""
        snapshot = replace(session, keys=dict(session.keys), metadata=dict(session.metadata))
        self._put(snapshot, _BYTES_PER_NOTE + _BYTES_PER_NAME * len(session.tools_available))
