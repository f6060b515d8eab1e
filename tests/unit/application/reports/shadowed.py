"""Days of work behind a riglm in shadow mode, as a store has them."""

import random
from typing import Final

from riglm.domain.exposure import Surface
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import ClientInfo
from riglm.ports.analytics import Record
from tests.records import a_session, an_exposure, an_invocation

SERVERS: Final = {"github": "gh", "files": "fs", "tracker": "tr", "mail": "ml"}
TOOLS: Final = tuple(f"{server}__{short}{number:02}" for server, short in SERVERS.items() for number in range(15))
WORKFLOWS: Final = tuple(tuple(TOOLS[start : start + 6]) for start in (0, 15, 22, 30, 45))
TOKENS_PER_TOOL: Final = 150
_SHORT: Final = 12
_OWN_TOKENS: Final = 600
_DAY: Final = 86_400.0


def worked(sessions: int = 100, *, start: float = 1_790_000_000.0, days: int = 10, seed: int = 5) -> list[Record]:
    """Sessions that follow a few workflows, with a strange call here and there.

    The list of each would have had 12 tools, those of the server of its workflow.
    """
    chance = random.Random(seed)
    records: list[Record] = []
    for number in range(sessions):
        at = start + days * _DAY * number / sessions
        session = a_session(started_at=at, ended_at=at + 900, tools_available=TOOLS, client=ClientInfo(name="editor"))
        workflow = WORKFLOWS[chance.randrange(len(WORKFLOWS))]
        server = workflow[0].partition("__")[0]
        likely = tuple(name for name in TOOLS if name.startswith(server))[:_SHORT]
        hidden = tuple(sorted(set(TOOLS) - set(likely)))
        records += [session, an_exposure(session, *likely, hidden=hidden, timestamp=at, **_tokens(_SHORT, len(hidden)))]
        for step in range(chance.randrange(4, 12)):
            tool = chance.choice(TOOLS) if chance.random() < 0.05 else workflow[step % len(workflow)]
            called = {
                "timestamp": at + 100 * (step + 1),
                "upstream": tool.partition("__")[0],
                "found": DiscoveryMethod.LISTED,
            }
            records.append(an_invocation(session, tool, **called))
    return records


def _tokens(shown: int, hidden: int) -> dict[str, object]:
    """What a shadow of a dynamic list notes, beside the names."""
    return {
        "mode": "shadow",
        "surface": Surface.DYNAMIC.value,
        "predictor": "hybrid",
        "tokens_shown": shown * TOKENS_PER_TOOL + _OWN_TOKENS,
        "tokens_hidden": hidden * TOKENS_PER_TOOL,
        "tokens_own": _OWN_TOKENS,
    }
