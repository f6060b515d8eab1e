"""Gemini CLI's transcripts: `tmp/<project>/chats/session-*.jsonl`, those of its agents in folders next to them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import (
    encode_json,
    events,
    moment,
    take_safely,
    token_counts,
    user_message,
)
from riglm.domain.token_usage import RequestTokens
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptSource,  # fmt: skip
)

_PREFIX: Final = "mcp_"
_OUTCOMES: Final = {"success": CallOutcome.DONE, "error": CallOutcome.FAILED, "cancelled": CallOutcome.NOT_RUN}


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a file; what it has last of a message counts."""
    lane, messages = "", dict[str, dict[str, Any]]()

    def take(record: dict[str, Any]) -> tuple[()]:
        nonlocal lane
        if record.get("id"):
            messages[record["id"]] = record
        else:
            lane = lane or record.get("sessionId") or ""
        return ()

    yield from events(file, advance, take)
    for record in messages.values():
        yield from take_safely(0, encode_json(record), partial(_record_events, lane or file.stem))


def _record_events(lane: str, record: dict[str, Any]) -> list[TranscriptEvent]:
    at = moment(record["timestamp"])
    if record.get("type") == "user":
        return user_message(lane, at, record.get("content"))
    calls = []
    for call in record.get("toolCalls") or ():
        name, status = call.get("name", ""), call.get("status")
        if name.startswith(_PREFIX) and status in _OUTCOMES:
            ended = moment(call["timestamp"])
            calls.append(
                TranscriptCall(
                    lane=lane,
                    identity=f"{lane}/{call.get('id')}",
                    name=name.removeprefix(_PREFIX),
                    arguments=encode_json(call.get("args")),
                    started=ended,
                    ended=ended,
                    outcome=_OUTCOMES[status],
                )
            )
    # `input` includes what was read from the cache, `output` no thoughts.
    counts = token_counts(record.get("tokens"), "input", "tool", "cached", "output", "thoughts")
    prompt, cached, output = counts[0] + counts[1], counts[2], counts[3] + counts[4]
    tokens = RequestTokens(uncached=max(0, prompt - cached), cached=min(cached, prompt), written=0, output=output)
    request = TranscriptRequest(lane=lane, identity=f"{lane}/{record['id']}", at=at, tokens=tokens)
    return [request, *calls] if tokens.prompt else [*calls]


GEMINI: Final = TranscriptSource(
    client="gemini",
    introduces_itself="gemini-cli-mcp-client",
    separator="_",
    pattern="*.jsonl",
    places=lambda home, environment: Path(environment.get("GEMINI_CLI_HOME") or home).glob(".gemini/tmp/*/chats"),
    is_head=lambda head: b'"projectHash"' in head,
    read=_read_file,
)
"""Gemini CLI since its transcripts are JSON lines."""
