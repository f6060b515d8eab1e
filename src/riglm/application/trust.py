"""Compares what servers list with what was approved, and holds back what is not."""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from riglm.application.failing_open import FailingOpen
from riglm.application.worker import Worker
from riglm.domain import jsonrpc
from riglm.domain.audit import AuditEvent, AuditLog
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool_pin import KnownTexts, OnChange, ToolChange, ToolPin, definition_digest, merge_pins
from riglm.ports.analytics import ToolPinsPort
from riglm.ports.telemetry import MeterPort
from riglm.ports.upstream import UpstreamLink

MAX_PINS: Final = 10_000
"""Maximum number of pinned tools of one server. What it lists beyond them is neither pinned nor reported."""

FIRST_SIGHT_SECONDS: Final = 120.0
"""Seconds within which all pages of a new server's first list are pinned."""

_MAX_WAITING: Final = 1000
_MAX_KNOWN_PAGES: Final = 1000
_MAX_KNOWN_BYTES: Final = 16 << 20
_MAX_SCANNED: Final = 1000
_MAX_NAMED: Final = 5
_CLOSE_SECONDS: Final = 2.0
_AFTER_LIST_SECONDS: Final = 0.25
"""Seconds for which a comparison that may come later waits, so that it does not slow the answer to the client."""

_log: Final = logging.getLogger("riglm.trust")


class _Page(NamedTuple):
    """A page of a server's list with the raw result as `content`, or a complete list with its `entries`."""

    server: str
    content: bytes
    entries: Sequence[Raw] | None
    is_first: bool
    at: float


class _ListedTool(NamedTuple):
    name: str
    raw: Raw
    definition: bytes


class _KnownPage(NamedTuple):
    """A page that was compared: what clients may see of it, None for all; and the digests of its tools by name.

    `is_last` is True if the page completes the list.
    """

    content: bytes
    is_last: bool
    permitted: Sequence[Raw] | None
    digests: Mapping[str, str]


class _LinkTools(NamedTuple):
    """The complete list that was compared last over a link.

    `version` is the link's `tools_version` when the list was asked for, `digests` are those of its tools by name.
    `unapproved` are the pinned ones that it has in another form than is approved, by the pins of `revision`.
    """

    version: int
    digests: Mapping[str, str]
    unapproved: frozenset[str]
    revision: int


def report_change(meter: MeterPort | None, audit: AuditLog | None, pin: ToolPin) -> None:
    """Count a tool that is not as it was approved, and write it into the audit log."""
    if meter is not None:
        meter.tool_changed(pin)
    if audit is not None and pin.change is not None:
        about = {"upstream": pin.server, "tool": pin.name, "change": pin.change.value, "digest": pin.seen_digest}
        audit(AuditEvent.TOOL_CHANGED, about)


