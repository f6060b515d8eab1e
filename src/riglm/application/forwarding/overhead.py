"""What riglm itself takes of a call: measured where somebody asked for numbers, and nowhere else."""

import time
from contextvars import ContextVar
from typing import Final

from riglm.ports.telemetry import MeterPort

_since: Final[ContextVar[float]] = ContextVar("riglm_request_since")


class Overhead:
    """Knows since when riglm alone has had the request that the running code is about.

    That is since its line or its body was whole, or since the last answer of a server that it had to wait for before it
    could go its way.
    """

    def __init__(self, meter: MeterPort) -> None:
        """What calls took is told to `meter`."""
        self._meter = meter

    def begin(self) -> None:
        """A request is about to be read, or riglm goes on with one."""
        _since.set(time.perf_counter())

    def stopwatch(self, upstream: str) -> "Stopwatch":
        """For a call that goes to this server."""
        return Stopwatch(self._meter, upstream, _since.get(0.0) or time.perf_counter())


class Stopwatch:
    """Runs while a call is riglm's, and stands still while it is its server's."""

    __slots__ = ("_meter", "_own", "_since", "_upstream")

    def __init__(self, meter: MeterPort, upstream: str, since: float) -> None:
        """It ran `since` then, by `time.perf_counter`."""
        self._meter = meter
        self._upstream = upstream
        self._since = since
        self._own: float | None = None

    def left(self) -> None:
        """The request is on its way to the server; said again when it is sent once more, which does not count."""
        if self._own is None:
            self._own = time.perf_counter() - self._since

    def came(self) -> None:
        """The answer is there."""
        self._since = time.perf_counter()

    def handed_over(self) -> None:
        """The answer is on its way to the client."""
        if self._own is not None:
            self._meter.held(self._upstream, self._own + time.perf_counter() - self._since)
