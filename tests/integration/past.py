"""A server with some tools, and what sessions of the last hours left of it in a store."""

import json
import sys
from pathlib import Path
from typing import Final

from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.ports.analytics import Record
from tests.records import a_session, an_exposure, an_invocation

TOOLS: Final = tuple(
    f"{what}_{of}"
    for of in ("file", "issue", "note", "page", "song", "task")
    for what in ("read", "write", "find", "move", "close")
)
_FOUND = (DiscoveryMethod.LISTED, DiscoveryMethod.LISTED, DiscoveryMethod.SEARCHED, DiscoveryMethod.NAMED)


def definitions() -> str:
    """What the server lists, as JSON."""
    about = {"inputSchema": {"type": "object"}}
    return json.dumps([{"name": name, "description": f"{name}, as one does", **about} for name in TOOLS])


def listing_server(definitions: Path) -> list[str]:
    """The words that start it, given the file of its definitions."""
    return [sys.executable, "-IS", str(Path(__file__).with_name("listing_server.py")), str(definitions)]


def a_past(now: float, sessions: int = 6) -> list[Record]:
    """Sessions that used some tools, one of them with a failure."""
    records: list[Record] = []
    for number in range(sessions):
        started = now - 3_600 * (number + 1)
        session = a_session(started_at=started, ended_at=started + 600, tools_available=TOOLS)
        shown, hidden = TOOLS[:12], tuple(sorted(TOOLS[12:]))
        records += [session, an_exposure(session, *shown, hidden=hidden, timestamp=started + 1)]
        for step, tool in enumerate(TOOLS[number % 3 : number % 3 + 4]):
            failed = {"success": False, "error_kind": ErrorKind.TOOL} if number == step == 0 else {}
            at = started + 60 * (step + 1)
            records.append(
                an_invocation(session, tool, timestamp=at, sequence_number=step + 1, found=_FOUND[step], **failed)
            )
    return records
