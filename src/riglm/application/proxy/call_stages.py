"""The stages of a tool call: meta-tools, whether it may run, and the record of how it ended."""

import time
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.proxy.member import Member
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import CALL, Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.jsonrpc import Message

_OWN: Final = ("", OWN_UPSTREAM)
_NOT_RUN: Final = frozenset({ErrorKind.PROTOCOL, ErrorKind.UNAVAILABLE})
"""How calls end that ran no tool."""


class MetaToolStage(Stage):
    """Answers calls of meta-tools, which run in a task."""

    methods = frozenset({CALL})
    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._filtering = parts.filtering
        self._meta_tools = parts.meta_tools
        self._tracking = parts.tracking
        self._record = CallRecorder(parts)

    def before(self, request: Request) -> Outcome:
        meta_tools, tool = self._meta_tools, request.tool
        if meta_tools is None or not tool or tool not in meta_tools.names or not meta_tools.owns(request.session, tool):
            return None
        return self._run(request, tool)

    async def _run(self, request: Request, tool: str) -> Message | None:
        meta_tools, filtering, session = self._meta_tools, self._filtering, request.session
        if meta_tools is None or filtering is None:
            return None
        started = time.time()
        arguments = bytes(request.params.arguments) or b"{}"
        if meta_tools.needs_catalog(session, tool, arguments):
            catalog = await request.upstreams.whole_catalog(request)
            if catalog is not None:
                filtering.know(session, catalog)
            if not meta_tools.owns(session, tool):
                return None  # now that the list is known, it is a server's tool
        result = await meta_tools.run(session, tool, arguments)
        if result.forward is not None:
            request.retarget(*result.forward)
            return None
        if result.selection is not None:
            self._tracking.exposed(session, result.selection)
        if result.list_changed:
            request.era.announce_tools(request)
        reply = jsonrpc.result(request.id, request.era.complete(result.result))
        self._record.answered(request, tool, reply, started)
        return reply


class PermitStage(Stage):
    """Denies calls of tools that policy or access rules do not permit, or that were not approved.

    It is the only place where calls are denied, and knows all names of the tool. A denied call gets the error of an
    unknown tool, and one of a tool that is held back the reason. If call_tool was given an unknown name, the reply has
    the tools that the name matches: models guess names instead of searching.
    """

    methods = frozenset({CALL})
    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._pins = parts.pins
        self._filtering = parts.filtering
        self._meta_tools = parts.meta_tools
        self._tracking = parts.tracking
        self._record = CallRecorder(parts)

    def before(self, request: Request) -> Outcome:
        member = request.member
        if member is not None and self._pins.is_strict and self._pins.needs_comparison(member.link):
            return self._compare(request, member)
        return self._decide(request)

    async def _compare(self, request: Request, member: Member) -> Message | None:
        """List the tools of the server first, as they are now."""
        await member.compare_tools(request)
        decision = self._decide(request)
        return await decision if isinstance(decision, Coroutine) else decision

    def _decide(self, request: Request) -> Outcome:
        filtering, meta_tools, tool = self._filtering, self._meta_tools, request.tool or ""
        if meta_tools is not None and request.is_by_call_tool:
            if meta_tools.is_unknown(request.session, request.upstreams.names_of(tool)):
                return self._suggest(request, meta_tools, tool)
        elif request.member is not None and not self._pins.is_strict and (filtering is None or not filtering.guards):
            return None
        return self._refusal(request)

    async def _suggest(self, request: Request, meta_tools: MetaTools, tool: str) -> Message:
        """Record the refusal of an unknown tool, and return the tools that its name matches."""
        self._refusal(request, is_unknown=True)
        result = await meta_tools.suggest(request.session, tool)
        if result.selection is not None:
            self._tracking.exposed(request.session, result.selection)
        return jsonrpc.result(request.id, request.era.complete(result.result))

    def _refusal(self, request: Request, *, is_unknown: bool = False) -> Message | None:
        member, reason = request.member, ""
        if is_unknown or not self._is_permitted(request):
            reason = f"Unknown tool: {request.tool or 'its name is no string'}"
        elif member is not None:
            reason = self._pins.refusal(member.name, request.own_name or "", member.link) or ""
            if not reason:
                return None
        words = reason or request.upstreams.router.unknown(request.message, partial(self._permits, request)) or ""
        refusal = jsonrpc.error(request.id, jsonrpc.INVALID_PARAMS, words)
        if request.tool:
            self._record.refused(request, refusal, reason)
        return refusal

    def _is_permitted(self, request: Request) -> bool:
        filtering, meta_tools, tool = self._filtering, self._meta_tools, request.tool
        if filtering is None or meta_tools is None or not filtering.guards:
            return True
        if not tool or meta_tools.withholds(request.session, tool):
            return False
        owner = None if request.member is None else (request.member.name, request.own_name or tool)
        names = request.upstreams.names_of(tool)
        return all(filtering.denial(request.session, name, owner) is None for name in names)

    def _permits(self, request: Request, name: str) -> bool:
        """Whether a session may use the tool that clients call by this name."""
        filtering = self._filtering
        return filtering is None or not filtering.guards or filtering.denial(request.session, name) is None


