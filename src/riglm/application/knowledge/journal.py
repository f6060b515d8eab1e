"""What is logged of questions: numbers and names of models, never a word of anybody's."""

import logging
from typing import Final

from riglm.application.knowledge.definition import NAME
from riglm.application.knowledge.errors import Code, Unanswered
from riglm.application.knowledge.retrieval import Answer

_log: Final = logging.getLogger("riglm.knowledge")
_METRICS: Final = (
    "provider",
    "model",
    "dim",
    "k_req",
    "floor",
    "floor_used",
    "kg_candidates",
    "thought_candidates",
    "k_ret",
    "latency_ms",
)


class Journal:
    """Notes how each question ended; a silent one only counts, and tells the counts in the end."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self.answered_count = 0
        self.failed_count = 0

    def answered(self, answer: Answer) -> None:
        """A question was answered, with snippets or without any."""
        self.answered_count += 1
        if self._is_silent:
            return
        said = answer.diagnostics
        _log.info("%s answered", NAME, extra={name: getattr(said, name) for name in _METRICS})
        if _log.isEnabledFor(logging.DEBUG):
            tables = [str(each.candidate.table) for each in answer.snippets]
            ids = [each.candidate.table.public_id(each.candidate.key) for each in answer.snippets]
            _log.debug("%s gave", NAME, extra={"ids": ids, "tables": tables})

    def refused(self, error: Unanswered) -> None:
        """A question was refused, or could not be answered by what it needs."""
        self.failed_count += 1
        if not self._is_silent:
            level = logging.INFO if error.code is Code.INVALID_PARAMS else logging.WARNING
            cause = "" if error.__cause__ is None else type(error.__cause__).__name__
            _log.log(level, "%s failed", NAME, extra={"code": str(error.code), "cause": cause})

    def broke(self, error: BaseException) -> None:
        """A question met what should never happen; its text, which may hold anybody's words, is left out."""
        self.failed_count += 1
        if not self._is_silent:
            where, trace = "", error.__traceback__
            while trace is not None:
                where, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
            told = {"code": str(Code.INTERNAL_ERROR), "cause": type(error).__name__, "where": where}
            _log.error("%s failed", NAME, extra=told)

    def end(self) -> None:
        """Nothing is asked any more."""
        if self._is_silent and (self.answered_count or self.failed_count):
            counts = {"succeeded": self.answered_count, "failed": self.failed_count}
            _log.info("%s was called", NAME, extra=counts)
