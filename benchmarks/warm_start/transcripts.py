"""Transcripts as Claude Code 2.1.330 writes them, of sessions that were never held."""

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.warm_start.work import Work

_DAYS: Final = 40
_BULK: Final = 20_000
_RESUMED: Final = 0.1
_AGENTS: Final = 0.1
_PROJECTS: Final = ("-home-mia-shop", "-home-mia-back-office", "-home-mia-site")


def write(home: Path, sessions: Sequence[Work], seed: int, now: datetime | None = None) -> Path:
    """Write a file for each session, the last one ending yesterday; the folder of all of them.

    One in ten is resumed in a file of its own, that begins with a copy of the first, and goes on with other work. One
    in ten leaves its calls to an agent. One file ends in the middle of a line, one has a line that is damaged.
    """
    lot = random.Random(seed)
    folder = home / ".claude" / "projects"
    begin = (now or datetime.now(UTC)) - timedelta(days=_DAYS + 1)
    before: list[str] = []
    for number, work in enumerate(sessions):
        at = begin + timedelta(days=_DAYS * number / len(sessions))
        directory = folder / lot.choice(_PROJECTS)
        directory.mkdir(parents=True, exist_ok=True)
        session = str(uuid.UUID(int=lot.getrandbits(128), version=4))
        has_agent = lot.random() < _AGENTS
        lines = list(_lines(work, session, at, lot, agent=has_agent))
        if before and lot.random() < _RESUMED:
            lines = before + lines
        if has_agent:
            agents = directory / session / "subagents"
            agents.mkdir(parents=True)
            (agents / f"agent-{session[:8]}.jsonl").write_text("\n".join(lines[2:]) + "\n")
            lines = lines[:2]
        if number == 0:
            lines.insert(3, '{"type":"assistant","message":{"content":[{"type":"tool_use",')
        ending = '{"type":"user","message":{"role":"us' if number == 1 else ""
        (directory / f"{session}.jsonl").write_text("\n".join(lines) + "\n" + ending)
        before = lines
    return folder


def _lines(work: Work, session: str, at: datetime, lot: random.Random, *, agent: bool) -> Iterator[str]:
    common: dict[str, Any] = {"userType": "external", "cwd": "/home/mia/shop", "sessionId": session}
    common |= {"version": "2.1.330", "gitBranch": "main", "isSidechain": False}
    clock = at

    def line(kind: str, **more: Any) -> str:
        told = {"type": kind, "timestamp": clock.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        return json.dumps({**common, "uuid": str(uuid.UUID(int=lot.getrandbits(128), version=4)), **told, **more})

    def said(role: str, content: Any) -> dict[str, Any]:
        return {"message": {"role": role, "content": content}}

    yield json.dumps({"type": "queue-operation", "operation": "enqueue", "sessionId": session, "content": work.prompt})
    yield line("user", **said("user", work.prompt))
    if agent:
        common |= {"isSidechain": True, "agentId": session[:8]}
        yield line("user", **said("user", f"Do this for the user and report: {work.prompt}"))
    yield line("user", isMeta=True, **said("user", "Caveat: the messages below were made by the user."))
    for number, (server, tool) in enumerate(work.calls):
        clock += timedelta(seconds=lot.uniform(2, 20))
        yield line("api-request", params={"system": "x" * _BULK, "said": '"tool_use"'})
        if lot.random() < 0.5:
            yield from _other(line, said, lot)
        use = {"type": "tool_use", "id": f"toolu_{lot.getrandbits(96):024x}", "name": f"mcp__{server}__{tool}"}
        use["input"] = {"text": f"step {number}"}  # type: ignore[assignment]
        yield line("assistant", **said("assistant", [use]))
        clock += timedelta(seconds=lot.uniform(0.1, 3))
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "y" * 400}]}
        yield line("user", **said("user", [result | ({"is_error": True} if lot.random() < 0.05 else {})]))
    yield line("user", **said("user", [{"type": "text", "text": "thanks"}]))


def _other(line: Any, said: Any, lot: random.Random) -> Iterator[str]:
    """A call of one of the client's own tools."""
    use = {"type": "tool_use", "id": f"toolu_{lot.getrandbits(96):024x}", "name": "Bash", "input": {"command": "ls"}}
    yield line("assistant", **said("assistant", [use]))
    yield line("user", **said("user", [{"type": "tool_result", "tool_use_id": use["id"], "content": "z" * 2000}]))
