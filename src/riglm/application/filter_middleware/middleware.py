"""The tool filter in front of all connections, with the requests that it sends itself."""

import asyncio
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.filter_middleware.paged_lists import PagedListRequest, ReadLists, read_plainly
from riglm.application.filter_middleware.response_sinks import ServerMessageSink
from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.forwarding.proxied_request import NOWHERE
from riglm.application.forwarding.services import RequestServices
from riglm.application.knowledge.definition import NAME as INNER_VOICE
from riglm.application.knowledge.definition import definition
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra, Session
from riglm.domain.tool import ToolCatalog, estimated_tokens
from riglm.ports.downstream import ClientResponseSink, InFlightRequest

if TYPE_CHECKING:
    from riglm.application.knowledge.inner_voice import InnerVoice

_MAX_KEPT: Final = 16
_OF_ONE_PAGE: Final = b'"resultType":"complete","ttlMs":0,"cacheScope":"private"'  # the modern era asks for these
_log: Final = logging.getLogger("riglm.filtering")


class AlwaysListed:
    """Adds the tool's entry behind all others, and leaves out an upstream's entry of the same name."""

    def __init__(self, name: str, entry: bytes, on_listed: Callable[[], None] = lambda: None) -> None:
        """`entry` is its definition as raw JSON; `on_listed` is called before it is sent in a list."""
        self.tokens: Final = estimated_tokens(len(entry))
        """About what the entry takes of a client's context."""
        self.name: Final = name
        self._entry = entry
        self._when_listed = on_listed
        self._is_told = False
        self._kept: OrderedDict[tuple[bytes, bool], bytes] = OrderedDict()

    def completed(self, answer: Message) -> Message:
        """One page of a list; the last one has the tool, and so has the answer of an upstream that knows no tools.

        Any other answer stays as it is.
        """
        if answer.error and jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND:
            self._when_listed()
            return jsonrpc.result(answer.id or b"null", b'{"tools":[%b],%b}' % (self._entry, _OF_ONE_PAGE))
        fields = jsonrpc.members(answer.result) if answer.result else {}
        if "tools" not in fields:
            return answer
        is_last = not jsonrpc.next_cursor(fields)
        if is_last:
            self._when_listed()
        fields["tools"] = Raw(self._entries(bytes(fields["tools"]), is_last=is_last))
        return answer.replace(result=jsonrpc.join_object(fields))

    def _entries(self, tools: bytes, *, is_last: bool) -> bytes:
        key = (tools, is_last)
        kept = self._kept.get(key)
        if kept is None:
            others = [bytes(each) for each in jsonrpc.elements(tools) if not self._is_namesake(each)]
            kept = self._kept[key] = b"[%b]" % b",".join([*others, self._entry] if is_last else others)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _is_namesake(self, entry: Raw) -> bool:
        if jsonrpc.text(jsonrpc.members(entry).get("name")) != self.name:
            return False
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "an upstream's tool is called %s as well: it is reached by call_tool, or once knowledge.alias gives "
                "riglm's another name",
                self.name,
            )
        return True


PREPARING_SECONDS: Final = 6.0
"""A client waits no longer for what its list is made from; without it everything is shown."""

LISTING_SECONDS: Final = 5.0
"""Seconds that a meta-tool waits for the catalog that it needs."""

ListChangeCallback = Callable[[Callable[[Session], bool]], None]
"""Called with a function that returns True for each session whose list may have changed."""


