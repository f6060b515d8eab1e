"""What can go wrong with a question, by codes that stay the same."""

from enum import StrEnum


class Code(StrEnum):
    """The closed list of codes."""

    FEATURE_DISABLED = "feature_disabled"
    INVALID_PARAMS = "invalid_params"
    EMBEDDER_UNAVAILABLE = "embedder_unavailable"
    DB_ERROR = "db_error"
    INTERNAL_ERROR = "internal_error"


class Unanswered(Exception):
    """A question without an answer; the text is for whoever asked, and tells nothing of the inside."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(words)
        self.code = code
