"""The stage that composes tool lists: it asks for all pages, then writes what the filter shows of them."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from riglm.application.failing_open import FailingOpen
from riglm.application.proxy.catalogs import join_pages, plainly_named
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import LIST, Request, list_pages, next_cursor
from riglm.application.proxy.stage import Outcome, Stage
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import Session
from riglm.domain.tool import ToolCatalog

PREPARING_SECONDS: Final = 6.0
"""A client waits no longer for what its list is made from; without it everything is listed."""

WHOLE: Final = "everything is shown"
"""Reason recorded for a list that is not filtered."""

_log: Final = logging.getLogger("riglm.filtering")


class ListStage(Stage):
    """Writes the list of a session. If that fails, the client gets every tool that is not denied."""

    methods = frozenset({LIST})
    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._filtering = parts.filtering
        self._always = parts.always
        self._tracking = parts.tracking
        self._meter = parts.meter
        self._reader = parts.reader
        self._guarded = FailingOpen(_log, "filtering failed; everything is shown, and")
        if parts.filtering is not None:
            parts.filtering.when_foreshadowed(self._expose)
        self._at_pages = FailingOpen(_log, "filtering failed; an error is the answer, since some tools are denied, and")

    def before(self, request: Request) -> Outcome:
        request.changes = request.upstreams.tool_changes
        return None

    def after(self, request: Request, reply: Message | None) -> Outcome:
        if reply is None:
            return None
        reply = request.upstreams.review_page(request, reply)
        filtering = self._filtering
        if filtering is None or request.catalog is None:  # an error has no catalog
            return self._add_always(request, self._note_whole(request, reply))
        if request.has_cursor:
            self._note_names(request, request.catalog)
            return self._add_always(request, self.without_denied(request, reply))
        if not filtering.is_on:
            return self._add_always(request, self._pass(request, reply))
        if request.catalog.next_cursor:
            return self._list_pages(request, reply)
        return self._write(request, [reply], request.catalog)

    async def _list_pages(self, request: Request, first: Message) -> Message:
        """Ask for the pages that follow the first one."""
        member, catalogs = request.member, [request.catalog or ToolCatalog()]
        if member is None:
            return first
        params = bytes(request.asked.params) or b"{}"
        pages, last = await list_pages(member.link, LIST, params, request.related_by(member.link), first)
        if not last.result:
            return last.replace(id=request.id)
        for place, page in enumerate(pages[1:]):
            cursor = next_cursor(pages[place])
            pages[place + 1], catalog = member.review_page(page, cursor, request.tools_version)
            catalogs.append(catalog)
        written = self._write(request, pages, join_pages(catalogs))
        return written if isinstance(written, Message) else await written

    def _write(
        self, request: Request, pages: list[Message], catalog: ToolCatalog
    ) -> Message | Coroutine[Any, Any, Message]:
        filtering, since = self._filtering, perf_counter()
        if filtering is None:
            return pages[0]
        with self._guarded:
            catalog = self._reader.read(catalog, plainly=filtering.guards)
            if filtering.needs_usage(request.session):
                return self._write_later(request, pages, catalog, since)
        return self._compose(request, pages, catalog, since)

    async def _write_later(self, request: Request, pages: list[Message], catalog: ToolCatalog, since: float) -> Message:
        """Read recorded use first."""
        with self._guarded:
            async with asyncio.timeout(PREPARING_SECONDS):
                if self._filtering is not None:
                    await self._filtering.prepare(request.session, catalog)
        return self._compose(request, pages, catalog, since)

    def _compose(self, request: Request, pages: list[Message], catalog: ToolCatalog, since: float) -> Message:
        """Write the list as the session sees it now."""
        filtering, upstreams, reply = self._filtering, request.upstreams, pages[0]
        written = None
        if filtering is not None:
            with self._guarded:
                selection = filtering.compose(request.session, catalog)
                is_rewritten = not selection.is_passthrough or filtering.guards
                written = jsonrpc.result(request.id, self._body(request, pages, selection)) if is_rewritten else reply
                if not catalog.missing:
                    self._expose(request.session, selection)
        upstreams.note_list(request, catalog)
        if written is None:
            written = self.without_denied(request, reply)
        if self._meter is not None:
            self._meter.listed(perf_counter() - since)
        return self._add_always(request, written)

    def _body(self, request: Request, pages: list[Message], selection: ListSelection) -> bytes:
        """Return the raw result with the entries of a selection; the same object for the same list as before."""
        filtering, key = self._filtering, (request.catalog, selection)
        written = request.upstreams.written_list
        if written is not None and written[0][0] is key[0] and written[0][1] is selection and len(pages) == 1:
            return written[1]
        fields = jsonrpc.members(pages[0].result)
        fields.pop("nextCursor", None)
        fields["tools"] = Raw(selection.raw)
        fresh_seconds = 0.0 if filtering is None else filtering.fresh_seconds(request.session)
        body = jsonrpc.join_object(request.era.list_members(fields, pages, fresh_seconds))
        request.upstreams.written_list = key, body
        return body

    def _pass(self, request: Request, reply: Message) -> Message:
        """Forward a list as it is, and remember what the client has."""
        session, catalog = request.session, request.catalog
        if self._filtering is not None and catalog is not None:
            with self._guarded:
                is_whole = not catalog.next_cursor
                self._filtering.passed(session, catalog, is_whole=is_whole)
                request.upstreams.note_list(request, catalog)
        return self._note_whole(request, reply)

    def _note_whole(self, request: Request, reply: Message) -> Message:
        """Record that a client gets the tools of a page, unless the filter records its lists."""
        catalog = request.catalog
        if catalog is not None:
            self._note_names(request, catalog)
            if not catalog.missing and (self._filtering is None or not self._filtering.is_on):
                names = catalog.names
                if request.has_cursor:
                    names = (*self._tracking.list_of(request.session).shown, *names)
                self._tracking.exposed(request.session, ListSelection(names, reason=WHOLE))
        return reply

    def _note_names(self, request: Request, page: ToolCatalog) -> None:
        upstreams, names = request.upstreams, page.name_set
        upstreams.listed_names = upstreams.listed_names | names if request.has_cursor else names

    def without_denied(self, request: Request, page: Message) -> Message:
        """Return a page of a server's list without the tools that are denied."""
        filtering = self._filtering
        if filtering is None or not filtering.guards or request.catalog is None:
            return page
        with self._at_pages:
            tools = plainly_named(request.catalog).tools
            kept = [bytes(tool.raw) for tool in tools if filtering.denial(request.session, tool.name) is None]
            fields = {**jsonrpc.members(page.result), "tools": Raw(b"[%b]" % b",".join(kept))}
            return jsonrpc.result(request.id, jsonrpc.join_object(request.era.list_members(fields, [page], 0.0)))
        return jsonrpc.error(page.id, jsonrpc.INTERNAL_ERROR, "the list cannot be looked through for denied tools")

    def _add_always(self, request: Request, reply: Message) -> Message:
        if self._always is None or not self._always.is_active:
            return reply
        completed = self._always.complete(reply)
        if completed is not reply:
            request.status = 200
        return completed

    def _expose(self, session: Session, selection: ListSelection) -> None:
        """Record a list, with what the tool that is in all of them takes."""
        tokens = 0 if self._always is None or not self._always.is_active else self._always.tokens
        if tokens:
            shown, own = selection.tokens_shown + tokens, selection.tokens_own + tokens
            selection = replace(selection, tokens_shown=shown, tokens_own=own)
        self._tracking.exposed(session, selection)
