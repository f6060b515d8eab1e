"""Recorded sessions and calls as the tools that each session used."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from riglm.domain.session import PROFILE
from riglm.domain.usage import SessionUse

_DEFAULT_PROFILE: Final = "default"


class SessionRow(NamedTuple):
    """The stored fields of a session that count for its use."""

    id: Hashable
    started_at: float
    client: str
    principal: str
    metadata: Mapping[str, str]


def to_session_uses(sessions: Iterable[SessionRow], calls: Iterable[tuple[Hashable, str]]) -> Sequence[SessionUse]:
    """Return the uses of those sessions that have calls; `calls` are session ids and tools in the order of use."""
    tools: defaultdict[Hashable, list[str]] = defaultdict(list)
    for session_id, tool in calls:
        tools[session_id].append(tool)
    return [
        SessionUse(
            started_at=each.started_at,
            tools=tuple(dict.fromkeys(tools[each.id])),
            calls=len(tools[each.id]),
            client=each.client,
            principal=each.principal,
            profile=each.metadata.get(PROFILE, _DEFAULT_PROFILE),
        )
        for each in sessions
        if each.id in tools
    ]