class FilterMiddleware:
    """Composes lists, and refuses calls of denied tools. A filter that fails shows everything that is not denied."""

    def __init__(
        self,
        services: RequestServices,
        filtering: FilteringService,
        meta_tools: MetaTools,
        always: AlwaysListed | None = None,
    ) -> None:
        """Sessions that end are forgotten by the filter from now on; `always` is in all lists."""
        services.tracking.on_closed(filtering.forget)
        filtering.when_foreshadowed(lambda session, would_be: self.expose(session, self._with_always(would_be)))
        self.services = services
        self.filtering = filtering
        self.meta_tools = meta_tools
        self._always = always
        self._lists = ReadLists()
        self._guarded = FailingOpen(_log, "filtering failed; everything is shown, and")
        self._at_pages = FailingOpen(_log, "filtering failed; an error is the answer, since some tools are denied, and")
        self._tasks: set[asyncio.Task[None]] = set()
        self._followers: set[ListChangeCallback] = set()
        self._is_told_soon = False
        self._is_closed = False
        self._prefix = f"riglm-{secrets.token_hex(8)}".encode()
        self._numbers = itertools.count(1)

    def new_id(self) -> bytes:
        """Return a raw request id for riglm's requests that no client uses."""
        return b'"%b-%d"' % (self._prefix, next(self._numbers))

    def observed(self) -> RequestServices:
        """Return the services, with the filter notified of every call."""
        return replace(
            self.services,
            on_call=self.filtering.start_call,
            filters_lists=lambda: self.filtering.is_on,
            permits=self._permits,
            guards=lambda: self.filtering.guards,
            is_confidential=self.meta_tools.is_confidential,
        )

    def _permits(self, session: Session, names: Sequence[str], owner: tuple[str, str] | None) -> bool:
        if not self.filtering.guards:
            return True
        if not names or self.meta_tools.withholds(session, names[0]):
            return False
        return all(self.filtering.denial(session, name, owner) is None for name in names)

    def listed(self, session: Session, walk: PagedListRequest, done: Callable[[ToolCatalog], None]) -> None:
        """Answer a list whose pages are all there; `done` gets the whole catalogue just before."""
        catalog, since = ToolCatalog(), time.perf_counter()
        with self._guarded:
            catalog = self.read(walk)
            if self.filtering.needs_usage(session):
                self._start(self._listed_later(session, walk, catalog, done, since))
                return
        self._answer(session, walk, catalog, done, since)

    def read(self, walk: PagedListRequest) -> ToolCatalog:
        """The whole catalogue of a list whose pages are all there."""
        return self._lists.read(walk.pages, plainly=self.filtering.guards)

    async def fetch(
        self,
        asked: Message,
        *,
        ask: Callable[[Message, ClientResponseSink], InFlightRequest | None],
        take: Callable[[ToolCatalog], None],
        withdraw: Callable[[PagedListRequest], None],
        sink: ClientResponseSink = NOWHERE,
    ) -> None:
        """Fetch the catalog for riglm itself; the request is cancelled after the timeout.

        `sink` is that of the client's request that needs the catalog: it gets what the server asks meanwhile.
        """
        heard = asyncio.Event()

        def whole(walk: PagedListRequest) -> None:
            take(self.read(walk))
            walk.give_up()

        to_client = ServerMessageSink(sink)
        walk = PagedListRequest(asked, to_client, ask=ask, new_id=self.new_id, whole=whole, over=lambda _: heard.set())
        walk.start()
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                await heard.wait()
        except TimeoutError:
            withdraw(walk)

    @property
    def adds(self) -> bool:
        """Whether lists are others than the upstream's even where the filter lets them pass."""
        return self._always is not None and not self.meta_tools.is_denied(self._always.name)

    def completed(self, answer: Message) -> Message:
        """An answer to a client's list, with the tool that is in all of them."""
        return self._always.completed(answer) if self._always is not None and self.adds else answer

    def without_denied(self, session: Session, page: Message) -> Message:
        """One page of an upstream's list, less the tools that are denied."""
        if not self.filtering.guards or "tools" not in jsonrpc.members(page.result):
            return page
        with self._at_pages:
            tools = read_plainly(bytes(page.result)).tools
            kept = [bytes(tool.raw) for tool in tools if self.filtering.denial(session, tool.name) is None]
            raw = jsonrpc.with_member(page.result, ("tools",), b"[%b]" % b",".join(kept))
            return page.replace(result=_private(jsonrpc.members(raw), 0) if session.era is ProtocolEra.MODERN else raw)
        return jsonrpc.error(page.id, jsonrpc.INTERNAL_ERROR, "the list cannot be looked through for denied tools")

    def expose(self, session: Session, selection: ListSelection) -> None:
        """Note what a session was shown."""
        self.services.tracking.exposed(session, selection)

    def passed(self, session: Session, page: Message) -> bool:
        """Record that a client gets the first page of a list unchanged. Returns True if its list has changed since.

        It is when the rules changed while the page was under way.
        """
        with self._guarded:
            fields = jsonrpc.members(page.result)
            if "tools" in fields:
                is_whole = not jsonrpc.next_cursor(fields)
                self.filtering.passed(session, self._lists.read([page], plainly=False), is_whole=is_whole)
                return self.filtering.is_on and self.filtering.reconfigured(session)
        return False

    def follow(self, follower: ListChangeCallback) -> None:
        """Register a callback for changes of lists, until `unfollow`."""
        self._followers.add(follower)

    def unfollow(self, follower: ListChangeCallback) -> None:
        """Remove a callback."""
        self._followers.discard(follower)

    def overridden(self) -> None:
        """Overrides changed: notify all callbacks."""
        self._start(self.tell_overridden())

    async def tell_overridden(self) -> None:
        """Notify all callbacks that overrides changed."""
        await self._notify(self.filtering.overridden)

    def reconfigured(self) -> None:
        """The rules changed: notify all callbacks, once for changes that are close together."""
        if not self._is_told_soon and not self._is_closed:
            self._is_told_soon = True
            self._start(self.tell_reconfigured())

    async def tell_reconfigured(self) -> None:
        """Notify all callbacks that the rules changed."""
        self._is_told_soon = False
        await self._notify(self.filtering.reconfigured)

    async def _notify(self, is_another: Callable[[Session], bool]) -> None:
        """Notify all callbacks one by one, and yield to the event loop in between."""
        for follower in list(self._followers):
            if follower in self._followers:
                with self._guarded:
                    follower(is_another)
                await asyncio.sleep(0)

    def announces(self, session: Session) -> bool:
        """Whether the lists of a session may change while its client is connected."""
        with self._guarded:
            return self.filtering.announces(session)
        return False

    async def close(self) -> None:
        """Cancel the lists that are in flight, and stop notifying."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(
        self,
        session: Session,
        walk: PagedListRequest,
        catalog: ToolCatalog,
        done: Callable[[ToolCatalog], None],
        since: float,
    ) -> None:
        done(catalog)
        answer = self._composed(session, walk, catalog) or self.without_denied(session, walk.pages[0])
        walk.answer(answer)
        if self.services.overhead is not None:
            self.services.overhead.listed(time.perf_counter() - since)

    def _composed(self, session: Session, walk: PagedListRequest, catalog: ToolCatalog) -> Message | None:
        """The list as the session sees it; None when the filter failed."""
        with self._guarded:
            selection = self.filtering.compose(session, catalog)
            answer = walk.pages[0]
            if not selection.is_passthrough or self.filtering.guards:  # what riglm could not read must not pass unseen
                answer = answer.replace(result=self._result(session, walk, selection.raw))
            if not catalog.missing:
                self.expose(session, self._with_always(selection))
            return answer
        return None

    def _with_always(self, selection: ListSelection) -> ListSelection:
        """The record of a list, with what the tool that is in all of them takes."""
        if self._always is None or not self.adds:
            return selection
        tokens = self._always.tokens
        return replace(
            selection, tokens_shown=selection.tokens_shown + tokens, tokens_own=selection.tokens_own + tokens
        )

    def _result(self, session: Session, walk: PagedListRequest, entries: bytes) -> bytes:
        """The result of the first page with other entries, and no further pages."""
        pages = walk.fields
        fields = {**pages[0]}
        fields.pop("nextCursor", None)
        fields["tools"] = Raw(entries)
        if session.era is not ProtocolEra.MODERN:
            return jsonrpc.join_object(fields)
        ttls = [jsonrpc.plain(page.get("ttlMs", b"0")) for page in pages]
        theirs = min((ttl if isinstance(ttl, int | float) and ttl > 0 else 0) for ttl in ttls)
        own = max(0.0, self.filtering.fresh_seconds(session)) * 1000
        return _private(fields, int(min(theirs, own)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listed_later(
        self,
        session: Session,
        walk: PagedListRequest,
        catalog: ToolCatalog,
        done: Callable[[ToolCatalog], None],
        since: float,
    ) -> None:
        with self._guarded:
            async with asyncio.timeout(PREPARING_SECONDS):
                await self.filtering.prepare(session, catalog)
        self._answer(session, walk, catalog, done, since)


def _private(fields: dict[str, Raw], ttl_ms: int) -> bytes:
    """Return a result that must not be cached for other clients."""
    fields["ttlMs"] = Raw(b"%d" % ttl_ms)
    fields["cacheScope"] = Raw(b'"private"')
    return jsonrpc.join_object(fields)


def build_filter_middleware(
    services: RequestServices, filtering: FilteringService, voice: "InnerVoice | None", alias: str | None
) -> FilterMiddleware:
    """Return the middleware with the meta-tools; `voice` is listed as `alias`, by default as `inner_voice.retrieve`."""
    names = (INNER_VOICE,) if alias in (None, INNER_VOICE) else (alias, INNER_VOICE)
    always = None if voice is None else AlwaysListed(names[0], definition(names[0]), voice.get_ready)
    return FilterMiddleware(services, filtering, MetaTools(filtering, voice, names), always)
