"""Compares what servers list with what was approved, and holds back what is not."""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from riglm.application.failing_open import FailingOpen
from riglm.application.worker import Worker
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool_pin import KnownTexts, OnChange, ToolChange, ToolPin, definition_digest
from riglm.ports.prediction_store import ToolPinsPort
from riglm.ports.upstream import UpstreamLink

MAX_PINS: Final = 10_000
"""Maximum number of pinned tools of one server. What it lists beyond them is neither pinned nor reported."""

FIRST_SIGHT_SECONDS: Final = 120.0
"""Seconds within which all pages of a new server's first list are pinned."""

FOLLOW_SECONDS: Final = 2.0
"""Minimum seconds after which the store is read again if tools may be held back."""

_PAUSE_RATIO: Final = 20
"""Minimum pause between two readings, relative to how long one takes."""

_NEVER: Final[tuple[int, Mapping[str, str]]] = (-1, {})
_MAX_UNREAD: Final = 256
_MAX_SCANNED: Final = 1000
_MAX_NAMED: Final = 5
_log: Final = logging.getLogger("riglm.trust")


class PinnedTools:
    """Pins tools at first sight of their server, and compares every later list with the pins.

    The pins are shared by all processes with the same store. A server whose tools may be held back lists none, and none
    of them can be called, until the pins have been read.
    """

    def __init__(
        self,
        on_change: Mapping[str, OnChange],
        put: Callable[[ToolPin, int], None] = lambda *_: None,
        *,
        on_report: Callable[[ToolPin], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_change` is by server; the tools of others are not compared.

        `put` records a pin and its size in bytes without blocking. `on_report` is called once for each change.
        """
        self._modes = {server: mode for server, mode in on_change.items() if mode != "note"}
        self._put = put
        self._on_report = on_report
        self._clock = clock
        self._servers = tuple(on_change)
        self._pins: dict[str, dict[str, ToolPin]] = {}
        self._is_read = False
        self._ready = asyncio.Event()
        self._unread: deque[tuple[str, Sequence[Raw], bool, bool]] = deque(maxlen=_MAX_UNREAD)
        """Lists that came before the pins were read."""
        self._first_sight_until: dict[str, float] = {}
        self._compared: WeakKeyDictionary[UpstreamLink, tuple[int, Mapping[str, str]]] = WeakKeyDictionary()
        """Of each link over which the server's complete list was compared: its `tools_version`, and the digests of the
        tools in that list by name. Two links may lead to different versions of one server."""
        self._reported: set[tuple[str, str, str]] = set()
        self._guarded = FailingOpen(_log, "tools could not be compared with their pins, and")
        self._at_reading = FailingOpen(_log, "pinned tools could not be read; tools are compared later, and")

    @property
    def is_strict(self) -> bool:
        """Whether tools of any server may be held back."""
        return bool(self._modes)

    def changes(self) -> list[ToolPin]:
        """Return the tools that are not as they were approved."""
        return [pin for pins in self._pins.values() for pin in pins.values() if pin.change is not None]

    def needs_comparison(self, link: UpstreamLink) -> bool:
        """True if a call must wait until the server has listed its tools over this link as they are now."""
        return link.spec.name in self._modes and self._compared.get(link, _NEVER)[0] != link.tools_version

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
        pins = self._pins.get(server, {})
        changed = {each.name for each in pins.values() if each.change is not None}
        if link is not None:
            changed.update(self._unapproved(link))
        if mode == "block" and changed:
            what = f"{len(changed)} changed since approved"  # a caller may not be allowed to see their names
            return f"riglm blocks the tools of {server}: {what}. To approve: riglm tools approve {server}"
        if tool in pins and tool not in changed:
            return None
        what = "was never listed" if tool not in pins else "changed" if pins[tool].digest else "was added"
        return f"riglm holds {tool} of {server} back: it {what}. To approve: riglm tools approve {server} {tool}"

    def review_page(self, link: UpstreamLink, tools_version: int, asked: Message, answer: Message) -> Message:
        """Compare one page of a server's `tools/list`; return the page with what clients may see of it.

        `tools_version` is that of the link when the page was asked for.
        """
        fields = jsonrpc.members(answer.result) if answer.result else {}
        if "tools" not in fields:
            return answer
        is_first = "cursor" not in jsonrpc.members(asked.params or b"{}")
        entries = jsonrpc.elements(fields["tools"])
        is_last = not jsonrpc.next_cursor(fields)
        compared = (link, tools_version) if is_first and is_last else None
        permitted = self.review(link.spec.name, entries, is_first=is_first, is_last=is_last, compared=compared)
        if permitted is entries:
            return answer
        fields["tools"] = Raw(b"[%b]" % b",".join(map(bytes, permitted)))
        return answer.replace(result=jsonrpc.join_object(fields))

    def review(
        self,
        server: str,
        entries: Sequence[Raw],
        *,
        is_first: bool = True,
        is_last: bool = True,
        compared: tuple[UpstreamLink, int] | None = None,
    ) -> Sequence[Raw]:
        """Compare raw tools that a server listed; return those that clients may see, the same object if it is all.

        `is_first` and `is_last` are True if they begin and complete the server's list. `compared` is the link of a
        complete list, and its `tools_version` when the list was asked for.
        """
        if server not in self._servers:
            return entries
        strict = self._modes.get(server)
        if not self._is_read:
            if strict is None:
                self._unread.append((server, entries, is_first, is_last))
            return [] if strict is not None else entries
        with self._guarded:
            self._compare(server, entries, is_first=is_first, is_last=is_last)
            self._forget_contradicted(server)
            if compared is not None and strict is not None:
                link, version = compared
                self._compared[link] = version, self._digests(server, entries)
            return entries if strict is None else self._permitted(server, entries, strict)
        return [] if strict is not None else entries

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
                elif found.seen_at < pin.seen_at:
                    stored[server][name] = replace(
                        found, seen_digest=pin.seen_digest, seen=pin.seen, seen_at=pin.seen_at
                    )
        before, self._pins, self._is_read = self._pins, stored, True
        decided = {server for server in self._modes if _approved(before, server) != _approved(stored, server)}
        for link in [link for link in self._compared if link.spec.name in decided]:
            del self._compared[link]
        for server in self._modes:
            self._forget_contradicted(server)
        self._ready.set()
        while self._unread:
            server, entries, is_first, is_last = self._unread.popleft()
            self.review(server, entries, is_first=is_first, is_last=is_last)

    async def ready(self, timeout_seconds: float) -> None:
        """Wait at most `timeout_seconds` seconds until the pins have been read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._ready.wait()

    async def refresh(self, worker: Worker, store: Callable[[], ToolPinsPort]) -> None:
        """Read the store on the worker."""
        with self._at_reading:
            self.read(await asyncio.wrap_future(worker.submit(lambda: store().list_tool_pins(self._servers))))

    async def follow(self, worker: Worker, store: Callable[[], ToolPinsPort]) -> None:
        """Read the store until that succeeds; if tools may be held back, go on: other processes see changes too."""
        while not self._is_read or self._modes:
            began = time.monotonic()
            await self.refresh(worker, store)
            await asyncio.sleep(max(FOLLOW_SECONDS, _PAUSE_RATIO * (time.monotonic() - began)))

    def _compare(self, server: str, entries: Sequence[Raw], *, is_first: bool, is_last: bool) -> None:
        pins, now = self._pins.setdefault(server, {}), self._clock()
        if is_first and not pins:
            self._first_sight_until[server] = now + FIRST_SIGHT_SECONDS
        is_first_page_again = is_first and not is_last and bool(pins)
        is_first_sight = not is_first_page_again and now < self._first_sight_until.get(server, 0.0)
        changed = self._changed(server, entries, now, is_first_sight=is_first_sight)
        pins.update(changed)
        for pin in changed.values():
            self._put(pin, len(pin.seen) + len(pin.definition))
        if is_last:
            self._first_sight_until.pop(server, None)
        self._report(server, [pin for pin in changed.values() if pin.change is not None])
        if changed:
            asyncio.get_running_loop().run_in_executor(None, _log_suspicious, list(changed.values())[:_MAX_SCANNED])

    def _changed(
        self, server: str, entries: Sequence[Raw], now: float, *, is_first_sight: bool
    ) -> Mapping[str, ToolPin]:
        """Return new pins of the listed tools that are new or other than they were listed last.

        Of several tools with one name, the one that is not approved counts.
        """
        pins = self._pins[server]
        listed: dict[str, ToolPin] = {}
        texts: KnownTexts | None = None
        for raw in entries:
            name, definition = jsonrpc.text(jsonrpc.members(raw).get("name")), bytes(raw)
            pin = listed.get(name or "") or pins.get(name or "")
            if name is None or (pin is None and len(pins) + len(listed) >= MAX_PINS):
                continue
            if pin is None:
                if not is_first_sight and texts is None:
                    texts = KnownTexts(each for known in self._pins.values() for each in known.values())
                digest = definition_digest(raw)
                listed[name] = ToolPin(
                    server=server,
                    name=name,
                    digest=digest if is_first_sight else "",
                    definition=definition if is_first_sight else b"",
                    seen_digest=digest,
                    seen=definition,
                    resembles="" if texts is None else texts.resembled(server, name, raw),
                    pinned_at=now,
                    seen_at=now,
                )
            elif pin.seen == definition:
                listed[name] = pin
            elif name not in listed or pin.change is None:
                digest = definition_digest(raw)
                approved = definition if digest == pin.digest else pin.definition
                listed[name] = replace(pin, definition=approved, seen_digest=digest, seen=definition, seen_at=now)
        return {
            name: pin
            for name, pin in listed.items()
            if name not in pins or pins[name].seen_digest != pin.seen_digest or pins[name].definition != pin.definition
        }

    def _unapproved(self, link: UpstreamLink) -> list[str]:
        """The pinned tools that a server listed over this link in another form than is approved."""
        pins, (_, listed) = self._pins.get(link.spec.name, {}), self._compared.get(link, _NEVER)
        return [name for name, digest in listed.items() if name in pins and digest != pins[name].digest]

    def _forget_contradicted(self, server: str) -> None:
        """Have a link compared again that listed a changed tool where the latest list of another is as approved."""
        pins = self._pins.get(server, {})
        for link in [link for link in self._compared if link.spec.name == server]:
            if any(pins[name].change is None for name in self._unapproved(link)):
                del self._compared[link]

    def _digests(self, server: str, entries: Sequence[Raw]) -> Mapping[str, str]:
        """The digest of each tool in a list by name; of several tools with one name, of one that is not approved."""
        pins = self._pins[server]
        digests: dict[str, str] = {}
        for raw in entries:
            name = jsonrpc.text(jsonrpc.members(raw).get("name"))
            pin = pins.get(name or "")
            if name is None or pin is None or digests.get(name, pin.digest) != pin.digest:
                continue
            digests[name] = pin.seen_digest if pin.seen == bytes(raw) else definition_digest(raw)
        return digests

    def _permitted(self, server: str, entries: Sequence[Raw], mode: OnChange) -> Sequence[Raw]:
        pins = self._pins[server]
        if mode == "block":
            return [] if any(pin.change is not None for pin in pins.values()) else entries
        permitted: dict[str, Raw] = {}
        for raw in entries:
            name = jsonrpc.text(jsonrpc.members(raw).get("name"))
            pin = pins.get(name) if name is not None else None
            if name is None or pin is None or name in permitted:
                continue
            if pin.change is None and (pin.seen == bytes(raw) or definition_digest(raw) == pin.digest):
                permitted[name] = raw
            elif pin.definition:
                permitted[name] = Raw(pin.definition)
        found = list(permitted.values())
        is_all = len(found) == len(entries) and all(one is other for one, other in zip(found, entries, strict=True))
        return entries if is_all else found

    def _report(self, server: str, changed: Sequence[ToolPin]) -> None:
        new = [pin for pin in changed if (server, pin.name, pin.seen_digest) not in self._reported]
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


def _log_suspicious(pins: Iterable[ToolPin]) -> None:
    """Log what a scan finds in definitions; it takes about 0.1 ms each, and more for very long ones."""
    from riglm.domain.definition_scan import scan_definition  # noqa: PLC0415  # most processes see nothing new

    for pin in pins:
        findings = scan_definition(jsonrpc.plain(Raw(pin.seen)))
        if findings:
            found = [f"{finding.rule} in {finding.path}" for finding in findings[:_MAX_NAMED]]
            about = {"upstream": pin.server, "tool": pin.name, "findings": found}
            _log.warning("the definition of a tool is suspicious", extra=about)