class Call(NamedTuple):
    """A call that is in flight."""

    tool: str
    server: str
    found: DiscoveryMethod
    is_unlisted: bool
    """Whether the client had no list with the tool."""

    sequence_number: int
    started: float
    """In seconds since the epoch."""

    clock: float
    """When it started, by `time.perf_counter`."""

    with_list: ListSelection
    """The list that the session had when it started."""


class CallStage(Stage):
    """Records each call that reaches a server."""

    methods = frozenset({CALL})

    def __init__(self, parts: ProxyParts) -> None:
        self._record = CallRecorder(parts)

    def before(self, request: Request) -> Outcome:
        tool, member = request.tool, request.member
        if tool and member is not None:
            is_listed = tool in request.upstreams.listed_names
            request.call = self._record.start(request, tool, member.name, is_listed=is_listed)
        return None

    def after(self, request: Request, reply: Message | None) -> Outcome:
        if request.call is not None:
            self._record.end(request, request.call, reply)
        return reply


class CallRecorder:
    """Turns the start and the end of a call into its record, and lets the filter learn from it."""

    def __init__(self, parts: ProxyParts) -> None:
        self._tracking = parts.tracking
        self._filtering = parts.filtering
        self._listed = parts.listed
        self._is_confidential = parts.meta_tools.is_confidential if parts.meta_tools is not None else lambda _: False

    def start(self, request: Request, tool: str, server: str, *, is_listed: bool, started: float = 0.0) -> Call:
        """Return a call that starts now, or did at `started`; `is_listed` is True if the client had it in its list."""
        session, found = request.session, DiscoveryMethod.LISTED if is_listed else DiscoveryMethod.NAMED
        if self._filtering is not None and server != OWN_UPSTREAM:
            found = self._filtering.discovery(session, tool, known=is_listed)
        return Call(
            tool,
            server,
            found,
            not is_listed,
            session.next_sequence_number(),
            started or time.time(),
            request.started,
            self._tracking.list_of(session),
        )

    def end(self, request: Request, call: Call, reply: Message | None, refusal: str = "") -> None:
        """Record a call by its reply.

        Some servers reply to a name that they do not know by `isError`: one that is not listed may be no tool at all.
        """
        kind, code = None, None
        if reply is None:
            kind = ErrorKind.CANCELLED
        elif reply.error:
            code = jsonrpc.error_code(reply)
            kind = ErrorKind.PROTOCOL if request.failure is None else request.failure
            if request.failure is ErrorKind.PROTOCOL:
                kind = ErrorKind.UNAVAILABLE  # `protocol` marks replies of the server
        elif jsonrpc.is_tool_error(reply):
            is_unknown = call.is_unlisted and call.found is DiscoveryMethod.NAMED
            lacks = is_unknown and self._listed.lacks(call.server, request.own_name or call.tool)
            kind = ErrorKind.PROTOCOL if lacks else ErrorKind.TOOL
        arguments = request.params.arguments
        self._tracking.called(
            request.session,
            tool=call.tool,
            upstream=call.server,
            arguments=bytes(arguments) if arguments else None,
            sequence_number=call.sequence_number,
            started=call.started,
            duration_ms=(perf_counter() - call.clock) * 1000.0,
            error_kind=kind,
            error_code=code,
            found=call.found,
            is_confidential=call.server in _OWN and self._is_confidential(call.tool),
            with_list=call.with_list,
            refusal=refusal,
        )
        if self._filtering is not None and kind not in _NOT_RUN and call.server != OWN_UPSTREAM:
            self._filtering.called(request.session, call.tool, call.found, request.params.meta, success=kind is None)

    def answered(self, request: Request, tool: str, reply: Message, started: float) -> None:
        """Record a call of a meta-tool, which started at `started`."""
        call = self.start(request, tool, OWN_UPSTREAM, is_listed=True, started=started)
        self.end(request, call, reply)

    def refused(self, request: Request, reply: Message, reason: str) -> None:
        """Record a call that reaches no server; `reason` is why riglm refused it, empty for an unknown tool."""
        self.end(request, self.start(request, request.tool or "", "", is_listed=False), reply, reason)
