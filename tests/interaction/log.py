"""What a scripted server wrote down."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interaction import text
from tests.waiting import wait_until_async


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to a server."""

    event: str
    pid: int
    details: dict[str, Any]

    @property
    def raw(self) -> bytes:
        """The message that was received."""
        return str(self.details["raw"]).encode("latin-1")

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers it came with."""
        return dict(self.details["headers"])

    @property
    def parts(self) -> dict[str, bytes]:
        """The message's members, byte for byte; empty when it is no object."""
        try:
            return text.members(self.raw)
        except text.Malformed:
            return {}

    @property
    def method(self) -> str | None:
        """The message's method, if it has one."""
        return text.value(self.parts["method"]) if "method" in self.parts else None


class ServerLog:
    """Reads the log of one or more servers from a mark on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = path.stat().st_size if path.exists() else 0

    def entries(self, event: str | None = None) -> list[Entry]:
        """What happened since the mark."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._start)
            lines = file.read().split(b"\n")[:-1]
        found = []
        for line in lines:
            details = json.loads(line)
            entry = Entry(details.pop("event"), details.pop("pid"), details)
            if event in (None, entry.event):
                found.append(entry)
        return found

    def mark(self) -> None:
        """From now on, only look at what is new."""
        self._start = self.path.stat().st_size if self.path.exists() else 0

    def received(self, method: str | None = None) -> list[Entry]:
        """The messages received since the mark; with a method, only those."""
        return [entry for entry in self.entries("received") if method in (None, entry.method)]

    def requests(self) -> list[str]:
        """The methods of the requests received since the mark, in order."""
        return [entry.method for entry in self.received() if entry.method and "id" in entry.parts]

    async def wait_for(self, condition: Callable[[Entry], bool]) -> Entry:
        """The first entry that meets the condition, as soon as it is there."""
        return await wait_until_async(lambda: next(filter(condition, self.entries()), None), "the server's log has it")

    async def wait_for_event(self, event: str) -> Entry:
        """The first such event, as soon as it is there."""
        return await self.wait_for(lambda entry: entry.event == event)
