"""Recognises sessions: which piece of work a call belongs to, and how sure that is.

Clients of the modern era have no protocol session, and those of the handshake era never agreed on what one is. So
riglm keeps its own, and climbs a ladder of evidence: a handle that the client was given, the conversation key that it
sends with a call, a key in riglm's own environment, the connection, and last a guess from who calls and when.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from riglm.application.tracking import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.hashing import KeyedHasher
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import Client, Era, Method, Session, Transport
from riglm.ports.downstream import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where to look for conversation keys, after which silence (seconds) a session is over, and how many are kept."""

    meta_keys: tuple[str, ...] = ()
    environment_keys: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    idle_gap: float = 1800.0
    most_kept: int = 10_000


class _Kept:
    __slots__ = ("last_seen", "session")

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.last_seen = now


class SessionRegistry:
    """All sessions that may still grow. Never a source of rights: every key is looked up within its principal."""

    def __init__(
        self,
        tracking: TrackingService,
        hasher: KeyedHasher,
        evidence: Evidence,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tracking = tracking
        self._hasher = hasher
        self._evidence = evidence
        self._meta_keys = tuple((key, jsonrpc.encode(key)) for key in evidence.meta_keys)
        self._kept: dict[tuple[str, ...], _Kept] = {}
        self._monotonic = monotonic
        self._clock = clock

    def of_connection(self, caller: Caller, client: Client, version: str) -> Session:
        """A session for a client that just opened a connection with the handshake."""
        if caller.handle:
            return self._keyed(Method.HANDLE, "handle", caller.handle, caller, client, Era.HANDSHAKE, version)
        if caller.transport is Transport.STDIO:
            for key in self._evidence.environment_keys:
                value = self._evidence.environment.get(key)
                if value:
                    return self._keyed(Method.ENVIRONMENT, key, value, caller, client, Era.HANDSHAKE, version)
            return self._opened(Method.PROCESS, caller, client, Era.HANDSHAKE, version, {})
        return self._opened(Method.CONNECTION, caller, client, Era.HANDSHAKE, version, {})

    def of_request(self, caller: Caller, client: Client, version: str, meta: Raw | bytes) -> Session:
        """The session of a request of the modern era, by the best evidence that it carries."""
        if caller.handle:
            return self._keyed(Method.HANDLE, "handle", caller.handle, caller, client, Era.MODERN, version)
        found = self._conversation_key(meta)
        if found is not None:
            return self._keyed(Method.META_KEY, *found, caller, client, Era.MODERN, version)
        if caller.transport is Transport.STDIO:
            for key in self._evidence.environment_keys:
                value = self._evidence.environment.get(key)
                if value:
                    return self._keyed(Method.ENVIRONMENT, key, value, caller, client, Era.MODERN, version)
            return self._keyed(Method.PROCESS, "process", "", caller, client, Era.MODERN, version)
        if caller.principal:
            return self._keyed(Method.PRINCIPAL, "client", client.name, caller, client, Era.MODERN, version)
        return self._keyed(
            Method.ADDRESS, "client", f"{caller.address} {client.name}", caller, client, Era.MODERN, version
        )

    def of_call(self, base: Session, caller: Caller, meta: Raw | bytes) -> Session:
        """The session of a call on a connection whose session is `base`.

        A conversation key in the call is better evidence than the connection: the first one names the connection's
        session, further ones are sessions of their own.
        """
        found = self._conversation_key(meta)
        if found is None or base.method is Method.HANDLE:
            return base
        name, value = found
        place = self._place(Method.META_KEY, name, value, caller)
        kept = self._kept.get(place)
        now = self._monotonic()
        if kept is not None:
            kept.last_seen = now
            return kept.session
        if base.method in (Method.CONNECTION, Method.PROCESS, Method.ENVIRONMENT):
            base.method = Method.META_KEY
            base.keys[name] = self._hasher.session_key(value)
            self._kept[place] = _Kept(base, now)
            self._tracking.session_changed(base)
            return base
        return self._keyed(Method.META_KEY, name, value, caller, base.client, base.era, base.protocol_version)

    def closed(self, session: Session) -> None:
        """A connection ended; its session ends with it unless better evidence than the connection keeps it open."""
        if session.method in (Method.CONNECTION, Method.PROCESS) and session.ended_at is None:
            self._end(session, self._clock())

    def sweep(self) -> None:
        """End the sessions that have been silent for longer than the idle gap."""
        deadline = self._monotonic() - self._evidence.idle_gap
        for place in [place for place, kept in self._kept.items() if kept.last_seen < deadline]:
            kept = self._kept.pop(place)
            self._end(kept.session, self._clock() - self._evidence.idle_gap)

    def close(self) -> None:
        """End every session: riglm stops."""
        for kept in self._kept.values():
            self._end(kept.session, self._clock())
        self._kept.clear()

    def _conversation_key(self, meta: Raw | bytes) -> tuple[str, str] | None:
        if not meta or not self._meta_keys:
            return None
        raw = bytes(meta)
        for name, encoded in self._meta_keys:
            if encoded in raw:
                value = jsonrpc.text(jsonrpc.members(raw).get(name))
                if value:
                    return name, value
        return None

    def _place(self, method: Method, name: str, value: str, caller: Caller) -> tuple[str, ...]:
        return (method, caller.principal, name, value)

    def _keyed(
        self, method: Method, name: str, value: str, caller: Caller, client: Client, era: Era, version: str
    ) -> Session:
        place = self._place(method, name, value, caller)
        now = self._monotonic()
        kept = self._kept.get(place)
        if kept is not None and now - kept.last_seen <= self._evidence.idle_gap:
            kept.last_seen = now
            return kept.session
        if kept is not None:
            self._end(kept.session, self._clock())
        keys = {name: self._hasher.session_key(value)} if value and method is not Method.PROCESS else {}
        session = self._opened(method, caller, client, era, version, keys)
        if len(self._kept) >= self._evidence.most_kept:
            self._end(self._kept.pop(next(iter(self._kept))).session, self._clock())
        self._kept[place] = _Kept(session, now)
        return session

    def _opened(
        self, method: Method, caller: Caller, client: Client, era: Era, version: str, keys: dict[str, str]
    ) -> Session:
        session = Session(
            started_at=self._clock(),
            era=era,
            transport=caller.transport,
            method=method,
            client=client,
            client_id=self._hasher.client_id(client.name, caller.principal, caller.address),
            principal=self._hasher.principal(caller.principal) if caller.principal else "",
            protocol_version=version,
            keys=keys,
        )
        self._tracking.session_opened(session)
        return session

    def _end(self, session: Session, at: float) -> None:
        session.ended_at = at
        self._tracking.session_closed(session, at)
