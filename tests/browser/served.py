"""A riglm with a control API, a server behind it, and a client in front."""

import contextlib
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcp import Client
from mcp.types import Implementation

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.invocation import DiscoveryMethod
from riglm.ports.analytics import Record
from tests.interaction.stage import Process
from tests.records import a_session, a_tool_pin, an_exposure, an_invocation
from tests.started import free_port

HOSTILE: Final = "<img src=x onerror=document.title='broken'>"
TOOLS: Final = (*(f"{what}_{of}" for of in ("file", "issue", "note", "page", "song") for what in
                  ("read", "write", "find", "move", "close", "share")), HOSTILE)  # fmt: skip
WRITE_TOKEN: Final = "write-0123456789abcdef"
READ_TOKEN: Final = "read-0123456789abcdef"
_LISTING: Final = Path(__file__).parents[1] / "integration" / "listing_server.py"


@dataclass(frozen=True, slots=True)
class Served:
    """Where clients and people find it."""

    mcp: str
    control: str

    def ask(self, path: str, token: str = READ_TOKEN) -> Any:
        """What the control API answers."""
        request = urllib.request.Request(self.control + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def change(self, settings: dict[str, Any]) -> None:
        """Change the configuration that is in force."""
        request = urllib.request.Request(
            f"{self.control}/config",
            json.dumps(settings).encode(),
            {"Authorization": f"Bearer {WRITE_TOKEN}", "Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=20):
            pass

    @asynccontextmanager
    async def client(self, name: str = "mcp") -> AsyncIterator[Client]:
        """A client of the handshake era, whose lists may change."""
        about = Implementation(name=name, version="1")
        async with Client(self.mcp, mode="legacy", read_timeout_seconds=20, client_info=about) as client:
            yield client


@contextlib.contextmanager
def served(folder: Path, past: Sequence[Record] = ()) -> Iterator[Served]:
    """`riglm serve` with the control API and tokens, over a store with these records."""
    data = folder / "data"
    data.mkdir()
    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        store.record_many(past)
    definitions = [
        {"name": name, "description": f"{name}, as one does", "inputSchema": {"type": "object"}} for name in TOOLS
    ]
    (folder / "tools.json").write_text(json.dumps(definitions))
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "riglm", "serve", "--port", str(ports[0]), "--control", "--control-port",
               str(ports[1]), "--", sys.executable, str(_LISTING), str(folder / "tools.json")]  # fmt: skip
    kept = {name: content for name, content in os.environ.items() if not name.startswith("RIGLM_")}
    settings = {
        "RIGLM_DATA_DIR": str(data),
        "RIGLM_EMBEDDER__PROVIDER": "static",
        "RIGLM_FILTERING__COVERAGE": "0.95",
        "RIGLM_CONTROL__TOKEN": WRITE_TOKEN,
        "RIGLM_CONTROL__READ_TOKEN": READ_TOKEN,
    }
    process = Process(command, {**kept, **settings}, folder / "stderr")
    try:
        for port in ports:
            process.wait_for_port(port)
        yield Served(f"http://127.0.0.1:{ports[0]}/mcp", f"http://127.0.0.1:{ports[1]}")
    finally:
        process.end()


def a_past(now: float) -> Iterator[Record]:
    """Some sessions of the last hours, most of which used the same few tools, and a tool that changed."""
    changed = b'{"name":"read","description":"Reads a file.\\u200b"}'
    yield a_tool_pin(server="elsewhere", name=HOSTILE, seen_digest="b" * 64, seen=changed, seen_at=now - 60)
    for number in range(6):
        started = now - 3_600 * (number + 1)
        session = a_session(
            started_at=started, ended_at=started + 600, tools_available=TOOLS, project=("a", "b", "")[number % 3] * 32
        )
        yield session
        yield an_exposure(session, *TOOLS[:12], hidden=tuple(sorted(TOOLS[12:])), timestamp=started + 1,
                          tokens_shown=900, tokens_hidden=1_500, tokens_own=80)  # fmt: skip
        for step, tool in enumerate(TOOLS[number % 3 : number % 3 + 4], 1):
            found = (DiscoveryMethod.LISTED, DiscoveryMethod.LISTED, DiscoveryMethod.SEARCHED, DiscoveryMethod.NAMED)[
                step - 1
            ]
            yield an_invocation(session, tool, timestamp=started + 60 * step, sequence_number=step, found=found)
