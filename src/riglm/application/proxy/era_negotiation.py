"""Whether modern requests are served: riglm mirrors the era, so servers that support only the handshake decide."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from riglm.application.proxy.catalogs import StoredCatalogs
from riglm.application.proxy.request import ask
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.ports.upstream import NullServerMessageHandler, UpstreamLink, UpstreamPort

if TYPE_CHECKING:
    from riglm.application.proxy.member import Member
    from riglm.application.proxy.request import Request
    from riglm.application.proxy.stage import Outcome

RETRY_SECONDS: Final = 5.0
"""Seconds to wait before a server that could not be reached is probed again."""

_MAX_SILENCES: Final = 6
"""Maximum number of probes without a reply, after which only the next request sends one again."""

_MODERN_ERRORS: Final = frozenset({jsonrpc.HEADER_MISMATCH, -32021})
_DISCOVER: Final = "server/discover"
_OWN_PARAMS: Final = jsonrpc.encode({"_meta": protocol.OWN_ENVELOPE})
_log: Final = logging.getLogger("riglm.proxy")


def refusal(
    request: "Request", supported: Sequence[str] = protocol.HANDSHAKE_VERSIONS, *, is_silent: bool = False
) -> Message:
    """Return the error for modern clients of servers that support only the handshake era, or have not replied yet.

    The client may open with any of `supported`: the servers settle on a version.
    """
    requested = request.envelope.version if request.envelope is not None else None
    data = {"supported": list(supported), "requested": requested or ""}
    reason = "The server has not answered yet: try again, or" if is_silent else "Unsupported protocol version:"
    request.status = 400
    return jsonrpc.error(request.id, jsonrpc.UNSUPPORTED_PROTOCOL_VERSION, f"{reason} open with initialize", data)


def is_modern(reply: Message) -> bool | None:
    """Whether a reply to `server/discover` shows a server of the modern era; None if it shows neither."""
    code = jsonrpc.error_code(reply)
    if reply.result or code == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION:
        # a version beyond those of the handshake counts, also one that riglm does not know yet
        return any(version not in protocol.HANDSHAKE_VERSIONS for version in _versions(reply))
    if code in _MODERN_ERRORS:
        return True
    return False if code == jsonrpc.METHOD_NOT_FOUND else None


def _versions(reply: Message) -> list[object]:
    """Return the versions that a reply to `server/discover` names."""
    if reply.result:
        raw = jsonrpc.members(reply.result).get("supportedVersions")
    else:
        raw = jsonrpc.members(jsonrpc.members(reply.error).get("data", b"{}")).get("supported")
    versions = jsonrpc.plain(raw) if raw else []
    return versions if isinstance(versions, list) else []


class EraProbe:
    """Finds out by `server/discover` whether a server supports the modern era.

    A server that does not reply is probed again for a while, since it may still be starting.
    """

    def __init__(self, upstream: UpstreamPort, link: UpstreamLink, *, silence_counts: bool = True) -> None:
        """With `silence_counts`, a server that does not reply counts for a while as one of the handshake era."""
        self.supported: Sequence[str] = protocol.HANDSHAKE_VERSIONS
        """The versions of the handshake that the server named when it refused; all of them if it named none."""
        self._upstream = upstream
        self._link = link
        self._silence_counts = silence_counts
        self._silences = 0
        self._asking: asyncio.Task[bool | None] | None = None

    @property
    def is_silent(self) -> bool:
        """True if the server has not replied so far, and is probed."""
        return self._silences > 0

    async def ask(self) -> bool | None:
        """Return whether the server is modern; None if there was no reply."""
        return False if self.is_silent else await asyncio.shield(self._ask())

    def judge(self, reply: Message) -> bool | None:
        """Return whether a reply to `server/discover` shows a modern server, and note what it names."""
        modern = is_modern(reply)
        if modern is False:
            named = [str(version) for version in _versions(reply) if version in protocol.HANDSHAKE_VERSIONS]
            self.supported = named or protocol.HANDSHAKE_VERSIONS
        return modern

    def note_silence(self) -> None:
        """The server did not reply to a `server/discover` in time."""
        if self._asking is None:
            self._silences = (self._silences + 1) % (_MAX_SILENCES + 1)
            if self.is_silent:
                self._ask()

    def _ask(self) -> "asyncio.Task[bool | None]":
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._probe())
        return self._asking

    async def _probe(self) -> bool | None:
        related = partial(NullServerMessageHandler().unsolicited, self._link)
        try:
            reply, failure = await ask(self._link, _DISCOVER, _OWN_PARAMS, related)
        finally:
            self._asking = None
        if failure is ErrorKind.TIMEOUT and self._silence_counts:
            self.note_silence()
            return False
        self._silences = 0
        if failure not in (None, ErrorKind.PROTOCOL):
            return None
        modern = self.judge(reply) or False
        self._upstream.learned(ProtocolEra.MODERN, supported=modern)
        return modern


class OneServerEra:
    """Admits modern requests if the only server supports the era; the client's `server/discover` is the probe."""

    def __init__(self, member: "Member") -> None:
        self._upstream = member.upstream
        self._probe = EraProbe(member.upstream, member.link)

    def admit(self, request: "Request") -> "Outcome":
        """Return the refusal of a modern request; nothing if it may be forwarded."""
        known = self._upstream.supports(ProtocolEra.MODERN)
        if known or (known is None and request.method == _DISCOVER):
            return None
        return self._refusal(request) if known is False else self._admit_later(request)

    async def _admit_later(self, request: "Request") -> Message | None:
        return self._refusal(request) if await self._probe.ask() is False else None

    def discovered(self, request: "Request", reply: Message) -> "Outcome":
        """Return what a client gets for the first `server/discover`, given the server's reply."""
        if self._upstream.supports(ProtocolEra.MODERN) is not None or request.failure is ErrorKind.UNAVAILABLE:
            return reply
        if request.failure is ErrorKind.TIMEOUT:
            self._probe.note_silence()
            return self._refusal(request)
        modern = self._probe.judge(reply)
        if modern is None:
            return self._probe_again(request, reply)
        self._upstream.learned(ProtocolEra.MODERN, supported=modern)
        if modern is False and jsonrpc.error_code(reply) == jsonrpc.METHOD_NOT_FOUND:
            return self._refusal(request)
        return reply

    async def _probe_again(self, request: "Request", reply: Message) -> Message:
        return self._refusal(request) if await self._probe.ask() is False else reply

    def _refusal(self, request: "Request") -> Message:
        return refusal(request, self._probe.supported, is_silent=self._probe.is_silent)


