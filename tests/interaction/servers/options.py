"""What a scripted server is told at its start."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the server behaves; every field is a flag of the same name."""

    transport: str = "stdio"
    port: int = 0
    log: str | None = None
    name: str = "scripted"
    eras: str = "both"
    answers: str = "sse"
    page_size: int = 0
    many_tools: int = 0
    tools: str = ""
    unknown_session: int = 404
    bearer: str | None = None
    banner: str | None = None
    hang_at: str = ""
    ask_at: str = ""
    exit_at_start: int | None = None
    die_once: str | None = None
    stubborn: bool = False
    grandchild: bool = False
    lifetime: float = 120.0

    @property
    def handshake(self) -> bool:
        """Whether `initialize` is spoken."""
        return self.eras in ("handshake", "both")

    @property
    def modern(self) -> bool:
        """Whether the envelope of 2026-07-28 is understood."""
        return self.eras in ("modern", "both")

    @classmethod
    def parse(cls, arguments: list[str]) -> Self:
        """Read the command line."""
        kinds = {"port": int, "page_size": int, "many_tools": int, "unknown_session": int, "exit_at_start": int}
        switches = {field.name for field in fields(cls) if field.default is False}
        given, words = {}, iter(arguments)
        for word in words:
            name = word.removeprefix("--").replace("-", "_")
            kind = float if name == "lifetime" else kinds.get(name, str)
            given[name] = True if name in switches else kind(next(words))
        return cls(**given)
