"""Several upstreams behind one client connection of the handshake era, as one."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from riglm.application.aggregation.merged_lists import (
    NAMED,
    MergedList,
    MergedListCache,
    OwnershipTable,
    merged,
    wait_for_each,
)
from riglm.application.aggregation.upstream_session import CAPABILITY, UpstreamSession
from riglm.application.forwarding.catalogs import KnownCatalogs
from riglm.application.forwarding.riglm_requests import Asking
from riglm.domain import jsonrpc
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ConnectionHandoff
from riglm.ports.upstream import NullServerMessageHandler, ServerMessageHandler, UpstreamLink, UpstreamPort

_Result = TypeVar("_Result")
_REOPENING_SECONDS: Final = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""Intervals between attempts to open a server that failed; afterwards only requests for it try again."""


class UpstreamGroup:
    """Opens all members, and waits for the slowest with some patience; what comes later is a change.

    Servers that could not be opened are tried again in the background, and announced when they are back.
    """

    def __init__(
        self,
        upstreams: Sequence[UpstreamPort],
        message_handler: ServerMessageHandler,
        asking: Asking,
        directory: OwnershipTable,
        catalogs: KnownCatalogs,
        *,
        principal: str = "",
        grace: float,
        on_change: Callable[[str], None],
    ) -> None:
        """`grace` is in seconds; `on_change` gets the method of a list that changed."""
        self._asking = asking
        self._directory = directory
        self._grace = grace
        self.list_timeout = grace
        """Seconds that lists wait for each server; the opening waits for the grace in any case."""
        self.longest_wait = grace
        """Seconds that lists wait for the first server while no server's list is known."""
        self._on_change = on_change
        self.members = {
            up.spec.name: UpstreamSession(up, message_handler, asking, directory, catalogs, on_change, principal)
            for up in upstreams
        }
        self._log_level = b""
        self._absences: dict[str, str] = {}
        self._lingering: set[asyncio.Task[Any]] = set()

    async def open(self, handshake: bytes) -> None:
        """Open all with the client's own params, and wait for those of which nothing is known from before."""
        opening = {member: member.open(handshake) for member in self.members.values()}
        unknown = [task for member, task in opening.items() if not member.is_known]
        if unknown:
            await asyncio.wait(unknown, timeout=self._grace)
        for member, task in opening.items():
            if not task.done():
                task.add_done_callback(partial(self._joined_late, member))
            elif not task.result():
                self._linger(self._reopen(member))

    def capabilities(self) -> dict[str, Any]:
        """What all known servers together can do; lists can always change, since a server may come or go."""
        joined: dict[str, Any] = {}
        for member in self.members.values():
            joined = merged(joined, {name: jsonrpc.plain(raw) for name, raw in member.capabilities.items()})
        all_known = all(member.is_known for member in self.members.values())
        for name in dict.fromkeys(CAPABILITY.values()):
            if name in joined or not all_known:
                joined[name] = merged(joined.get(name, {}), {"listChanged": True})
        return joined if all_known else {"logging": {}, **joined}  # to report the servers that are absent

    def instructions(self) -> str:
        """The instructions of all known servers, each under its name."""
        told = [(member.name, member.instructions) for member in self.members.values()]
        return "\n\n".join(f"# {name}\n{words}" for name, words in told if words)

    async def joined(self, method: str) -> MergedList | None:
        """The servers' lists as one; None when no server's list could be had.

        A list waits for each server until its list timeout is over, counted from when that server was first asked; and
        if no list is known then and no open server failed, for the first one. What comes later is announced.
        """
        fetching = self._fetching((method,))
        await wait_for_each({task: member.time_left(method, self.list_timeout) for member, task in fetching})
        open_ends = {task for _, task in fetching if not task.done()}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.longest_wait - self.list_timeout):
                while open_ends and not self._directory.knows_any(method) and not _any_failed(fetching):
                    _, open_ends = await asyncio.wait(open_ends, return_when=asyncio.FIRST_COMPLETED)
        for task in open_ends:
            task.add_done_callback(lambda task: self._came_late(method, task))
        is_known = self._directory.knows_any(method) or (method == "tools/list" and self.missing())
        return self._directory.joined(method) if is_known else None

    def missing(self) -> tuple[str, ...]:
        """Return the names of the servers whose tools are still awaited and not known from before."""
        return tuple(
            name
            for name, member in self.members.items()
            if member.is_fetching("tools/list") and not self._directory.knows("tools/list", name)
        )

    def new_absences(self) -> list[str]:
        """Return warnings about servers whose tools the client does not get, each of them once."""
        level = jsonrpc.text(jsonrpc.members(self._log_level).get("level")) if self._log_level else None
        if level not in (None, "debug", "info", "notice", "warning"):
            return []
        missing, found = self.missing(), []
        for name, member in self.members.items():
            if name in missing:
                words = f"MCP server {name!r} has not answered yet. Its tools are listed when it does."
            elif member.is_open or self._directory.knows("tools/list", name):
                continue
            else:
                words = f"MCP server {name!r} is not available: {member.reason}"
            if self._absences.get(name) != words:
                self._absences[name] = words
                found.append(words)
        return found

    async def refresh(self, methods: Iterable[str]) -> None:
        """Refresh the lists that are needed, within the grace."""
        fetching = self._fetching(methods)
        if fetching:
            await asyncio.wait([task for _, task in fetching], timeout=self._grace)

    async def fetch_all(self, methods: Iterable[str]) -> None:
        """Bring lists up to date, however long it takes."""
        await asyncio.gather(*(task for _, task in self._fetching(methods)))

    def failures(self) -> str:
        """Why there is no list, server by server."""
        return "; ".join(f"{member.name!r}: {member.reason}" for member in self.members.values())

    def forget(self, server: str, methods: Iterable[str]) -> None:
        """Lists of a server changed, or may have."""
        for method in methods:
            self.members[server].forget(method)

    def notify(self, message: Message) -> None:
        """Send a message to all open servers."""
        for member in self.members.values():
            if member.is_open:
                member.link.send(message)

    def listen(self, *, listening: bool) -> None:
        """Pause or resume server messages (backpressure while the client does not read)."""
        for member in self.members.values():
            member.listen(listening=listening)

    async def set_log_level(self, params: bytes) -> Message | None:
        """Set the log level on all servers that log, now and later. Returns an error if all of them do."""
        self._log_level = params
        asked = [self._tell_log_level(member) for member in self.members.values() if member.is_open]
        tasks = [task for task in asked if task is not None]
        if not tasks:
            return None
        done, _ = await asyncio.wait(tasks, timeout=self._grace)
        errors = [task.result() for task in done if not task.cancelled() and task.result().error]
        return errors[0] if len(errors) == len(tasks) else None

    def tickets(self) -> dict[str, bytes]:
        """What other processes need to go on with the sessions that servers gave."""
        return {member.name: ticket for member in self.members.values() if (ticket := member.ticket)}

    def adopt(self, handoff: ConnectionHandoff) -> bool:
        """Go on with what another process opened; whether that was all."""
        adopted = [member.adopt(handoff) for member in self.members.values()]
        return all(adopted)

    async def close(self) -> None:
        """End all links."""
        for task in self._lingering:
            task.cancel()
        closing = (member.close() for member in self.members.values())
        await asyncio.gather(*self._lingering, *closing, return_exceptions=True)

    def _fetching(self, methods: Iterable[str]) -> "list[tuple[UpstreamSession, asyncio.Task[bool]]]":
        stale = ((member, method) for method in methods for member in self.members.values())
        return [(member, member.fetch(method)) for member, method in stale if not member.is_fresh(method)]

    def _tell_log_level(self, member: UpstreamSession) -> "asyncio.Task[Message] | None":
        if not member.has("logging"):
            return None
        return self._linger(self._asking.ask(member.link, "logging/setLevel", self._log_level))

    def _linger(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        """Do something in the background, at most until the group is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)
        return task

    def _joined_late(self, member: UpstreamSession, opening: "asyncio.Task[bool]") -> None:
        if opening.cancelled():
            return
        if opening.result():
            self._announce(member)
        else:
            self._linger(self._reopen(member))

    async def _reopen(self, member: UpstreamSession) -> None:
        """Try again to open a server that failed."""
        for seconds in _REOPENING_SECONDS:
            await asyncio.sleep(seconds)
            if await asyncio.shield(member.start_opening()):
                self._announce(member)
                return

    def _announce(self, member: UpstreamSession) -> None:
        """Set the log level of a server that has just been opened, and announce the lists that the client lacks."""
        if self._log_level:
            self._tell_log_level(member)
        for method, capability in CAPABILITY.items():
            is_awaited = member.is_fetching(method) or self._directory.knows(method, member.name)
            if member.has(capability) and not is_awaited:
                self._on_change(method)

    def _came_late(self, method: str, fetching: "asyncio.Task[bool]") -> None:
        if not fetching.cancelled() and fetching.result():
            self._on_change(method)


def _any_failed(fetching: "Sequence[tuple[UpstreamSession, asyncio.Task[bool]]]") -> bool:
    """Return True if an open server has not completed its list yet."""
    return any(task.done() and member.is_open for member, task in fetching)


MAX_OPEN: Final = 1000
"""Requests that a client leaves unanswered beyond this many are forgotten, the oldest first."""

_TOKEN: Final = ("_meta", "progressToken")


class _ServerRequest(NamedTuple):
    link: UpstreamLink
    id: bytes
    token: bytes


class ServerRequestMap:
    """Gives requests of servers, and their progress tokens, new ids, and brings the client's answers home."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[bytes, _ServerRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def outward(self, link: UpstreamLink, message: Message) -> Message | None:
        """A message of a server as the client gets it; None for one that the client does not get.

        These are pings, which riglm answers, and cancellations of requests that the client does not have.
        """
        if message.is_request and message.method == "ping":
            link.send(jsonrpc.answer_without_client(message))
            return None
        if message.id is not None:
            return self._asked(link, message, message.id)
        if message.method == "notifications/cancelled":
            return self._withdrawn(link, message)
        return message

    def homeward(self, message: Message) -> tuple[UpstreamLink, Message] | None:
        """The link that an answer of the client belongs to, and the answer under the id that it knows."""
        server_request = self._open.pop(jsonrpc.id_key(message.id), None) if message.id is not None else None
        return (server_request.link, message.replace(id=server_request.id)) if server_request is not None else None

    def progressed(self, message: Message) -> tuple[UpstreamLink, Message] | None:
        """The link whose request a progress notification of the client is about, and the notice as that knows it."""
        token = bytes(jsonrpc.members(message.params).get("progressToken", b""))
        server_request = self._open.get(jsonrpc.id_key(token)) if token else None
        if server_request is None or not server_request.token:
            return None
        params = jsonrpc.with_member(message.params, ("progressToken",), server_request.token)
        return server_request.link, message.replace(params=params)

    def _asked(self, link: UpstreamLink, message: Message, theirs: bytes) -> Message:
        self._count += 1
        own = b'"%b:%d"' % (jsonrpc.encode(link.spec.name)[1:-1], self._count)
        meta = jsonrpc.members(message.params).get("_meta") if b'"progressToken"' in message.line else None
        token = bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""
        if len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        self._open[own] = _ServerRequest(link, theirs, token)
        if token:
            return message.replace(id=own, params=jsonrpc.with_member(message.params, _TOKEN, own))
        return message.replace(id=own)

    def _withdrawn(self, link: UpstreamLink, message: Message) -> Message | None:
        named = bytes(jsonrpc.members(message.params).get("requestId", b"")) or b"null"
        key = jsonrpc.id_key(named)
        for own, server_request in self._open.items():
            if server_request.link is link and jsonrpc.id_key(server_request.id) == key:
                del self._open[own]
                return message.replace(params=jsonrpc.with_member(message.params, ("requestId",), own))
        return None


TIMEOUT_SECONDS: Final = 5.0
"""A server that has not given its lists by then is not looked at; what it claims later is left out and logged."""

_MAX_NAMED: Final = 5
_KIND: Final = {"tools/list": "tool", "prompts/list": "prompt"}
_log: Final = logging.getLogger("riglm.proxy")


async def check_names(
    upstreams: Sequence[UpstreamPort], merged_lists: MergedListCache, timeout_seconds: float = TIMEOUT_SECONDS
) -> None:
    """Ask all servers for what they have, if two of them could claim one name; `timeout_seconds` is in seconds.

    Raises:
        ConfigurationError: two servers claim one name; both are named.
    """
    if merged_lists.naming != "none" or len(upstreams) < 2:
        return
    directory = OwnershipTable(
        [upstream.spec.name for upstream in upstreams], MergedListCache(merged_lists.naming, logs_collisions=False)
    )
    asking = Asking()
    group = UpstreamGroup(
        upstreams,
        NullServerMessageHandler(),
        asking,
        directory,
        KnownCatalogs(),
        grace=timeout_seconds,
        on_change=lambda _: None,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            await group.fetch_all(NAMED)
    except TimeoutError:
        _log.warning("could not look at the names of all servers in time", extra={"seconds": timeout_seconds})
    finally:
        await group.close()
    found = [
        f"{name!r} is a {_KIND[method]} of {holder!r} and of {other!r}"
        for method in NAMED
        for name, holder, other in directory.joined(method).collisions
    ]
    if found:
        more = f", and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        words = "; ".join(found[:_MAX_NAMED])
        raise ConfigurationError(f"naming: {words}{more}: use `naming: prefix` or `naming: on_collision`")