class PinnedTools:
    """Pins tools at first sight of their server, and compares every later list with the pins.

    The pins are shared by all processes with the same store. A server whose tools may be held back lists none, and none
    of them can be called, until the pins have been read. Its lists are compared before they are passed on, those of
    other servers shortly afterwards. A list with the bytes of one that was compared is not compared
    again until a pin of its server changes.
    """

    def __init__(
        self,
        on_change: Mapping[str, OnChange],
        put: Callable[[ToolPin, int], None] = lambda *_: None,
        *,
        on_report: Callable[[ToolPin], None] = lambda _: None,
        list_spooled: Callable[[], Sequence[ToolPin]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_change` is by server; the tools of others are not compared.

        `put` records a pin and its size in bytes, on any thread and without blocking. `on_report` is called once for
        each change. `list_spooled` returns the pins in spools; it is called on the worker.
        """
        self._modes = {server: mode for server, mode in on_change.items() if mode != "note"}
        self.is_strict: Final = bool(self._modes)
        """Whether tools of any server may be held back."""
        self._put = put
        self._on_report = on_report
        self._list_spooled = list_spooled
        self._clock = clock
        self._servers = tuple(on_change)
        self._pins: dict[str, dict[str, ToolPin]] = {}
        self._stored: Sequence[ToolPin] = ()
        """The pins as the store had them when it was read last."""
        self._revisions: Counter[str] = Counter()
        """By server, how often its pins changed."""
        self._changed_names: dict[str, frozenset[str]] = {}
        """By server, the tools that are not as they were approved; computed again after its pins changed."""
        self._known_pages: dict[str, dict[bytes, _KnownPage]] = {}
        """By server, the pages that were compared since its pins changed, by their content."""
        self._last_results: dict[str, tuple[Raw, bytes]] = {}
        """By server, the raw result of its last page, which is the same object if it comes again, and its bytes."""
        self._last_entries: dict[str, tuple[Sequence[Raw], bytes]] = {}
        """By server, the entries of its last complete list, the same object if they come again, as an array."""
        self._is_read = False
        self._ready = asyncio.Event()
        self._waiting: deque[_Page | Sequence[ToolPin]] = deque()
        """Pages to compare, and pins of added tools to record, once the pins have been read."""
        self._unscanned: list[ToolPin] = []
        self._working: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._first_sight_until: dict[str, float] = {}
        self._compared: WeakKeyDictionary[UpstreamLink, _LinkTools] = WeakKeyDictionary()
        """Two links may lead to different versions of one server."""
        self._reported: set[tuple[str, str, str]] = set()
        self._guarded = FailingOpen(_log, "tools could not be compared with their pins, and")
        self._at_reading = FailingOpen(_log, "pinned tools could not be read; tools are compared later, and")

    def needs_comparison(self, link: UpstreamLink) -> bool:
        """True if a call must wait until the server has listed its tools over this link as they are now."""
        if link.spec.name not in self._modes:
            return False
        listed = self._listed_over(link)
        return listed is None or listed.version != link.tools_version

    def refusal(self, server: str, tool: str, link: UpstreamLink | None = None) -> str | None:
        """Return why a tool, by the server's own name for it, is held back; None if it may be called over `link`."""
        mode = self._modes.get(server)
        if mode is None:
            return None
        if link is not None and self.needs_comparison(link):
            reason = (
                "it has not listed them since they may have changed"
                if self._is_read
                else "the store of riglm could not be read"
            )
            return f"riglm holds the tools of {server} back until they are compared: {reason}"
        listed = None if link is None else self._listed_over(link)
        changed = self._changed_in(server)
        if listed is not None and listed.unapproved:
            changed |= listed.unapproved
        if mode == "block" and changed:
            what = f"{len(changed)} changed since approved"  # a caller may not be allowed to see their names
            return f"riglm blocks the tools of {server}: {what}. To approve: riglm tools approve {server}"
        pin = self._pins.get(server, {}).get(tool)
        if pin is not None and tool not in changed:
            return None
        what = "was never listed" if pin is None else "changed" if pin.digest else "was added"
        return f"riglm holds {tool} of {server} back: it {what}. To approve: riglm tools approve {server} {tool}"

    def review_page(
        self, link: UpstreamLink, tools_version: int, answer: Message, *, is_first: bool
    ) -> tuple[Message, bytes]:
        """Compare one page of a server's `tools/list`; return the page with what clients may see of it, and its result.

        The result of a page that was compared before is the same object again. `tools_version` is that of the link when
        the page was asked for.
        """
        raw, result = self._last_results.get(link.spec.name, (None, b""))
        if raw is not answer.result:
            result = bytes(answer.result)
            self._last_results[link.spec.name] = answer.result, result
        if link.spec.name not in self._servers:
            return answer, result
        page = _Page(link.spec.name, result, None, is_first, self._clock())
        known = self._find_known(page)
        if known is not None:
            page = page._replace(content=known.content)
        permitted = self._review(page, (link, tools_version))
        fields = {} if permitted is None else jsonrpc.members(result)
        if permitted is None or "tools" not in fields:
            return answer, page.content
        fields["tools"] = Raw(b"[%b]" % b",".join(map(bytes, permitted)))
        answer = answer.replace(result=jsonrpc.join_object(fields))
        return answer, bytes(answer.result)

    def review(
        self, server: str, entries: Sequence[Raw], *, compared: tuple[UpstreamLink, int] | None = None
    ) -> Sequence[Raw]:
        """Compare the complete list of a server's raw tools; return those that clients may see, the same object if all.

        `compared` is the link of the list, and its `tools_version` when the list was asked for.
        """
        if server not in self._servers:
            return entries
        known, content = self._last_entries.get(server, (None, b""))
        if known is not entries:
            content = b"[%b]" % b",".join(map(bytes, entries))
            self._last_entries[server] = entries, content
        permitted = self._review(_Page(server, content, entries, True, self._clock()), compared)
        return entries if permitted is None else permitted

    def read(self, pins: Sequence[ToolPin]) -> None:
        """Take the pins as the store has them now; lists that came earlier are compared with them."""
        stored: dict[str, dict[str, ToolPin]] = {}
        for pin in pins:
            stored.setdefault(pin.server, {})[pin.name] = pin
        for server, known in self._pins.items():  # what this process saw may be in its queue still
            for name, pin in known.items():
                found = stored.setdefault(server, {}).get(name)
                if found is None:
                    stored[server][name] = pin
                elif found.seen_at < pin.seen_at or found.seen_at > self._clock():
                    stored[server][name] = replace(
                        found, seen_digest=pin.seen_digest, seen=pin.seen, seen_at=pin.seen_at
                    )
        before, self._pins, self._stored, self._is_read = self._pins, stored, pins, True
        decided = {server for server in self._modes if _approved(before, server) != _approved(stored, server)}
        for link in [link for link in self._compared if link.spec.name in decided]:
            del self._compared[link]
        for server in self._servers:
            if before.get(server) != stored.get(server):
                self._note_change(server)
        self._ready.set()
        self._start_work()

    async def ready(self, timeout_seconds: float) -> None:
        """Wait at most `timeout_seconds` seconds until the pins have been read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._ready.wait()

    async def refresh(self, worker: Worker, store: Callable[[], ToolPinsPort]) -> None:
        """Read the store on the worker, the first time with what earlier processes left in spools.

        Spools come first: what leaves them is in the store. Where no tool may be held back, one reading is enough.
        """
        if self._is_read and not self._modes:
            return

        def find() -> Sequence[ToolPin] | None:
            spooled = () if self._is_read else [pin for pin in self._list_spooled() if pin.server in self._servers]
            pins = store().list_tool_pins(self._servers)
            if spooled:
                pins = merge_pins(pins, spooled)
            return None if self._is_read and pins == self._stored else pins

        with self._at_reading:
            pins = await worker.run(find)
            if pins is not None:
                self.read(pins)

    async def close(self) -> None:
        """Wait a short time until everything that was listed is compared and recorded; report what is not."""
        self._closing.set()
        if self._waiting:
            await self.ready(_CLOSE_SECONDS)
        if self._working is not None:
            await asyncio.wait([self._working], timeout=_CLOSE_SECONDS)
        if self._waiting:
            servers = sorted({page.server for page in self._waiting if isinstance(page, _Page)})
            _log.warning("lists were not compared with their pins before the end", extra={"upstreams": servers})

    def _review(self, page: _Page, compared: tuple[UpstreamLink, int] | None) -> Sequence[Raw] | None:
        """Compare a page now if tools of its server may be held back, else later; return what may be seen, None if all.

        If that fails, nothing may be seen.
        """
        if page.server not in self._modes:
            if len(self._waiting) < _MAX_WAITING and self._find_known(page) is None:
                self._waiting.append(page)
                self._start_work()
            return None
        if not self._is_read:
            return []
        with self._guarded:
            known = self._find_known(page) or self._compare(page)
            if known is None:
                return None
            self._start_work()
            if compared is not None and page.is_first and known.is_last:
                link, version = compared
                unapproved = self._unapproved(page.server, known.digests)
                self._compared[link] = _LinkTools(version, known.digests, unapproved, self._revisions[page.server])
            return known.permitted
        return []

    def _start_work(self) -> None:
        if self._is_read and self._waiting and self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Compare and record what waits, then scan what was recorded."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AFTER_LIST_SECONDS):
                await self._closing.wait()
        while self._waiting or self._unscanned:
            with self._guarded:
                if self._waiting:
                    waiting = self._waiting.popleft()
                    if not isinstance(waiting, _Page):
                        await self._record_added(waiting)
                    elif self._find_known(waiting) is None:
                        self._compare(waiting)
                else:
                    unscanned, self._unscanned = self._unscanned[:_MAX_SCANNED], self._unscanned[_MAX_SCANNED:]
                    await asyncio.to_thread(_log_suspicious, unscanned)
        self._working = None

    def _compare(self, page: _Page) -> _KnownPage | None:
        """Compare a page with the pins, pin what is new, and report changes; None if it is no list.

        Added tools are recorded and reported later, with those that they resemble.
        """
        entries, is_last = page.entries, True
        if entries is None:
            fields = jsonrpc.members(page.content)
            if "tools" not in fields:
                return None
            entries, is_last = jsonrpc.elements(fields["tools"]), not jsonrpc.next_cursor(fields)
        named = ((jsonrpc.text(jsonrpc.members(raw).get("name")), raw) for raw in entries)
        tools = [_ListedTool(name, raw, bytes(raw)) for name, raw in named if name is not None]
        server, pins = page.server, self._pins.setdefault(page.server, {})
        if page.is_first and not pins:
            self._first_sight_until[server] = page.at + FIRST_SIGHT_SECONDS
        is_first_page_again = page.is_first and not is_last and bool(pins)
        is_first_sight = not is_first_page_again and page.at < self._first_sight_until.get(server, 0.0)
        new_pins = _changed(page, tools, pins, is_first_sight=is_first_sight)
        changed = [pin for name, pin in new_pins.items() if name in pins]
        added = [pin for name, pin in new_pins.items() if name not in pins]
        pins.update(new_pins)
        if new_pins:
            self._note_change(server)
        if is_last:
            self._first_sight_until.pop(server, None)
        mode = self._modes.get(server)
        is_named = len(tools) == len(entries)
        permitted, digests = (None, {}) if mode is None else self._permitted(server, tools, mode, is_named=is_named)
        known = self._remember(server, _KnownPage(page.content, is_last, permitted, digests))
        for pin in changed:
            self._put(pin, len(pin.seen) + len(pin.definition))
        self._report(server, changed)
        self._unscanned += changed[:_MAX_SCANNED]
        if added:
            self._waiting.append(added)
        return known

    async def _record_added(self, added: Sequence[ToolPin]) -> None:
        """Record and report tools that were pinned for the first time, with the pinned tools that they resemble."""
        recorded = await asyncio.to_thread(self._recorded, added)
        pins = self._pins[added[0].server]
        for before, pin in zip(added, recorded, strict=True):
            if pins.get(pin.name) is before:
                pins[pin.name] = pin
        self._report(added[0].server, recorded)
        self._unscanned += recorded[:_MAX_SCANNED]

    def _recorded(self, added: Sequence[ToolPin]) -> Sequence[ToolPin]:
        """Record new pins; return them with what those that are not approved resemble."""
        recorded = list(added)
        unapproved = [place for place, pin in enumerate(added) if not pin.digest][:_MAX_SCANNED]
        if unapproved:
            new = {(pin.server, pin.name) for pin in added}
            known = [pin for pins in list(self._pins.values()) for pin in list(pins.values())]
            texts = KnownTexts(pin for pin in known if (pin.server, pin.name) not in new)
            for place in unapproved:
                pin = added[place]
                recorded[place] = replace(pin, resembles=texts.resembled(pin.server, pin.name, Raw(pin.seen)))
                time.sleep(0)  # lets other threads run
        for pin in recorded:
            self._put(pin, len(pin.seen) + len(pin.definition))
        return recorded

    def _find_known(self, page: _Page) -> _KnownPage | None:
        return self._known_pages.get(page.server, {}).get(page.content)

    def _remember(self, server: str, known: _KnownPage) -> _KnownPage:
        pages = self._known_pages.setdefault(server, {})
        pages[known.content] = known
        while len(pages) > 1 and (sum(map(len, pages)) > _MAX_KNOWN_BYTES or len(pages) > _MAX_KNOWN_PAGES):
            del pages[next(iter(pages))]
        return known

    def _permitted(
        self, server: str, tools: Sequence[_ListedTool], mode: OnChange, *, is_named: bool
    ) -> tuple[Sequence[Raw] | None, Mapping[str, str]]:
        """Return the raw tools of a list that clients may see, None for all, and the digest of each by name.

        Of several tools with one name, the digest of one that is not approved counts. `is_named` is True if all
        entries of the list have a name.
        """
        pins = self._pins[server]
        digests: dict[str, str] = {}
        permitted: dict[str, Raw] = {}
        for name, raw, definition in tools:
            pin = pins.get(name)
            if pin is None:
                continue
            digest = pin.seen_digest if pin.seen == definition else definition_digest(raw)
            if digests.get(name, pin.digest) == pin.digest:
                digests[name] = digest
            if name not in permitted and pin.change is None and digest == pin.digest:
                permitted[name] = raw
            elif name not in permitted and pin.definition:
                permitted[name] = Raw(pin.definition)
        if mode == "block":
            return [] if self._changed_in(server) else None, digests
        if is_named and len(permitted) == len(tools) and all(permitted[tool.name] is tool.raw for tool in tools):
            return None, digests
        return list(permitted.values()), digests

    def _note_change(self, server: str) -> None:
        """Pins of a server changed: what was computed from them no longer counts."""
        self._revisions[server] += 1
        self._changed_names.pop(server, None)
        self._known_pages.pop(server, None)

    def _changed_in(self, server: str) -> frozenset[str]:
        """The tools of a server that are not as they were approved."""
        names = self._changed_names.get(server)
        if names is None:
            pins = self._pins.get(server, {}).values()
            names = self._changed_names[server] = frozenset(pin.name for pin in pins if pin.change is not None)
        return names

    def _listed_over(self, link: UpstreamLink) -> _LinkTools | None:
        """The tools that a server listed over this link; None if they must be compared.

        That is also so if a changed tool is among them, and the latest list over another link has it as approved.
        """
        listed, server = self._compared.get(link), link.spec.name
        if listed is None or listed.revision == self._revisions[server]:
            return listed
        unapproved, pins = self._unapproved(server, listed.digests), self._pins.get(server, {})
        if any(pins[name].change is None for name in unapproved):
            del self._compared[link]
            return None
        listed = self._compared[link] = listed._replace(unapproved=unapproved, revision=self._revisions[server])
        return listed

    def _unapproved(self, server: str, digests: Mapping[str, str]) -> frozenset[str]:
        """The pinned tools that a list has in another form than is approved."""
        pins = self._pins.get(server, {})
        return frozenset(name for name, digest in digests.items() if name in pins and digest != pins[name].digest)

    def _report(self, server: str, changed: Sequence[ToolPin]) -> None:
        reported = self._reported
        new = [pin for pin in changed if pin.change and (server, pin.name, pin.seen_digest) not in reported]
        for pin in new:
            self._reported.add((server, pin.name, pin.seen_digest))
            self._on_report(pin)
        for change, count in Counter(pin.change for pin in new).items():
            pins = [pin for pin in new if pin.change is change]
            alike = {pin.name: pin.resembles for pin in pins if pin.resembles}
            about = {"upstream": server, "tools": [pin.name for pin in pins[:_MAX_NAMED]], "number": count}
            about |= {"resembles": alike} if alike else {}
            mode = self._modes.get(server, "note")
            words = "tools changed since they were approved" if change is ToolChange.CHANGED else "tools were added"
            _log.warning(words, extra={**about, "on_change": mode})


def _approved(pins: Mapping[str, Mapping[str, ToolPin]], server: str) -> Mapping[str, str]:
    """The digest of each approved tool of a server."""
    return {name: pin.digest for name, pin in pins.get(server, {}).items()}


def _changed(
    page: _Page, tools: Sequence[_ListedTool], pins: Mapping[str, ToolPin], *, is_first_sight: bool
) -> Mapping[str, ToolPin]:
    """Return new pins of the listed tools that are new or other than they were listed last.

    Of several tools with one name, the one that is not approved counts.
    """
    listed: dict[str, ToolPin] = {}
    for name, raw, definition in tools:
        pin = listed.get(name) or pins.get(name)
        if pin is None:
            if len(pins) + len(listed) >= MAX_PINS:
                continue
            digest = definition_digest(raw)
            listed[name] = ToolPin(
                server=page.server,
                name=name,
                digest=digest if is_first_sight else "",
                definition=definition if is_first_sight else b"",
                seen_digest=digest,
                seen=definition,
                pinned_at=page.at,
                seen_at=page.at,
            )
        elif pin.seen == definition:
            listed[name] = pin
        elif name not in listed or pin.change is None:
            digest = definition_digest(raw)
            approved = definition if digest == pin.digest else pin.definition
            listed[name] = replace(pin, definition=approved, seen_digest=digest, seen=definition, seen_at=page.at)
    return {
        name: pin
        for name, pin in listed.items()
        if name not in pins or pins[name].seen_digest != pin.seen_digest or pins[name].definition != pin.definition
    }


def _log_suspicious(pins: Iterable[ToolPin]) -> None:
    """Log what a scan finds in definitions; it takes some tenths of a millisecond each, and more for very long ones."""
    from riglm.domain.definition_scan import scan_definition  # noqa: PLC0415  # most processes see nothing new

    for pin in pins:
        time.sleep(0)  # lets other threads run
        findings = scan_definition(jsonrpc.plain(Raw(pin.seen)))
        if findings:
            found = [f"{finding.rule} in {finding.path}" for finding in findings[:_MAX_NAMED]]
            about = {"upstream": pin.server, "tool": pin.name, "findings": found}
            _log.warning("the definition of a tool is suspicious", extra=about)
