"""Tools that are not as they were approved, and their approval."""

from dataclasses import replace

from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.application.trust.pinned_tools import PinnedTools
from riglm.domain.control import ConflictError, NotFoundError
from riglm.domain.schemas.control_api import ToolChangeEntry, ToolChanges
from riglm.domain.tool_pin import ToolPin, definition_diff
from riglm.ports.analytics import AnalyticsPort


class ToolChangeService:
    """Lists changed tools, and approves them."""

    def __init__(self, proxy: ProxyLoop, store: StoreThread[AnalyticsPort], pins: PinnedTools) -> None:
        """`pins` are asked on the proxy's loop."""
        self._proxy = proxy
        self._store = store
        self._pins = pins

    async def entries(self) -> ToolChanges:
        """The tools of all servers that are not as they were approved, by server and name."""
        pins = await self._store.ask(lambda store: store.list_tool_pins())
        return ToolChanges(items=[_entry(pin) for pin in pins if pin.change is not None])

    async def approve(self, server: str, tool: str, digest: str) -> ToolChangeEntry:
        """Approve the definition with this digest; it is in force when this returns.

        Raises:
            NotFoundError: the tool did not change, or there is none.
            ConflictError: the server lists a different definition by now.
        """
        found = await self._store.ask(lambda store: store.list_tool_pins([server]))
        pin = next((pin for pin in found if pin.name == tool and pin.change is not None), None)
        if pin is None:
            raise NotFoundError(f"{server} has no changed tool {tool!r} — fix: use a name from GET /tools/changes")
        if pin.seen_digest != digest:
            raise ConflictError(
                "the server lists a different definition by now — fix: look at GET /tools/changes again"
            )
        approved = replace(pin, digest=digest, definition=pin.seen)
        await self._store.ask(lambda store: store.approve_tools([approved]))
        pins = await self._store.ask(lambda store: store.list_tool_pins())
        await self._proxy.look(lambda: self._pins.read(pins))
        return _entry(approved)


def _entry(pin: ToolPin) -> ToolChangeEntry:
    return ToolChangeEntry(
        server=pin.server,
        tool=pin.name,
        change=pin.change.value if pin.change else None,
        resembles=pin.resembles or None,
        digest=pin.seen_digest,
        approved_digest=pin.digest or None,
        seen_at=pin.seen_at,
        diff=definition_diff(pin),
    )
