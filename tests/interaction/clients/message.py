"""One message as a client sees it: the bytes, and what they say."""

from dataclasses import dataclass, field
from typing import Any

from tests.interaction import text


@dataclass(eq=False)
class Message:
    """A message that came in, with the exact bytes of each member."""

    raw: bytes
    stream: object = None
    parts: dict[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = text.members(self.raw)

    @property
    def id(self) -> bytes | None:
        """The id as it was written."""
        return self.parts.get("id")

    @property
    def method(self) -> str | None:
        """The method, None in a response."""
        return text.value(self.parts["method"]) if "method" in self.parts else None

    @property
    def params(self) -> bytes:
        """The params as they were written."""
        return self.parts.get("params", b"{}")

    @property
    def result(self) -> bytes:
        """The result as it was written; an error fails the test that asks for it."""
        assert "result" in self.parts, f"no result in {self.raw[:2000]!r}"
        return self.parts["result"]

    @property
    def error(self) -> bytes:
        """The error as it was written; a result fails the test that asks for it."""
        assert "error" in self.parts, f"no error in {self.raw[:2000]!r}"
        return self.parts["error"]

    @property
    def code(self) -> int:
        """The code of the error."""
        code: int = text.value(self.error)["code"]
        return code

    def decoded(self, member: str = "result") -> Any:
        """A member's value, for what need not be exact."""
        raw = {"result": lambda: self.result, "error": lambda: self.error, "params": lambda: self.params}[member]()
        return text.value(raw)

    @property
    def words(self) -> str:
        """The text of a tool result's first content block."""
        return self.words_list[0]

    @property
    def words_list(self) -> list[str]:
        """The texts of a tool result."""
        return [block["text"] for block in self.decoded()["content"]]
