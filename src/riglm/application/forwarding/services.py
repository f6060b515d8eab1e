"""What every conversation works with."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.forwarding.catalogs import CatalogCache, KnownCatalogs, ListedTools
from riglm.application.forwarding.proxied_request import ActiveCall, OverheadMeter, ProxiedRequest
from riglm.application.owners import ToolOwners
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.tool_lists.selection import ListSelection
from riglm.application.tracking.tracking_service import TrackingService
from riglm.application.trust import PinnedTools
from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.request_params import RequestParams
from riglm.domain.session import Session
from riglm.domain.tool import ToolCatalog
from riglm.ports.telemetry import TracerPort
from riglm.ports.upstream import UpstreamLink

_log: Final = logging.getLogger("riglm.proxy")

WHOLE: Final = "everything is shown"
"""Reason recorded for a list that is not filtered."""


CallObserver = Callable[[Session, str, RequestParams, bool], tuple[DiscoveryMethod, Callable[[ErrorKind | None], None]]]
"""Called when a tool call starts, with whether the upstream has listed the tool to this client.

Returns how the client found the tool, and a callback for the end of the call.
"""

Permission = Callable[[Session, Sequence[str], tuple[str, str] | None], bool]
"""Returns True if a session may call a tool.

The arguments are all names of the tool that clients may use, none if a call has no readable name, and its server with
the name there, if they are known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestServices:
    """The services of one riglm process."""

    tracking: TrackingService
    sessions: SessionRegistry
    catalogs: CatalogCache
    known_catalogs: KnownCatalogs = field(default_factory=KnownCatalogs)
    owners: ToolOwners = field(default_factory=ToolOwners)
    grace: float = 0.8
    """Seconds that a client waits for the slowest of several servers before it gets what the others have."""
    longest_list: float = 30.0
    """Seconds that a client waits for the complete list if it ignores list-changed notifications."""
    guarded: FailingOpen = field(
        default_factory=lambda: FailingOpen(_log, "a list could not be noted; it goes out as it came, and")
    )
    """Context manager around the recording of a list."""
    on_call: CallObserver | None = None
    filters_lists: Callable[[], bool] = lambda: False
    """True while the filter records what lists show."""
    permits: Permission = lambda *_: True
    guards: Callable[[], bool] = lambda: False
    """True while the filter denies tools."""
    is_confidential: Callable[[str], bool] = lambda _: False
    """True for a tool whose arguments must not be recorded."""
    overhead: OverheadMeter | None = None
    """Measures riglm's overhead on calls; None if it is not measured."""
    tracer: TracerPort | None = None
    """Creates spans of requests; None if they are not traced."""

    @property
    def pins(self) -> PinnedTools:
        """What was approved of the servers' tools."""
        return self.known_catalogs.pins

    def definition(self, name: str) -> Raw | None:
        """Return the raw definition of a tool by the name that clients use; None if it is not known."""
        server, own_name = self.owners.of(name)
        tool = self.catalogs.of(server).by_name.get(name)
        return tool.raw if tool else self.known_catalogs.definition(server, own_name)

    def misreading(self, message: Message) -> Message | None:
        """Return the error for a message that a server that ignores case could take for the call of a refused tool."""
        if not self.guards() and not self.pins.is_strict:
            return None
        method = message.method or ""
        if method.casefold() == "tools/call" and (method != "tools/call" or not message.is_request):
            return jsonrpc.error(
                message.id, jsonrpc.INVALID_REQUEST, "Invalid request: tools are called by 'tools/call', with an id"
            )
        key = request_params.disguised_key(message)
        if key is None:
            return None
        words = f"Invalid request: {key!r} could be taken for {key.casefold()!r}"
        return jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, words)

    def start_call(
        self,
        session: Session,
        message: Message,
        upstream: str,
        names: Sequence[str],
        *,
        link: UpstreamLink | None,
        owner: tuple[str, str] | None = None,
        known: bool,
        is_unlisted: Callable[[], bool] | None = None,
    ) -> tuple[ActiveCall | None, Message | None]:
        """Record a call of `upstream` and decide whether it may run; this is the only place where calls are denied.

        `names` are all names of the tool that clients may use, first the one in the call; none if it has no readable
        name. `link` is the one that the call would go over. A denied call gets the error of an unknown tool, and the
        call of a tool that is held back the reason.
        """
        given, name = request_params.read(message), names[0] if names else ""
        refused = None
        if not self.permits(session, names, owner):
            refused = f"Unknown tool: {name or 'its name is no string'}"
        elif upstream:
            refused = self.pins.refusal(*(owner or (upstream, name)), link)
        error = None if refused is None else jsonrpc.error(message.id, jsonrpc.INVALID_PARAMS, refused)
        if not names:
            return None, error
        if error is None:
            return self.call(session, upstream, name, given, known, is_unlisted), None
        call = self.call(session, "", name, given, known=False)
        call.is_confidential, call.refusal = self.is_confidential(name), refused or ""
        return call, error

    def call(
        self,
        session: Session,
        upstream: str,
        tool: str,
        given: RequestParams,
        known: bool,
        is_unlisted: Callable[[], bool] | None = None,
    ) -> ActiveCall:
        """Record that a call starts; `known` is True if the client had the tool in its list.

        For a tool that was not listed, `is_unlisted` returns True if the upstream's catalog is known and lacks it.
        """
        found, on_end = DiscoveryMethod.LISTED if known else DiscoveryMethod.NAMED, None
        if self.on_call is not None:
            found, on_end = self.on_call(session, tool, given, known)
        return ActiveCall(
            self.tracking,
            session,
            tool=tool,
            upstream=upstream,
            arguments=bytes(given.arguments) if given.arguments else None,
            found=found,
            is_unlisted=is_unlisted if found is DiscoveryMethod.NAMED else None,
            on_end=on_end,
            stopwatch=None if self.overhead is None else self.overhead.stopwatch(upstream),
        )

    def waited(self) -> None:
        """A request had to wait for a server before it could go its way: what follows is riglm's again."""
        if self.overhead is not None:
            self.overhead.begin()

    def listed(
        self,
        session: Session,
        link: UpstreamLink,
        tools_version: int,
        exchange: ProxiedRequest,
        message: Message,
        seen: ListedTools | None = None,
    ) -> Message:
        """Return an upstream's answer to `tools/list` without what is held back; note it, in `seen` as well.

        `tools_version` is that of the link when the list was asked for.
        """
        if message.result:
            message, result = self.pins.review_page(link, tools_version, exchange.message, message)
            with self.guarded:
                page = self.catalogs.read(link.spec.name, exchange.message, result)
                if seen is not None:
                    seen.note(exchange.message, page)
                self.expose(session, page)
        return message

    def expose(self, session: Session, catalog: ToolCatalog) -> None:
        """Record that a session got all tools, unless the filter records its lists or the list is incomplete."""
        if not catalog.missing and not self.filters_lists():
            with self.guarded:
                self.tracking.exposed(session, ListSelection(catalog.names, reason=WHOLE))


def tool_name(given: RequestParams) -> str | None:
    """The tool that a `tools/call` names; a call that names none is passed on, and is no invocation of any tool."""
    name = jsonrpc.text(given.name)
    return None if name is None else sys.intern(name)  # sessions keep the names of their calls
