"""One piece of an agent's work, and the event loop in a separate thread for agents that have none."""

import asyncio
import atexit
import contextlib
import difflib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from riglm.application.selector.offer import OfferedTools, ToolReader, amount, count, is_built_in, text
from riglm.application.selector.selecting_service import SearchResult, SelectingService, Selection
from riglm.domain.errors import RiglmError
from riglm.domain.session import ClientInfo, Session

Opened = TypeVar("Opened")
Result = TypeVar("Result")

CLOSING_SECONDS: Final = 10.0
"""Seconds to wait for a clean end; the thread is a daemon and does not keep the process alive."""

_CLOSED: Final = "this ToolSelector is closed — fix: use it inside its `with` block, or create a new one"
_FORKED: Final = "this ToolSelector was made before the process was forked — fix: make one in each process"


class SelectorClosedError(RiglmError):
    """Raised when the selector is closed or belongs to another process; the message contains the fix."""


class BackgroundLoop(Generic[Opened]):
    """Opens, uses and closes a resource on an event loop in a thread. Usable from any thread.

    What is open when the process ends is closed then.
    """

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[Opened]], name: str) -> None:
        """Nothing runs before it is first needed; `name` is the thread's."""
        self._open_it = open_it
        self._process = os.getpid()
        self._lock = threading.RLock()  # garbage may be collected while it is held, and what is found then ends here
        self._is_closed = False
        self._opened: Future[Opened] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def open(self) -> Future[Opened]:
        """Have it opened, if it is not; the future has what is open, or why it could not be opened.

        Raises:
            SelectorClosedError: it was closed, or the process was forked.
        """
        with self._lock:
            if self._process != os.getpid():
                raise SelectorClosedError(_FORKED)
            if self._is_closed:
                raise SelectorClosedError(_CLOSED)
            if self._thread.ident is None:
                self._thread.start()
                atexit.register(self.close)
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether it was opened, or is just being opened, and was not closed since."""
        return self._thread.ident is not None and not self._is_closed

    def ask(self, work: Callable[[Opened], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine there, and wait for its result."""
        opened = self.open().result()
        try:
            return asyncio.run_coroutine_threadsafe(_run(work, opened), self._loop).result()
        except CancelledError:
            raise SelectorClosedError(_CLOSED) from None

    async def ask_soon(self, work: Callable[[Opened], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine there; meanwhile the loop that this is awaited on does other things."""
        opened = await asyncio.wrap_future(self.open())
        asked = asyncio.run_coroutine_threadsafe(_run(work, opened), self._loop)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if asked.cancelled() and self._is_closed:
                raise SelectorClosedError(_CLOSED) from None
            raise

    def post(self, work: Callable[[Opened], None]) -> None:
        """Have something done there, after all that was asked for before; waits for nothing."""

        def opened(future: Future[Opened]) -> None:
            if future.exception() is None:
                with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                    self._loop.call_soon_threadsafe(work, future.result())

        self.open().add_done_callback(opened)

    def stop(self) -> Future[None]:
        """Close it after all posted work, and cancel pending requests; the future completes when it is closed."""

        def over(future: Future[Opened]) -> None:
            if future.exception() is None:
                with contextlib.suppress(RuntimeError):  # it is closed by now
                    self._loop.call_soon_threadsafe(self._over.set)

        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            if self._process != os.getpid() or self._thread.ident is None:
                if is_first:
                    self._ended.set_result(None)
                return self._ended
        if is_first:
            self._opened.add_done_callback(over)
        return self._ended

    def close(self) -> None:
        """Close it, and wait for the end."""
        ended = self.stop()
        if threading.current_thread() is not self._thread:
            with contextlib.suppress(TimeoutError):
                ended.result(CLOSING_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting caller
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            atexit.unregister(self.close)
            self._ended.set_result(None)

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self._open_it() as opened:
            self._opened.set_result(opened)
            await self._over.wait()


async def _run(work: Callable[[Opened], Coroutine[Any, Any, Result]], opened: Opened) -> Result:
    """Call `work` on the loop, not before."""
    return await work(opened)


T = TypeVar("T")

_log: Final = logging.getLogger("riglm.selecting")
_Work = Callable[[SelectingService], Coroutine[Any, Any, T]]


class ToolSession(Generic[T]):
    """One piece of work: selects tools for it and learns from the tools that it used.

    `ToolSelector.session` creates it. It ends at `close`, at the end of its `with` block, or when it is no longer
    referenced.
    """

    def __init__(
        self,
        background: BackgroundLoop[SelectingService],
        offered: Callable[[], OfferedTools[T]],
        client: ClientInfo,
        key: str,
        user: str,
    ) -> None:
        self._background = background
        self._offered = offered
        self._read: ToolReader[T] = ToolReader()
        self._own: OfferedTools[T] | None = None
        self._begun = _Begun(client, key, user)
        weakref.finalize(self, _end, background, self._begun).atexit = False

    def select(self, context: str = "", *, tools: Iterable[T] | None = None) -> Selection[T]:
        """Return the tools for the current step.

        Args:
            context: description of the work, best in the user's words. Without one the last context stays in effect.
                For one context the selection only gains tools, so that the model's prompt cache stays valid.
            tools: replaces the selector's tools for this session.

        Raises:
            UnusableToolError: one of the tools is none, or two have the same name.
            UnusableInputError: the context is no text.
            SelectorClosedError: the selector is closed.
        """
        return self._background.ask(self._selecting(tools, text(context, "select(context=...)")))

    async def aselect(self, context: str = "", *, tools: Iterable[T] | None = None) -> Selection[T]:
        """As `select`, without holding up the event loop."""
        return await self._background.ask_soon(self._selecting(tools, text(context, "aselect(context=...)")))

    def search(self, query: str, *, limit: int = 10) -> SearchResult[T]:
        """Return the tools that match a query best, selected or not; none if nothing matches.

        A use of a tool that a search found counts more than that of a selected one.

        Raises:
            UnusableInputError: the query is no text, or the limit no whole number above 0.
            SelectorClosedError: the selector is closed.
        """
        return self._background.ask(self._searching(query, limit))

    async def asearch(self, query: str, *, limit: int = 10) -> SearchResult[T]:
        """As `search`, without holding up the event loop."""
        return await self._background.ask_soon(self._searching(query, limit))

    def searched(self, query: str, found: Iterable[str]) -> None:
        """Report what a different search found, such as a model provider's. It counts as `search` does.

        Args:
            query: text of the search.
            found: names of the tools that were found, best first. Unknown ones are ignored.

        Raises:
            UnusableInputError: the query is no text.
            SelectorClosedError: the selector is closed.
        """
        self._background.ask(self._noting(query, found))

    async def asearched(self, query: str, found: Iterable[str]) -> None:
        """As `searched`, without holding up the event loop."""
        await self._background.ask_soon(self._noting(query, found))

    def used(self, tool: T | str, *, failed: bool = False, seconds: float = 0.0) -> None:
        """Learn from the use of a tool. Returns at once.

        An unknown name, which models may invent, is logged.

        Args:
            tool: the tool, or the name that the model used.
            failed: True if the tool reported a failure.
            seconds: duration of the call.

        Raises:
            UnusableToolError: what was given is neither a tool nor a name.
            UnusableInputError: `seconds` is no finite number.
            SelectorClosedError: the selector is closed.
        """
        seconds = amount(seconds, "used(seconds=...)")
        self._told(tool, lambda service, session, name: service.used(session, name, failed=failed, seconds=seconds))

    def mark(self, tool: T | str, *, relevant: bool) -> None:
        """Report whether a tool is relevant for the session's context, used or not. Returns at once.

        Raises:
            UnusableToolError: what was given is neither a tool nor a name.
            SelectorClosedError: the selector is closed.
        """
        self._told(tool, lambda service, session, name: service.mark(session, name, relevant=relevant))

    def close(self) -> None:
        """End the session. Returns at once."""
        _end(self._background, self._begun)

    def __contains__(self, tool: str) -> bool:
        """True if the session has a tool of this name."""
        return tool in self._offer(None).objects

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _offer(self, tools: Iterable[T] | None) -> OfferedTools[T]:
        if tools is not None:
            self._own = self._read(tools)
        return self._offered() if self._own is None else self._own

    def _selecting(self, tools: Iterable[T] | None, context: str) -> _Work[Selection[T]]:
        offer, begun = self._offer(tools), self._begun
        return lambda service: service.select(begun.on(service), offer, context)

    def _searching(self, query: str, limit: int) -> _Work[SearchResult[T]]:
        offer, begun = self._offer(None), self._begun
        query, limit = text(query, "search(query=...)"), count(limit, "search(limit=...)")
        return lambda service: service.search(begun.on(service), offer, query, limit)

    def _noting(self, query: str, found: Iterable[str]) -> _Work[None]:
        offer, begun = self._offer(None), self._begun
        names, query = tuple(found), text(query, "searched(query=...)")
        return lambda service: service.searched(begun.on(service), offer, query, names)

    def _told(self, tool: T | str, notify: Callable[[SelectingService, Session, str], None]) -> None:
        """Pass a tool to a callback; unknown names, which models may invent, are logged."""
        offer, begun = self._offer(None), self._begun
        if is_built_in(tool):
            return
        name = offer.name_of(tool)
        if name in offer.objects:
            self._background.post(lambda service: notify(service, begun.on(service), name))
            return
        close = difflib.get_close_matches(name, offer.objects, n=1)
        _log.warning("no tool is called %r, so nothing is learned%s", name, f": is it {close[0]!r}?" if close else "")


@dataclass(slots=True)
class _Begun:
    """The session as the service knows it, None before it is needed and after it ended.

    Work that is under way holds this, and not the session that the agent has: that ends once the agent lets it go.
    """

    client: ClientInfo
    key: str
    user: str
    session: Session | None = None

    def on(self, service: SelectingService) -> Session:
        """The session, begun if it is not; asked for on the service's loop alone."""
        if self.session is None:
            self.session = service.begin(self.client, self.key, self.user)
        return self.session


def _end(background: BackgroundLoop[SelectingService], begun: _Begun) -> None:
    """End what was begun, if anything was; it ended with its selector if that is closed."""

    def end(service: SelectingService) -> None:
        if begun.session is not None:
            service.end(begun.session)
            begun.session = None

    if background.is_open:
        background.post(end)
