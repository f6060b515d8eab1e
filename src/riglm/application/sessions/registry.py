"""Recognises sessions: which piece of work a call belongs to, and how sure that is.

Modern clients have no MCP session, and handshake clients use MCP sessions in different ways. riglm therefore
identifies sessions by the best evidence: a handle that the client was given, the conversation key in a call, a key
in riglm's environment, the connection, and last the caller and the time.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from uuid import UUID

from riglm.application.sessions.session_index import SessionIndex, SessionLookupKey
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.client_support import NO_TOOL_SEARCH, no_tool_search
from riglm.domain.hashing import KeyedHasher
from riglm.domain.jsonrpc import Raw
from riglm.domain.retention import ErasureRequest
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import (
    ACCESS,
    PROFILE,
    ClientInfo,
    IdentificationMethod,
    ProtocolEra,
    Session,
    Transport,
    parsed_uuid,
)
from riglm.ports.downstream import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentificationSettings:
    """Where to look for conversation keys, and how long a session that no connection holds is kept.

    `idle_gap` is the silence, in seconds, after which it is over; `most_kept` is how many such sessions there may be.
    `profile` is recorded with each new session whose client selected none.
    """

    meta_keys: tuple[str, ...] = ()
    environment_keys: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    idle_gap: float = 1800.0
    most_kept: int = 10_000
    profile: str = ""


def identification_settings(settings: Settings) -> IdentificationSettings:
    """Return the part of the configuration by which sessions are identified, with this process's environment."""
    return IdentificationSettings(
        meta_keys=settings.sessions.meta_keys,
        environment_keys=settings.sessions.environment_keys,
        environment=os.environ,
        idle_gap=settings.sessions.idle_gap,
        most_kept=settings.downstream.max_sessions,
        profile=settings.filtering.profile,
    )


_log: Final = logging.getLogger("riglm.sessions")
_GUESSES: Final = frozenset({IdentificationMethod.PRINCIPAL, IdentificationMethod.ADDRESS})
_MAX_CONNECTIONS: Final = 64

_NO_KEYS: Final[dict[str, str]] = {}
"""Shared by the many sessions without a key; a session that gets one gets a new dictionary."""


