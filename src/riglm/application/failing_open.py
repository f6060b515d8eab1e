"""Isolation of failures: an error in riglm never reaches a client."""

import logging
from types import TracebackType


class FailingOpen:
    """A block whose failure is logged once for each kind, and then forgotten. It may be entered again and again."""

    def __init__(self, log: logging.Logger, words: str) -> None:
        """`words` describe the failure and its effect, and are followed by "this is logged once"."""
        self._log = log
        self._words = words
        self._reported: set[type[BaseException]] = set()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if kind not in self._reported:
            self._reported.add(kind)
            self._log.error("%s this is said once", self._words, exc_info=error)
        return True