class SeveralServersEra:
    """Admits modern requests while no server is known to lack the era: the handshake takes any mix of servers.

    If a server supports only the handshake era, or has not replied yet, clients that probe for the era get the
    handshake. Unreachable servers do not count. A result is final: a server that proves to lack the modern era later is
    left out. Clients that use the modern era without probing are served by the servers that reply.
    """

    def __init__(self, members: Mapping[str, "Member"], grace: float, catalogs: StoredCatalogs) -> None:
        """No server is probed yet. Requests wait for the replies for `grace` seconds after the probe.

        Servers with a stored catalog of the era are expected to support it still, and are not waited for.
        """
        self._members = members
        self._grace = grace
        self._catalogs = catalogs
        self._probes = {
            name: EraProbe(member.upstream, member.link, silence_counts=False) for name, member in members.items()
        }
        self._silent: set[str] = set()
        self._all_replied = asyncio.Event()
        self._asked_at: dict[str, float] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._granted = False
        self._left_out: set[str] = set()

    def admit(self, request: "Request") -> "Outcome":
        """Return the refusal of a modern request; nothing if it may be served."""
        if self._granted:
            return None
        self._ask()
        return self._admit_later(request)

    def discovered(self, request: "Request", reply: Message) -> "Outcome":
        """Return the reply to `server/discover`, which riglm itself made."""
        return reply

    async def _admit_later(self, request: "Request") -> Message | None:
        left = self._grace_left()
        if left > 0.0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_replied.wait(), left)
        supported = [self._supports(name) for name in self._members]
        is_possible = any(supported) and all(known is not False for known in supported)
        self._granted = self._granted or (is_possible and not self._silent)
        if self._granted or (is_possible and request.method != _DISCOVER):
            return None
        return refusal(request)

    def takes_part(self, member: "Member") -> bool:
        """Return True if a server supports the era."""
        supported = member.upstream.supports(ProtocolEra.MODERN)
        if supported is not False:
            if supported is None:  # it was replaced, maybe by another version
                self._ask()
            return True
        if member.name not in self._left_out:
            self._left_out.add(member.name)
            _log.warning("left out a server that only knows the handshake", extra={"upstream": member.name})
        return False

    def _supports(self, name: str) -> bool | None:
        known = self._members[name].upstream.supports(ProtocolEra.MODERN)
        return True if known is None and self._is_expected(name) else known

    def _is_expected(self, name: str) -> bool:
        """Whether a server supported the era before."""
        variant = self._catalogs.variant_for(ProtocolEra.MODERN)
        return self._catalogs.find(self._members[name].upstream.spec, variant) is not None

    def _grace_left(self) -> float:
        """Return for how many seconds more the silent servers are waited for."""
        asked_at = max((self._asked_at[name] for name in self._silent), default=-math.inf)
        return asked_at + self._grace - time.monotonic()

    def _ask(self) -> None:
        now = time.monotonic()
        for name, member in self._members.items():
            if member.upstream.supports(ProtocolEra.MODERN) is not None or name in self._silent:
                continue
            asked_at = self._asked_at.get(name)
            if asked_at is None or asked_at + RETRY_SECONDS < now:
                if asked_at is None and not self._is_expected(name):
                    self._silent.add(name)
                    self._all_replied.clear()
                self._asked_at[name] = now
                task = asyncio.get_running_loop().create_task(self._probe(name))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _probe(self, name: str) -> None:
        try:
            await self._probes[name].ask()
        finally:
            self._silent.discard(name)
            if not self._silent:
                self._all_replied.set()
