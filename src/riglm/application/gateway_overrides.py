"""Overrides applied to a gateway behind riglm, and changes of the gateway announced to clients."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from riglm.application.forwarding.services import RequestServices
from riglm.application.worker import Worker
from riglm.domain.errors import RiglmError
from riglm.domain.policy import Override, OverrideKind, OverrideScope, by_tool, find_decisive
from riglm.ports.upstream import GatewayPort, ToolSwitch, UpstreamPort

_MAX_PAUSE_SECONDS: Final = 60.0
_CACHE_SECONDS: Final = 1.5  # MetaMCP serves a list from its cache for a second after a change
_log: Final = logging.getLogger("riglm.gateway")


class GatewayOverrides:
    """Updates one gateway regularly.

    Only overrides for all sessions are applied: the gateway does not know riglm's sessions and principals.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        upstream: UpstreamPort,
        services: RequestServices,
        overrides: Callable[[], Sequence[Override] | None],
        worker: Worker,
        interval_seconds: float,
    ) -> None:
        """`overrides` returns those in force, None as long as they are unknown; the gateway is used on the worker."""
        self._gateway = gateway
        self._upstream = upstream
        self._services = services
        self._overrides = overrides
        self._worker = worker
        self._interval_seconds = interval_seconds
        self._reported = ""

    async def follow(self) -> None:
        """Update the gateway until this is cancelled. After a failure the pause is doubled, up to a minute."""
        pause = self._interval_seconds
        while True:
            overrides = self._overrides()
            if overrides is not None:
                is_changed = await self._update(overrides)
                is_failing = is_changed is None
                pause = max(pause, min(2 * pause, _MAX_PAUSE_SECONDS)) if is_failing else self._interval_seconds
                if is_changed:
                    await asyncio.sleep(_CACHE_SECONDS)
                    self._upstream.announce_changed_tools()
            await asyncio.sleep(pause)

    async def _update(self, overrides: Sequence[Override]) -> bool | None:
        """Return True if what the gateway lists changed, None if it cannot be updated."""
        switches, in_force = tuple(self._switches(overrides)), {each.id for each in overrides}
        try:
            is_changed = await asyncio.wrap_future(
                self._worker.submit(lambda: self._gateway.update(switches, in_force))
            )
        except RiglmError as error:
            self._report(str(error))
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("gateway not updated", extra={"upstream": self._upstream.spec.name})
        else:
            self._reported = ""
            return is_changed
        return None

    def _report(self, reason: str) -> None:
        """Log a reason once, until it changes or an update succeeds."""
        if reason != self._reported:
            self._reported = reason
            _log.warning("gateway not updated", extra={"upstream": self._upstream.spec.name, "reason": reason})

    def _switches(self, overrides: Sequence[Override]) -> Iterator[ToolSwitch]:
        """Yield what the overrides mean for the tools of this gateway that are known."""
        for name, of_tool in by_tool(each for each in overrides if each.scope is OverrideScope.ALL).items():
            decisive = find_decisive(of_tool)
            server, tool = self._services.owners.of(name)
            if decisive is not None and server == self._upstream.spec.name:
                yield ToolSwitch(
                    override_id=decisive.id,
                    tool=tool,
                    is_active=decisive.kind is OverrideKind.INCLUDE,
                    definition=self._services.definition(name),
                )