class SessionRegistry:
    """All sessions that may still grow. Never a source of rights: every key is looked up within its principal."""

    def __init__(
        self,
        tracking: TrackingService,
        hasher: KeyedHasher,
        evidence: IdentificationSettings,
        *,
        shared: bool = False,
        find_project: Callable[[str], str] = lambda _: "",
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`shared` is True if sessions may continue in other processes.

        `find_project` returns what names the project of a directory, empty if it belongs to none.
        """
        self._tracking = tracking
        self._shared = shared
        self._hasher = hasher
        self._find_project = find_project
        self._metadata: dict[tuple[str, str], dict[str, str]] = {}
        self.look_for(evidence)
        self._kept = SessionIndex()
        self._connections: dict[UUID, dict[str, Caller | None]] = {}
        """By session, the caller of the only request of each connection, None after a second request."""
        self._monotonic = monotonic
        self._clock = clock

    def __len__(self) -> int:
        return len(self._kept)

    def look_for(self, evidence: IdentificationSettings) -> None:
        """Go by other evidence from now on; the sessions that there are stay where they were found."""
        self._evidence = evidence
        named = ((key, evidence.environment.get(key)) for key in evidence.environment_keys)
        self._environment_key = next(((key, value) for key, value in named if value), None)
        spellings = [re.escape(jsonrpc.encode(key)) for key in evidence.meta_keys]
        self._may_have_key = re.compile(b"|".join([rb"\\/", *spellings])).search

    def of_connection(self, caller: Caller, client: ClientInfo, version: str) -> Session:
        """A session for a client that just opened a connection with the handshake; to be given back by `closed`."""
        place = self._environment(caller)
        if caller.handle:
            place = SessionLookupKey(IdentificationMethod.HANDLE, caller.owner, "handle", caller.handle)
        if place is not None:
            session = self._keyed(place, caller, client, ProtocolEra.HANDSHAKE, version)
            self._kept.hold(session)
            return session
        method = (
            IdentificationMethod.PROCESS if caller.transport is Transport.STDIO else IdentificationMethod.CONNECTION
        )
        session = self._opened(method, caller, client, ProtocolEra.HANDSHAKE, version)
        self._kept.add(session, self._monotonic(), held=True)
        return session

    def of_request(
        self, caller: Caller, client: ClientInfo, version: str, meta: Raw | bytes, *, starts: bool = False
    ) -> Session:
        """The session of a request of the modern era, by the best evidence that it carries.

        With `starts`, the request is a first page of a list: where only the caller identifies the session, and the
        connection is new to a session that has made calls, a new session begins. A client that uses each connection
        for a single request keeps its session until it sends `server/discover`.
        """
        if caller.transport is Transport.STDIO and not caller.handle:
            return self.of_call(self._of_process(caller, client, version), caller, meta)
        found = [] if caller.handle else self._conversation_keys(meta)
        place = _place(caller, client, found)
        if place.method not in _GUESSES or self._shared or not caller.connection:
            return self._keyed(place, caller, client, ProtocolEra.MODERN, version, found)
        known = self._kept.at(place)
        if starts and known is not None and None in self._connections.get(known.id, {}).values():
            self._end_if_elsewhere(known, caller)
        session = self._keyed(place, caller, client, ProtocolEra.MODERN, version, found)
        connections = self._connections.setdefault(session.id, {})
        if connections.setdefault(caller.connection, caller) is not caller:
            connections[caller.connection] = None
        if len(connections) > _MAX_CONNECTIONS:
            del connections[next(iter(connections))]
        return session

    def discovered(self, caller: Caller, client: ClientInfo, meta: Raw | bytes) -> None:
        """Note a `server/discover`: on a new connection it ends a session that only the caller identifies."""
        place = self.place_of_request(caller, client, meta)
        known = self._kept.at(place)
        if known is not None and place.method in _GUESSES and not self._shared and caller.connection:
            self._end_if_elsewhere(known, caller)

    def _end_if_elsewhere(self, session: Session, caller: Caller) -> None:
        """End a session that has made calls, on other connections than this one."""
        if session.sequence and caller.connection not in self._connections.get(session.id, {}):
            self._end(session, self._clock())

    def place_of_request(self, caller: Caller, client: ClientInfo, meta: Raw | bytes) -> SessionLookupKey:
        """Where the session of a request of the modern era over HTTP is found."""
        return _place(caller, client, [] if caller.handle else self._conversation_keys(meta))

    def place_of_call(self, caller: Caller, meta: Raw | bytes) -> SessionLookupKey | None:
        """Where the session of a call in the handshake era is found, if not by its connection."""
        if caller.handle:
            return SessionLookupKey(IdentificationMethod.HANDLE, caller.owner, "handle", caller.handle)
        found = self._conversation_keys(meta)
        return SessionLookupKey(IdentificationMethod.META_KEY, caller.owner, *found[0]) if found else None

    def at(self, place: SessionLookupKey) -> Session | None:
        """The session found at a place."""
        return self._kept.at(place)

    def known(self, session_id: UUID) -> Session | None:
        """The session with this id, if it is kept here; asking is no sign of life."""
        return self._kept.get(session_id)

    def live(self) -> list[Session]:
        """Every session that may still grow."""
        return self._kept.all()

    def adopt(self, session: Session, place: SessionLookupKey | None = None) -> Session:
        """Continue a session of another process, found at `place` from now on. Returns the object for it here."""
        known = self._kept.get(session.id)
        if known is None:
            self._kept.add(session, self._monotonic(), held=False)
        session = known or session
        if place is not None and (other := self._kept.at(place)) is not session:
            if other is not None:
                self._kept.move(place, session)
            else:
                self._kept.put(place, session)
        return session

    def project_of(self, directory: str, *, is_root: bool = False, is_here: bool = True) -> str:
        """Return the keyed hash of a directory's project, empty if it belongs to none; reads the file system.

        With `is_root` the directory itself is the project if it is not under version control. Unless it `is_here`, it
        is on another machine.
        """
        project = (is_here and self._find_project(directory)) or (is_root and directory)
        return self._hasher.project(project) if project else ""

    def join_project(self, session: Session, project: str) -> None:
        """Record the project of a session, by its hash; an empty one changes nothing."""
        if project and project != session.project:
            session.project = project
            self._tracking.session_changed(session)

    @cached_property
    def _own_project(self) -> str:
        """The project that riglm was started in."""
        return self.project_of(".")

    def silent(self) -> list[Session]:
        """Return the sessions that no connection holds and that are idle for longer than the idle gap."""
        return self._kept.silent_since(self._monotonic() - self._evidence.idle_gap)

    def heard_of(self, session: Session) -> None:
        """Something happened in a session in another process."""
        self._kept.touch(session, self._monotonic())

    def end(self, session: Session) -> None:
        """A session is over everywhere."""
        self._end(session, self._clock() - self._evidence.idle_gap)

    def of_call(self, base: Session, caller: Caller, meta: Raw | bytes) -> Session:
        """The session of a call on a connection whose session is `base`.

        A conversation key in the call is better evidence than the connection: the first one names the connection's
        session, further ones are separate sessions.
        """
        found = self._conversation_keys(meta)
        if not found:
            return base
        if base.method is IdentificationMethod.HANDLE:
            self._note(base, found)
            return base
        place = SessionLookupKey(IdentificationMethod.META_KEY, caller.owner, *found[0])
        if base.method is IdentificationMethod.META_KEY or self._kept.at(place) is not None:
            session = self._keyed(place, caller, base.client, base.era, base.protocol_version, found)
            self.join_project(session, base.project)
            return session
        base.method = IdentificationMethod.META_KEY
        self._kept.put(place, base)
        self._note(base, found)
        return base

    def closed(self, session: Session) -> None:
        """A connection ended; its session ends with it unless better evidence than the connection keeps it open."""
        freed = self._kept.release(session, self._monotonic())
        if freed and session.method in (IdentificationMethod.CONNECTION, IdentificationMethod.PROCESS):
            self._end(session, self._clock())

    def sweep(self) -> None:
        """End the sessions that no connection holds and that are idle for longer than the idle gap."""
        if self._shared:
            return
        now = self._monotonic()
        while (found := self._kept.longest_silent()) and now - found[1] > self._evidence.idle_gap:
            self._end(found[0], self._clock() - (now - found[1]))

    def close(self) -> None:
        """End every session: riglm stops. Those that others may go on with are left to them."""
        for session in self._kept.all():
            if self._shared:
                self._detach(session)
            else:
                self._end(session, self._clock())

    def _conversation_keys(self, meta: Raw | bytes) -> list[tuple[str, str]]:
        """The conversation keys that a call carries, the best one first."""
        if not meta or not self._may_have_key(meta):
            return []
        fields = jsonrpc.members(meta)
        found = ((name, jsonrpc.text(fields.get(name))) for name in self._evidence.meta_keys)
        return [(name, value) for name, value in found if value]

    def _environment(self, caller: Caller) -> SessionLookupKey | None:
        if caller.transport is not Transport.STDIO or self._environment_key is None:
            return None
        return SessionLookupKey(IdentificationMethod.ENVIRONMENT, caller.owner, *self._environment_key)

    def _of_process(self, caller: Caller, client: ClientInfo, version: str) -> Session:
        """The session of this process, which lives as long as the process does."""
        place = self._environment(caller) or SessionLookupKey(IdentificationMethod.PROCESS, caller.owner, "process", "")
        session = self._kept.at(place)
        if session is None:
            session = self._keyed(place, caller, client, ProtocolEra.MODERN, version)
            self._kept.hold(session)
        return session

    def _keyed(
        self,
        place: SessionLookupKey,
        caller: Caller,
        client: ClientInfo,
        era: ProtocolEra,
        version: str,
        keys: list[tuple[str, str]] | None = None,
    ) -> Session:
        """The session at a place, or a new one there; `keys` are all that it carries, when there are several."""
        self.sweep()
        session = self._kept.at(place)
        if session is None:
            self._make_room()
            session = self._opened(place.method, caller, client, era, version, keys or [(place.name, place.value)])
            self._kept.add(session, self._monotonic(), held=False)
            self._kept.put(place, session)
        else:
            self._kept.touch(session, self._monotonic())
            if keys:
                self._note(session, keys)
        return session

    def _make_room(self) -> None:
        found = self._kept.longest_silent()
        if found is None or self._kept.free() < self._evidence.most_kept:
            return
        if self._shared:
            self._detach(found[0])
        else:
            self._end(found[0], self._clock())

    def _note(self, session: Session, keys: list[tuple[str, str]]) -> None:
        """Remember keys that were seen with a session, so that it can be joined with others later."""
        new = {name: self._hasher.session_key(value) for name, value in keys if name not in session.keys}
        if new:
            session.keys = {**session.keys, **new}
            self._tracking.session_changed(session)

    def _opened(
        self,
        method: IdentificationMethod,
        caller: Caller,
        client: ClientInfo,
        era: ProtocolEra,
        version: str,
        keys: list[tuple[str, str]] | None = None,
    ) -> Session:
        session = Session(
            started_at=self._clock(),
            era=era,
            transport=caller.transport,
            method=method,
            client=client,
            client_id=sys.intern(self._hasher.client_id(client.name, caller.principal, caller.address)),
            principal=self._hasher.principal(caller.principal) if caller.principal else "",
            project=self._own_project if caller.transport is Transport.STDIO else "",
            protocol_version=version,
            keys={name: self._hasher.session_key(value) for name, value in keys if value} if keys else _NO_KEYS,
            metadata=self._metadata_of(caller, client),
        )
        self._tracking.session_opened(session)
        if _log.isEnabledFor(logging.DEBUG):
            about = {
                "client": client.name,
                "era": era.value,
                "transport": caller.transport.value,
                "method": method.value,
            }
            _log.debug("session opened", extra={"session": str(session.id), **about})
        return session

    def _metadata_of(self, caller: Caller, client: ClientInfo) -> dict[str, str]:
        profile = caller.profile or self._evidence.profile
        metadata = self._metadata.setdefault(
            (profile, caller.access), {PROFILE: profile} | ({ACCESS: caller.access} if caller.access else {})
        )
        if caller.transport is Transport.STDIO and (why := no_tool_search(client, self._evidence.environment)):
            return {**metadata, NO_TOOL_SEARCH: why}
        return metadata

    def _detach(self, session: Session) -> None:
        """Leave a session to other processes."""
        self._kept.remove(session)
        self._tracking.session_left(session)

    def _end(self, session: Session, at: float) -> None:
        self._kept.remove(session)
        self._connections.pop(session.id, None)
        session.ended_at = max(at, session.started_at)  # the clock may have been set back
        self._tracking.session_closed(session, session.ended_at)
        _log.debug("session ended", extra={"session": str(session.id)})


def _place(caller: Caller, client: ClientInfo, found: Sequence[tuple[str, str]]) -> SessionLookupKey:
    """Where the session of a request is found, by the conversation keys `found` in it or by who sent it."""
    if caller.handle:
        return SessionLookupKey(IdentificationMethod.HANDLE, caller.owner, "handle", caller.handle)
    if found:
        return SessionLookupKey(IdentificationMethod.META_KEY, caller.owner, *found[0])
    if caller.principal:
        return SessionLookupKey(IdentificationMethod.PRINCIPAL, caller.owner, "client", client.name)
    return SessionLookupKey(IdentificationMethod.ADDRESS, caller.owner, "client", f"{caller.address} {client.name}")


class SessionReset:
    """Resets sessions of this process: active clients keep their connection and nothing else."""

    def __init__(self, sessions: SessionRegistry, detach: Sequence[Callable[[Session], object]]) -> None:
        """`detach` are called with each session, in this order."""
        self._sessions = sessions
        self._detach = detach

    def heard(self, forgotten: Iterable[ErasureRequest]) -> None:
        """End the sessions to erase; ids that are unknown here belong to another process or have ended."""
        for each in forgotten:
            id_ = parsed_uuid(each.key)
            session = None if id_ is None else self._sessions.known(id_)
            if session is not None and session.forgotten_at < each.at:
                session.forgotten_at = each.at
                for detach in self._detach:
                    detach(session)
