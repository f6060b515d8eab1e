"""What people decide about tools by hand: put into the store, and in force at once."""

import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from riglm.application.control.sessions import cursor_of, key_of, page, unknown_session
from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.application.control.tool_use import LiveTools
from riglm.application.filtering.active_rules import Overrides
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.tool_lists.list_writer import NAMES
from riglm.domain.control import ConflictError, FieldError, InvalidInputError, NotFoundError, OverrideRequest
from riglm.domain.policy import Override, OverrideScope
from riglm.domain.schemas.control_api import Page
from riglm.domain.session import uuid7
from riglm.ports.analytics import AnalyticsPort

MAX_TOOL_LENGTH: Final = 256
"""Characters of a tool's name: twice what the protocol allows, since riglm may put a server's name before it."""

MAX_KEY_LENGTH: Final = 256
MAX_REASON_LENGTH: Final = 500
"""Characters that an override's key and reason may have."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LATEST: Final = 253_402_300_799.0  # the last second of the year 9999


class OverrideService:
    """Makes overrides, lists them and takes them back."""

    def __init__(
        self,
        proxy: ProxyLoop,
        store: StoreThread[AnalyticsPort],
        registry: SessionRegistry,
        overrides: Overrides,
        live_tools: LiveTools,
        *,
        is_filtering: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Registry, overrides and tools are asked on the proxy's loop. No override applies unless `is_filtering`."""
        self._proxy = proxy
        self._store = store
        self._registry = registry
        self._overrides = overrides
        self._live_tools = live_tools
        self._is_filtering = is_filtering
        self._clock = clock

    async def put(self, override_request: OverrideRequest) -> Override:
        """Make an override; the next list and the next call go by it.

        Raises:
            Invalid: it is not usable.
            Conflict: it would end before it begins, has a key with the scope `all`, is about a meta-tool, or filtering
                is off.
            NotFoundError: it is for an unknown session, or for a tool that no server is known to have had.
        """
        if not await self._proxy.look(self._is_filtering):
            raise ConflictError("filtering is off, so no override applies — fix: set filtering.enabled to true")
        now = self._clock()
        faults = tuple(_faults(override_request))
        if faults:
            raise InvalidInputError(*faults)
        expires_at = _end(override_request, now)
        if expires_at is not None and expires_at <= now:
            raise ConflictError(_over_already(override_request, now))
        key = override_request.key
        if key and override_request.scope is OverrideScope.ALL:
            raise ConflictError(
                "an override with the scope `all` has no key — fix: leave it out, or choose another scope"
            )
        live = await self._proxy.look(self._live_tools)
        if override_request.tool in NAMES and override_request.tool not in live:
            raise ConflictError(
                f"{override_request.tool} is a meta-tool, and overrides do not apply to meta-tools — fix: "
                f"set filtering.meta_tools.{override_request.tool} to offer or remove it"
            )
        if override_request.tool not in live:
            await self._require_offered(override_request.tool, has_live_tools=bool(live))
        if override_request.scope is OverrideScope.SESSION:
            key = str(await self._known_session(override_request.key))
        made = Override(
            id=uuid7(),
            kind=override_request.kind,
            tool=override_request.tool,
            created_at=now,
            scope=override_request.scope,
            key=key,
            expires_at=expires_at,
            reason=override_request.reason,
        )
        await self._store.ask(
            lambda store: store.put_override(made), undo=lambda store, _: store.delete_override(made.id)
        )
        await self._proxy.ask(self._overrides.refresh)
        return made

    async def entries(self, *, limit: int, cursor: str | None) -> Page[Override]:
        """The overrides that have not expired, the latest first."""
        found = sorted(await self._in_store(), key=_place, reverse=True)
        if cursor is not None:
            key = key_of(cursor, _key)
            found = [each for each in found if _place(each) < key]
        return page(found, limit, lambda each: cursor_of(each.created_at, each.id.hex))

    async def one(self, override_id: UUID) -> Override:
        """An override that has not expired.

        Raises:
            NotFoundError: there is none with this id.
        """
        for each in await self._in_store():
            if each.id == override_id:
                return each
        raise _unknown(override_id)

    async def delete(self, override_id: UUID) -> None:
        """Take an override back; the next list and the next call no longer go by it.

        Raises:
            NotFoundError: there is none with this id.
        """
        before = await self.one(override_id)
        is_missing = await self._store.ask(
            lambda store: store.delete_override(override_id), undo=lambda store, _: store.put_override(before)
        )
        if not is_missing:
            raise _unknown(override_id)
        await self._proxy.ask(self._overrides.refresh)

    async def _in_store(self) -> list[Override]:
        now = self._clock()
        return [each for each in await self._store.ask(lambda store: store.list_overrides()) if each.holds(now)]

    async def _require_offered(self, tool: str, *, has_live_tools: bool) -> None:
        """Refuse the name of a tool that was never offered, which is a typing error, once any tool is known."""
        offered = await self._store.ask(lambda store: store.list_known_tools())
        if tool not in offered and (offered or has_live_tools):
            raise NotFoundError(f"no server has a tool {tool!r} — fix: use a name from GET /tools, as clients see it")

    async def _known_session(self, key: str) -> UUID:
        """Return the id of the session that an override names, from this process or the store."""
        try:
            session_id = UUID(key)
        except ValueError:
            raise unknown_session(repr(key)) from None
        if await self._proxy.look(lambda: self._registry.known(session_id)) is not None:
            return session_id
        if await self._store.ask(lambda store: store.find_session(session_id)) is None:
            raise unknown_session(session_id)
        return session_id


def _faults(override_request: OverrideRequest) -> Iterator[FieldError]:
    """All that makes a wish unusable."""
    if (
        not override_request.tool
        or len(override_request.tool) > MAX_TOOL_LENGTH
        or _CONTROL.search(override_request.tool)
    ):
        yield FieldError(
            path="tool", detail=f"a tool's name has 1 to {MAX_TOOL_LENGTH} characters, none of them for control"
        )
    if len(override_request.key) > MAX_KEY_LENGTH:
        yield FieldError(path="key", detail=f"it has more than {MAX_KEY_LENGTH} characters")
    if len(override_request.reason) > MAX_REASON_LENGTH:
        yield FieldError(path="reason", detail=f"it has more than {MAX_REASON_LENGTH} characters")
    for path, number in (("expires_at", override_request.expires_at), ("expires_in", override_request.expires_in)):
        if number is not None and not (math.isfinite(number) and 0 <= number <= _LATEST):
            yield FieldError(path=path, detail="this is no time that riglm can go by")


def _end(override_request: OverrideRequest, now: float) -> float | None:
    """When an override ends: at the earlier of the times that were asked for."""
    ends = [] if override_request.expires_at is None else [override_request.expires_at]
    if override_request.expires_in is not None:
        ends.append(min(now + override_request.expires_in, _LATEST))
    return min(ends, default=None)


def _over_already(override_request: OverrideRequest, now: float) -> str:
    """What is wrong with an end that is not later than now, by the member that gave it."""
    if override_request.expires_at is not None and override_request.expires_at <= now:
        return "expires_at lies in the past — fix: a later time, or `expires_in` seconds"
    return "expires_in is too short — fix: more seconds"


def _place(each: Override) -> tuple[float, UUID]:
    return each.created_at, each.id


def _key(created_at: float, id_: str) -> tuple[float, UUID]:
    return float(created_at), UUID(hex=id_)


def _unknown(override_id: UUID) -> NotFoundError:
    return NotFoundError(f"there is no override {override_id}: it expired, was deleted, or never was")
