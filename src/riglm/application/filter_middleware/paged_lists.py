"""One `tools/list` of a client, asked page by page until the whole list is known."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from riglm.application.forwarding.riglm_requests import MAX_BYTES, MAX_PAGES, MAX_SECONDS
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool import Tool, ToolCatalog, read_catalog
from riglm.ports.downstream import ClientResponseSink, InFlightRequest
from riglm.ports.upstream import EventPosition

_log: Final = logging.getLogger("riglm.proxy")


class PagedListRequest(ClientResponseSink, InFlightRequest):
    """Requests the first page by the client's request, and the others by riglm's requests.

    What belongs to the request goes on to the client, and so does an error, under the client's id. A list that looks
    endless ends where that was noticed.
    """

    def __init__(
        self,
        asked: Message,
        sink: ClientResponseSink,
        *,
        ask: Callable[[Message, ClientResponseSink], InFlightRequest | None],
        new_id: Callable[[], bytes],
        whole: Callable[["PagedListRequest"], None],
        over: Callable[["PagedListRequest"], None] = lambda _: None,
    ) -> None:
        """`ask` sends a request, `whole` is called when all pages have arrived, `over` at the end in any case."""
        self.asked = asked
        self.sink = sink
        self.pages: list[Message] = []
        self.fields: list[dict[str, Raw]] = []
        """The members of each page's result."""
        self.done = False
        self.current = asked
        """The request that is under way."""
        self.in_flight: InFlightRequest | None = None
        self._ask = ask
        self._new_id = new_id
        self._whole = whole
        self._over = over
        self._seen: set[bytes] = set()
        self._size = 0
        self._deadline = asyncio.get_running_loop().time() + MAX_SECONDS

    def start(self) -> None:
        """Ask for the first page."""
        self.in_flight = self._ask(self.current, self)

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if not self.done:
            self.sink.related(message)

    def primed(self, event: EventPosition) -> None:
        if not self.done and not self.pages:
            self.sink.primed(EventPosition(None, event.retry_ms))

    def interrupted(self) -> None:
        """Ignore priming events; only clients that resume streams need them."""

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        if self.done:
            return
        fields = jsonrpc.members(message.result) if message.result else {}
        if "tools" not in fields:
            self.answer(message if not self.pages else message.replace(id=self.asked.id or b"null"), status)
            return
        self.pages.append(message)
        self.fields.append(fields)
        self._size += len(message.line)
        cursor = jsonrpc.next_cursor(fields)
        if not cursor or self._is_endless(cursor):
            self._whole(self)
            return
        self._seen.add(cursor)
        params = jsonrpc.with_member(self.asked.params or b"{}", ("cursor",), cursor)
        self.current = jsonrpc.request(self._new_id(), self.asked.method or "", params)
        self.in_flight = self._ask(self.current, self)

    def answer(self, message: Message, status: int = 200) -> None:
        """Answer the client."""
        if not self.done:
            self.give_up()
            self.sink.replied(message, status)

    def give_up(self) -> None:
        """Cancel the request: the list is no longer needed."""
        self.done = True
        self._over(self)

    def _is_endless(self, cursor: bytes) -> bool:
        late = asyncio.get_running_loop().time() > self._deadline
        if cursor in self._seen or len(self.pages) >= MAX_PAGES or self._size > MAX_BYTES or late:
            _log.warning("took a list for endless, and what came of it for all", extra={"pages": len(self.pages)})
            return True
        return False


def has_one_name(tool: Tool) -> bool:
    """Whether a listed tool has the same name for every reader."""
    if request_params.mistakable_keys(jsonrpc.members(tool.raw), ("name",)):
        return False
    try:
        return jsonrpc.repeated(bytes(tool.raw), (b'"name"',)) is None
    except jsonrpc.MalformedMessageError:
        return False


MAX_KEPT: Final = 16
"""Maximum number of different lists that are kept."""


class ReadLists:
    """Reads whole lists, and gives the same object again for the same tools.

    What riglm writes keeps its order when an upstream lists the same tools in another order at each request.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[bool, list[bytes], ToolCatalog]] = deque(maxlen=MAX_KEPT)

    def read(self, pages: Sequence[Message], *, plainly: bool) -> ToolCatalog:
        """The tools of all pages; of tools with the same name on several pages the first one counts.

        With `plainly`, what has other names for other readers is left out.
        """
        results = [bytes(page.result) for page in pages]
        for *kept, catalog in self._kept:
            if kept == [plainly, results]:
                return catalog
        parts = [read_plainly(result) if plainly else read_catalog(result) for result in results]
        read = parts[0] if len(parts) == 1 else _joined(parts, b"\n".join(results))
        catalog = self._steady(read, plainly=plainly)
        self._kept.appendleft((plainly, results, catalog))
        return catalog

    def _steady(self, read: ToolCatalog, *, plainly: bool) -> ToolCatalog:
        """A list in the order in which its tools were first seen, if its upstream changes the order of what stays."""
        known = [catalog for kept_plainly, _, catalog in self._kept if kept_plainly == plainly]
        for catalog in known:
            if _have_the_same(catalog, read):
                return catalog
        akin = (each for each in known if 2 * len(each.name_set & read.name_set) > len(read.name_set))
        last = next(akin, None)
        return read if last is None else _in_order_of(last, read)


def read_plainly(result: bytes) -> ToolCatalog:
    """The tools in the raw result of a `tools/list`, less what has other names for other readers, or none for riglm."""
    read = read_catalog(result)
    return ToolCatalog(tuple(tool for tool in read.tools if has_one_name(tool)), result, missing=read.missing)


def _joined(parts: Sequence[ToolCatalog], raw: bytes) -> ToolCatalog:
    tools: dict[str, Tool] = {}
    others = []
    for part in parts:
        for entry, tool in part.entries():
            if tool is None:
                others.append((len(tools), entry))
            else:
                tools.setdefault(tool.name, tool)
    missing = dict.fromkeys(server for part in parts for server in part.missing)
    return ToolCatalog(tuple(tools.values()), raw, tuple(others), missing=tuple(missing))


def _have_the_same(one: ToolCatalog, other: ToolCatalog) -> bool:
    """Return True if two lists have the same entries, in any order, and lack the same servers."""
    if one.missing != other.missing or len(one.tools) != len(other.tools) or one.name_set != other.name_set:
        return False
    first, second = (sorted(bytes(raw) for raw, _ in each.entries()) for each in (one, other))
    return first == second


def _in_order_of(known: ToolCatalog, read: ToolCatalog) -> ToolCatalog:
    """Return a list in the order of the previous one with new tools last, or unchanged if it only adds or removes."""
    places = {name: place for place, name in enumerate(dict.fromkeys(known.names))}
    found = [places[name] for name in read.names if name in places]
    if found == sorted(found):
        return read
    tools = sorted(read.tools, key=lambda tool: places.get(tool.name, len(places)))
    return replace(read, tools=tuple(tools))
