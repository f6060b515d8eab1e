"""Overrides: stored manual decisions about tools, which apply at once, also to a gateway behind riglm."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from riglm.application.control.running_proxy import RunningProxy
from riglm.application.control.sessions import create_unknown_session, cut_page, parse_cursor
from riglm.application.proxy.parts import ProxyParts
from riglm.application.tool_lists.list_writer import NAMES
from riglm.application.worker import Worker
from riglm.domain.audit import AuditEvent
from riglm.domain.errors import ConflictError, NotFoundError, RiglmError
from riglm.domain.policy import Override, OverrideKind, OverrideScope, ToolSwitch, by_tool, find_decisive
from riglm.domain.schemas.control_api import LATEST, OverrideCreate, Page
from riglm.domain.session import uuid7
from riglm.ports.upstream import UpstreamPort


async def put_override(proxy: RunningProxy, wanted: OverrideCreate) -> Override:
    """Make an override; it applies to lists and calls when this returns.

    Raises:
        ConflictError: it would end before it begins, is about a meta-tool, or filtering is off.
        NotFoundError: it is for an unknown session, or for a tool that no server is known to have had.
    """
    now = time.time()
    is_filtering, live = await proxy.loop.look(lambda: (proxy.filtering.rules.is_on, proxy.live_tools()))
    if not is_filtering:
        raise ConflictError("filtering is off, so no override applies — fix: set filtering.enabled to true")
    if wanted.expires_at is not None and wanted.expires_at <= now:
        raise ConflictError("expires_at lies in the past — fix: a later time, or `expires_in` seconds")
    if wanted.expires_in is not None and now + wanted.expires_in <= now:
        raise ConflictError("expires_in is too short — fix: more seconds")
    if wanted.tool not in live:
        if wanted.tool in NAMES:
            raise ConflictError(
                f"{wanted.tool} is a meta-tool, and overrides do not apply to meta-tools — fix: "
                f"set filtering.meta_tools.{wanted.tool} to offer or remove it"
            )
        known = await proxy.store.ask(lambda store: store.list_known_tools())
        if (known or live) and wanted.tool not in known:
            raise NotFoundError(
                f"no server has a tool {wanted.tool!r} — fix: use a name from GET /tools, as clients see it"
            )
    if wanted.scope is OverrideScope.SESSION:
        session_id = UUID(wanted.key)
        is_live = await proxy.loop.look(lambda: proxy.parts.sessions.known(session_id)) is not None
        if not is_live and await proxy.store.ask(lambda store: store.find_session(session_id)) is None:
            raise create_unknown_session(session_id)
    ends = [wanted.expires_at, None if wanted.expires_in is None else min(now + wanted.expires_in, float(LATEST))]
    made = Override(
        id=uuid7(),
        kind=wanted.kind,
        tool=wanted.tool,
        created_at=now,
        scope=wanted.scope,
        key=wanted.key,
        expires_at=min((end for end in ends if end is not None), default=None),
        reason=wanted.reason,
    )
    await proxy.store.ask(lambda store: store.put_override(made))
    await proxy.loop.ask(proxy.overrides.refresh)
    about = {"id": str(made.id), "kind": made.kind.value, "tool": made.tool, "scope": made.scope.value}
    proxy.record_audit(AuditEvent.OVERRIDE_CREATED, about | ({"key": made.key} if made.key else {}))
    return made


async def list_overrides(proxy: RunningProxy, *, limit: int = 100, cursor: str | None = None) -> Page[Override]:
    """Return the overrides that have not expired, the latest first."""
    found = sorted(await _find_current(proxy), key=_get_place, reverse=True)
    if cursor is not None:
        key = parse_cursor(cursor, lambda created_at, id_: (float(created_at), UUID(hex=id_)))
        found = [each for each in found if _get_place(each) < key]
    return cut_page(found, limit, _get_place)


async def get_override(proxy: RunningProxy, override_id: UUID) -> Override:
    """Return an override that has not expired.

    Raises:
        NotFoundError: there is none with this id.
    """
    for each in await _find_current(proxy):
        if each.id == override_id:
            return each
    raise _create_unknown_override(override_id)


async def delete_override(proxy: RunningProxy, override_id: UUID) -> None:
    """Remove an override; it applies to no list and no call any more when this returns.

    Raises:
        NotFoundError: there is none with this id.
    """
    await get_override(proxy, override_id)
    if not await proxy.store.ask(lambda store: store.delete_override(override_id)):
        raise _create_unknown_override(override_id)
    await proxy.loop.ask(proxy.overrides.refresh)
    proxy.record_audit(AuditEvent.OVERRIDE_DELETED, {"id": str(override_id)})


async def _find_current(proxy: RunningProxy) -> list[Override]:
    now = time.time()
    return [each for each in await proxy.store.ask(lambda store: store.list_overrides()) if each.holds(now)]


def _get_place(each: Override) -> tuple[float, UUID]:
    return each.created_at, each.id


def _create_unknown_override(override_id: UUID) -> NotFoundError:
    return NotFoundError(f"there is no override {override_id}: it expired, was deleted, or never was")


_MAX_PAUSE_SECONDS: Final = 60.0
_CACHE_SECONDS: Final = 1.5  # MetaMCP serves a list from its cache for a second after a change
_log: Final = logging.getLogger("riglm.gateway")


async def update_gateway(
    update: Callable[[Sequence[ToolSwitch], AbstractSet[UUID]], bool],
    upstream: UpstreamPort,
    parts: ProxyParts,
    overrides: Callable[[], Sequence[Override] | None],
    worker: Worker,
    interval_seconds: float,
) -> None:
    """Update a gateway until this is cancelled, and announce changes of its tools.

    Only overrides for all sessions are applied: the gateway does not know riglm's sessions and principals. `overrides`
    returns those in force, None as long as they are unknown; `update` is called on the worker. After a failure the
    pause is doubled, up to a minute; a reason is logged once, until it changes or an update succeeds.
    """
    pause, reported, server = interval_seconds, "", upstream.spec.name
    while True:
        found = overrides()
        if found is not None:
            switches, in_force = _switches(server, parts, found), {each.id for each in found}
            try:
                is_changed = await worker.run(lambda: update(switches, in_force))  # noqa: B023
            except Exception as error:  # noqa: BLE001  # fails open
                pause = max(pause, min(2 * pause, _MAX_PAUSE_SECONDS))
                if not isinstance(error, RiglmError):
                    _log.exception("gateway not updated", extra={"upstream": server})
                elif str(error) != reported:
                    reported = str(error)
                    _log.warning("gateway not updated", extra={"upstream": server, "reason": reported})
            else:
                pause, reported = interval_seconds, ""
                if is_changed:
                    await asyncio.sleep(_CACHE_SECONDS)
                    upstream.announce_changed_tools()
        await asyncio.sleep(pause)


def _switches(server: str, parts: ProxyParts, overrides: Sequence[Override]) -> Sequence[ToolSwitch]:
    """Return what the overrides mean for the known tools of a gateway."""
    found = []
    for name, of_tool in by_tool(each for each in overrides if each.scope is OverrideScope.ALL).items():
        decisive = find_decisive(of_tool)
        owner, tool = parts.owners.of(name)
        if decisive is not None and owner == server:
            is_active, definition = decisive.kind is OverrideKind.INCLUDE, parts.definition(name)
            found.append(ToolSwitch(override_id=decisive.id, tool=tool, is_active=is_active, definition=definition))
    return found
