"""A small company at work with riglm, for pictures: its servers, what it did today, and clients that are at it now."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport, uuid7
from riglm.ports.analytics import Record

_LISTING: Final = Path(__file__).parents[2] / "tests" / "integration" / "listing_server.py"

SERVERS: Final = {
    "browser": ("click", "evaluate", "fill_form", "navigate", "screenshot", "wait_for"),
    "filesystem": ("edit_file", "get_file_info", "list_directory", "move_file", "read_file", "search_files",
                   "tree", "write_file"),
    "github": ("add_comment", "add_label", "create_branch", "create_issue", "create_pull_request", "fork_repository",
               "get_issue", "get_pull_request", "list_branches", "list_commits", "list_issues", "list_workflows",
               "merge_pull_request", "search_code"),
    "memory": ("add_observations", "create_entities", "delete_entities", "read_graph", "search_nodes"),
    "postgres": ("describe_table", "explain", "list_tables", "query"),
    "slack": ("add_reaction", "get_thread", "list_channels", "list_users", "post_message"),
}  # fmt: skip
"""The tools of each server."""

ERRANDS: Final = {
    "fix the bug that an issue describes, and open a pull request": (
        "github__list_issues", "github__get_issue", "filesystem__search_files", "filesystem__read_file",
        "filesystem__edit_file", "filesystem__read_file", "github__create_branch", "github__create_pull_request",
        "slack__post_message"),
    "review a pull request and merge it": (
        "github__get_pull_request", "filesystem__read_file", "github__search_code", "github__add_comment",
        "github__merge_pull_request"),
    "find out from the database why the report is wrong": (
        "postgres__list_tables", "postgres__describe_table", "postgres__query", "postgres__query", "postgres__explain",
        "filesystem__write_file"),
    "see whether the sign-in page works": (
        "browser__navigate", "browser__fill_form", "browser__click", "browser__screenshot", "slack__post_message"),
    "answer a question in the channel": (
        "slack__list_channels", "slack__get_thread", "github__search_code", "filesystem__read_file",
        "slack__post_message"),
}  # fmt: skip
"""What people do, and the tools that it takes, in order."""

_TOOLS: Final = tuple(f"{server}__{tool}" for server, tools in SERVERS.items() for tool in tools)
CLIENTS: Final = (("cursor", "3.4.1"), ("goose", "1.30.0"), ("vscode", "1.118.0"))
"""Names and versions of clients."""

_TOKENS_OF_A_TOOL: Final = 170
_ONE_IN_SEVEN_FAILS_OF: Final = frozenset({"filesystem__edit_file", "postgres__query", "browser__click"})


_SCHEMA: Final = {
    "type": "object",
    "properties": {
        name: {"type": "string", "description": f"The {name} that the tool works with, as its server names it."}
        for name in ("target", "owner", "filter", "format", "limit")
    },
}


def configuration(directory: Path) -> list[str]:
    """The arguments that give riglm the company's servers; their lists are written into the directory."""
    servers: dict[str, dict[str, Any]] = {}
    for server, tools in SERVERS.items():
        file = directory / f"{server}.json"
        listed = [
            {"name": tool, "description": f"{tool.replace('_', ' ').capitalize()}.", "inputSchema": _SCHEMA}
            for tool in tools
        ]
        file.write_text(json.dumps(listed))
        servers[server] = {"command": sys.executable, "args": [str(_LISTING), str(file)]}
    (directory / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    return ["--mcp-json", str(directory / "servers.json")]


def a_day(until: float, hours: int = 24) -> Iterator[Record]:
    """What was recorded in the hours before: at first lists are long and much is searched, and then ever less."""
    chance = random.Random(4)
    for hour in range(hours):
        wisdom = hour / hours
        for _ in range(chance.choice((6, 8, 11, 14)) if 3 < hour < hours else 2):
            started = until - 3_600 * (hours - hour) + chance.uniform(0, 3_000)
            yield from _a_session(started, wisdom, chance)


def _a_session(started: float, wisdom: float, chance: random.Random) -> Iterator[Record]:
    client, version = chance.choice(CLIENTS)
    session = Session(
        started_at=started,
        ended_at=started + 540.0,
        era=ProtocolEra.HANDSHAKE,
        transport=Transport.HTTP,
        method=IdentificationMethod.CONNECTION,
        client=ClientInfo(name=client, version=version),
        protocol_version="2025-11-25",
        tools_available=tuple(sorted(_TOOLS)),
    )
    yield session
    tools = chance.choice(list(ERRANDS.values()))
    yield _list(session, started + 1, round(34 - 20 * wisdom + chance.uniform(-2, 2)))
    for number, tool in enumerate(tools, 1):
        hit = chance.random() < 0.62 + 0.36 * wisdom
        found = (
            DiscoveryMethod.LISTED
            if hit
            else chance.choice((DiscoveryMethod.SEARCHED, DiscoveryMethod.SEARCHED, DiscoveryMethod.NAMED))
        )
        yield ToolInvocation(
            id=uuid7(),
            session_id=session.id,
            tool=tool,
            upstream=tool.split("__", 1)[0],
            timestamp=started + 55.0 * number,
            duration_ms=20 + chance.expovariate(1 / 150.0),
            success=not (tool in _ONE_IN_SEVEN_FAILS_OF and chance.random() < 1 / 7),
            sequence_number=number,
            found=found,
        )


def _list(session: Session, at: float, size: int) -> Exposure:
    shown = _TOOLS[:size]
    hidden = tuple(sorted(_TOOLS[size:]))
    return Exposure(
        id=uuid7(),
        session_id=session.id,
        timestamp=at,
        shown=shown,
        hidden=hidden,
        predictor="hybrid",
        reason="context confidence 0.62",
        mode="enforce",
        surface="dynamic",
        tokens_shown=_TOKENS_OF_A_TOOL * len(shown),
        tokens_hidden=_TOKENS_OF_A_TOOL * len(hidden),
        tokens_own=420,
    )
