"""Output of servers next to the protocol, taken from what riglm logs of them."""

import logging
from collections import deque
from types import TracebackType
from typing import Final, Self

from riglm.ports.examining import Heard, OverhearingPort

_LINES: Final = 10
_LOGGER: Final = "riglm"
_NOISE: Final = "skipped a line that is no message"


class Overhearing(logging.Handler, OverhearingPort):
    """Listens to riglm's log as a context manager; meanwhile nothing of it goes anywhere else."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._said: dict[str, deque[str]] = {}
        self._noise: dict[str, int] = {}
        self._before = (logging.NOTSET, True)

    def __enter__(self) -> Self:
        logger = logging.getLogger(_LOGGER)
        self._before = (logger.level, logger.propagate)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        """Take down what a record quotes of a server."""
        about = record.__dict__
        name = about.get("upstream")
        if name is None:
            return
        if record.msg == "stderr":
            self._said.setdefault(name, deque(maxlen=_LINES)).append(str(about.get("line", "")).rstrip())
        elif record.msg == _NOISE:
            self._noise[name] = self._noise.get(name, 0) + 1

    def heard(self, upstream: str) -> Heard:
        """What the server of this name said since it was forgotten last."""
        return Heard(complaints=tuple(self._said.get(upstream, ())), noise=self._noise.get(upstream, 0))

    def forget(self, upstream: str) -> None:
        """What the server of this name said so far counts no more."""
        self._said.pop(upstream, None)
        self._noise.pop(upstream, None)
