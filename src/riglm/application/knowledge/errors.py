"""What can go wrong with a question, by codes that stay the same."""

from enum import StrEnum

from riglm.domain import jsonrpc


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


def refusal(error: Unanswered) -> bytes:
    """A raw tool result that tells the code, and words for people."""
    told = jsonrpc.encode({"error": {"code": str(error.code), "message": str(error)}}).decode()
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % jsonrpc.encode(told)
