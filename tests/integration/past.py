"""What sessions of the last hours left in a store."""

from riglm.domain.invocation import ErrorKind, Found
from riglm.ports.analytics import Record
from riglm.testing.records import a_session, an_exposure, an_invocation
from tests.integration.controlled import TOOLS

_FOUND = (Found.LISTED, Found.LISTED, Found.SEARCHED, Found.NAMED)


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
