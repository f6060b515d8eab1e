"""The condition of a server, from what its links observe."""

import time
from typing import Final

from riglm.domain.upstream import LinkState, UpstreamHealth

_REFUSALS: Final = frozenset({401, 403})


class HealthTracker:
    """The state of one server and since when it lasts; the event loop changes it, any thread may ask."""

    def __init__(self, name: str) -> None:
        """The condition of the server called `name`, which got no request yet."""
        self.health = UpstreamHealth(name=name, since=time.time())

    def _is(self, state: LinkState, error: str | None = None) -> None:
        known = self.health
        if state != known.state or error is not None:
            self.health = UpstreamHealth(
                name=known.name,
                state=state,
                since=known.since if state == known.state else time.time(),
                last_error=known.last_error if error is None else error,
            )


class ChannelHealthTracker(HealthTracker):
    """The condition of a server that is reached over one or many channels."""

    def __init__(self, name: str) -> None:
        """No channel is open."""
        super().__init__(name)
        self._channels: dict[LinkState, int] = {"idle": 0, "opening": 0, "open": 0, "broken": 0}
        self._is_broken = False

    def moved(self, before: LinkState, after: LinkState, error: str | None = None) -> None:
        """A channel came from one state into another, each begins and ends as `idle`."""
        count = self._channels
        count[before] -= 1
        count[after] += 1
        if after == "open" or (after == "broken" and not count["open"]):
            self._is_broken = after == "broken"
        if count["open"]:
            self._is("open", error)
        elif count["opening"]:
            self._is("opening", error)
        else:
            self._is("broken" if self._is_broken else "idle", error)


class RequestHealthTracker(HealthTracker):
    """The condition of a server to which every request has a separate connection."""

    def asked(self) -> None:
        """A request is sent."""
        if self.health.state == "idle":
            self._is("opening")

    def answered(self, status: int) -> None:
        """The server began to answer, with this HTTP status."""
        if status in _REFUSALS or status >= 500:
            self._is("broken", f"answered HTTP {status}")
        else:
            self._is("open")

    def failed(self, reason: str) -> None:
        """The server cannot be reached."""
        self._is("broken", reason)

    def expired(self) -> None:
        """Note a request that timed out: a server that responded before is slow, one that never did is broken."""
        if self.health.state == "opening":
            self._is("broken", "did not answer in time")
