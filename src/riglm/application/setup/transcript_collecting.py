"""Reads transcripts and collects what must be recorded, under the names that riglm gives to tools."""

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from riglm.application.knowledge.definition import NAME as INNER_VOICE
from riglm.application.setup.transcript_recording import TranscriptSession, is_imported, stable_id
from riglm.application.tool_lists.list_writer import CALL_TOOL, NAMES
from riglm.domain import jsonrpc
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ErrorKind, ToolInvocation
from riglm.domain.naming import SEPARATOR, Naming, prefixed
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    ImportSummary,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptSource,
    UnreadableLine,
    UserMessage,
)
from riglm.ports.analytics import TrainingSession

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_BROUGHT: Final = ("plugin_", "claude_ai_")
"""What Claude Code puts before the names of servers that a plugin, whose name follows, or an account brings."""


class ResolvedTool(NamedTuple):
    """A tool as riglm lists it, and its server; `behind_riglm` is True if the client called it through riglm."""

    tool: str
    upstream: str
    behind_riglm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyInstance:
    """The servers of one riglm, and what clients call it itself; `before` has servers that had other names then."""

    servers: tuple[str, ...]
    naming: Naming = "prefix"
    entries: frozenset[str] = frozenset({"riglm"})
    before: Mapping[str, str] = field(default_factory=dict)


class ToolNames:
    """Finds the tool that a client's name for it means, behind one of several riglms.

    Where no riglm has any servers, every server counts as one of several to come.
    """

    def __init__(self, fronts: Sequence[ProxyInstance], listed: Collection[str]) -> None:
        """`listed` are tool names that riglm has listed before; they resolve names that clients have altered."""
        self._fronts = [front for front in fronts if front.servers]
        self._listed = frozenset(listed)
        self._by_spelling: dict[str, str] = {}
        for name in sorted(self._listed):
            self._by_spelling.setdefault(_altered(name), name)

    @property
    def is_guessing(self) -> bool:
        """Whether no riglm has any servers yet."""
        return not self._fronts

    def find(self, name: str, server: str | None, separator: str) -> ResolvedTool | None:
        """Return the tool of this name in a transcript, or None if its server is not behind riglm.

        `server` is None if it is part of the name, before `separator`.
        """
        for front in self._fronts:
            found = self._behind(front, name, server, separator)
            if found is not None:
                return found
        if self._fronts:
            return None
        owner, tool = (server, name) if server is not None else _divided(name, separator)
        return ResolvedTool(self._as_listed(prefixed(owner, tool)), owner) if owner else None

    def behind(self, tool: str) -> ResolvedTool:
        """A tool by the name that a riglm lists it under."""
        upstream = next(filter(None, (self._server(front, tool) for front in self._fronts)), "")
        return ResolvedTool(self._as_listed(tool), upstream, behind_riglm=True)

    def _behind(self, front: ProxyInstance, name: str, server: str | None, separator: str) -> ResolvedTool | None:
        for _, tool in _readings(front.entries, name, server, separator):
            return ResolvedTool(self._as_listed(tool), self._server(front, tool), behind_riglm=True)
        for owner, tool in _readings({*front.servers, *front.before}, name, server, separator):
            now = front.before.get(owner, owner)
            return ResolvedTool(self._public(front, now, tool), now)
        return None

    def _server(self, front: ProxyInstance, tool: str) -> str:
        """Return the server of a tool behind riglm, empty if unknown."""
        if len(front.servers) == 1:
            return front.servers[0]
        return next((owner for owner, _ in _readings(front.servers, tool, None, SEPARATOR)), "")

    def _public(self, front: ProxyInstance, owner: str, tool: str) -> str:
        if len(front.servers) == 1:
            return self._as_listed(tool)
        whole = self._as_listed(prefixed(owner, tool))
        is_bare = front.naming == "none" or (front.naming == "on_collision" and whole not in self._listed)
        return self._as_listed(tool) if is_bare else whole

    def _as_listed(self, name: str) -> str:
        """The name as riglm lists it, if it has listed one that reads like this to a client."""
        return name if name in self._listed else self._by_spelling.get(_altered(name), name)


def server_of(name: str, server: str | None, separator: str) -> str:
    """Return the server of a tool of this name in a transcript, or None if it is ambiguous."""
    return server if server is not None else _divided(name, separator)[0] or name


def _readings(servers: Collection[str], name: str, server: str | None, separator: str) -> Iterator[tuple[str, str]]:
    """Which of these servers' tools a name may be, those of the longest names first."""
    if server is not None:
        yield from ((one, name) for one in servers if one == server or _altered(one) == server)
        return
    starts = [match.end() for match in re.finditer("_", name)] if name.startswith(_BROUGHT) else []
    for start in (0, *starts):
        for one in sorted(sorted(servers), key=len, reverse=True):
            said = _altered(one) + separator
            if name.startswith(said, start) and len(name) > start + len(said):
                yield one, name[start + len(said) :]


def _divided(name: str, separator: str) -> tuple[str, str]:
    server, _, tool = name.partition(separator)
    return (server, tool) if tool else ("", name)


def _altered(name: str) -> str:
    """The name as clients spell it that allow letters, digits, `_` and `-` alone."""
    return _ODD.sub("_", name)


_LEEWAY_SECONDS: Final = 2.0  # a client may write a line somewhat before or after the event
_MAX_DAMAGED: Final = 20
_OWN: Final = frozenset({*NAMES, INNER_VOICE, INNER_VOICE.replace(".", "_")})


class LiveCallMatcher:
    """Finds the record of a call by its tool and its time; each record is that of one call."""

    def __init__(self, history: Iterable[TrainingSession]) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)
        for session in history:
            if not is_imported(session.id):
                for call in session.calls:
                    insort(self._times[call.tool], call.timestamp)

    def take(self, names: Iterable[str], started: float, ended: float) -> bool:
        """Return True if a tool of one of these names was called in that time; the record is used up."""
        for name in dict.fromkeys(names):
            times = self._times.get(name)
            at = bisect_left(times, started - _LEEWAY_SECONDS) if times else 0
            if times and at < len(times) and times[at] <= ended + _LEEWAY_SECONDS:
                del times[at]
                return True
        return False


@dataclass(slots=True, kw_only=True)
class Collector:
    """Goes through the transcripts of one client after the other; has the conversations, and a summary by client.

    `names` are by client; `known` returns the ids of a conversation's calls that are stored. Calls are left out if they
    are older than `kept_since` (the store's retention) or `since`, or later than `until` (a wrong clock), all in
    seconds since the epoch. Without `hashes_arguments` nothing about arguments is recorded.
    """

    names: Mapping[str, ToolNames]
    live: LiveCallMatcher
    known: Callable[[UUID], frozenset[UUID]]
    hasher: KeyedHasher
    since: float
    kept_since: float
    until: float
    hashes_arguments: bool = True
    summaries: dict[str, ImportSummary] = field(default_factory=dict, init=False)
    _sessions: dict[UUID, TranscriptSession] = field(default_factory=dict, init=False)
    _seen: set[tuple[str, str]] = field(default_factory=set, init=False)

    @property
    def new(self) -> list[TranscriptSession]:
        """Return the conversations with calls to record."""
        return [each for each in self._sessions.values() if each.steps]

    @property
    def billed(self) -> list[TranscriptSession]:
        """Return the conversations with token counts."""
        return [each for each in self._sessions.values() if each.requests]

    def settle(self) -> None:
        """Count as forgotten what the store would not take."""
        for session in self.new:
            summary = self.summaries[session.source]
            summary.calls["new"] -= session.forgotten
            summary.calls["forgotten"] += session.forgotten
            summary.sessions -= session.forgotten == len(session.steps)

    def collect(self, source: TranscriptSource, files: Iterable[Path], advance: Advance) -> None:
        """Read the transcripts of a client; unreadable files are skipped and reported."""
        names = self.names[source.client]
        summary = ImportSummary(client=source.client, are_names_guessed=names.is_guessing)
        self.summaries[source.client] = summary
        for file in files:
            try:
                summary.size += file.stat().st_size
                summary.files += 1
                for event in source.read(file, advance):
                    self._take(event, file, source, summary)
            except OSError as error:
                summary.unreadable[str(file)] = error.strerror or str(error)
        sessions = [each for each in self._sessions.values() if each.source == source.client]
        self._merge_copies([each for each in sessions if each.requests])
        summary.sessions = sum(bool(each.steps) for each in sessions)
        summary.billed_sessions = sum(bool(each.requests) for each in sessions)
        summary.requests = sum(len(each.requests) for each in sessions)

    def _merge_copies(self, sessions: Iterable[TranscriptSession]) -> None:
        """Give all model requests of conversations that begin with the same one to the first: others resumed it.

        Conversations that ended too early lose them.
        """
        owners: dict[UUID, TranscriptSession] = {}
        for each in sessions:
            requests, each.requests = each.requests, {}
            if each.ended_at < max(self.since, self.kept_since):
                continue
            first = min(requests.values(), key=lambda request: (request.at, request.identity))
            each.usage_id = stable_id(self.hasher, "usage", each.source, first.identity)
            owner = owners.setdefault(each.usage_id, each)
            if owner is not each:
                owner.calls += each.calls
            for request in requests.values():
                owner.add_request(request)

    def _take(self, event: TranscriptEvent, file: Path, source: TranscriptSource, summary: ImportSummary) -> None:
        match event:
            case TranscriptCall():
                summary.calls["read"] += 1
                reason = self._take_call(event, source, summary)
                if reason:
                    summary.calls[reason] += 1
            case UserMessage() if event.at <= self.until:
                self._session(source, event.lane, event.at, event.at).add_context(event.text)
            case TranscriptRequest() if event.at <= self.until:
                self._session(source, event.lane, event.at, event.at).add_request(event)
            case UnreadableLine():
                summary.damaged_lines += 1
                if len(summary.damaged) < _MAX_DAMAGED:
                    summary.damaged.append((str(file), event.line, event.reason))

    def _session(self, source: TranscriptSource, lane: str, began: float, ended: float) -> TranscriptSession:
        id_ = stable_id(self.hasher, "conversation", source.client, lane)
        if id_ not in self._sessions:
            self._sessions[id_] = TranscriptSession(
                id=id_, source=source.client, client=source.introduces_itself, started_at=began, ended_at=ended
            )
        found = self._sessions[id_]
        found.ended_at = max(found.ended_at, ended)
        return found

    def _take_call(self, call: TranscriptCall, source: TranscriptSource, summary: ImportSummary) -> str:
        """Take a call if it is new; return the reason under which it counts, empty if that is its server."""
        identity = (source.client, call.identity)
        if call.is_copy or identity in self._seen:
            return "copied"
        self._seen.add(identity)
        if max(call.started, call.ended) > self.until:
            return "future"
        session = self._session(source, call.lane, call.started, call.ended)
        session.calls += 1
        session.directory = session.directory or call.directory
        tool = self._find_tool(call, source)
        if tool is None:
            summary.elsewhere[server_of(call.name, call.server, source.separator)] += 1
            return ""
        if tool.behind_riglm and tool.tool in _OWN:
            return "meta_tools"
        if session.known is None:
            session.known = self.known(session.id)
        id_ = stable_id(self.hasher, "call", *identity, tool.tool)  # by another name it is learned once more
        reason = "known" if id_ in session.known else self._obstacle(call, tool, source.separator)
        if reason:
            return reason
        summary.tools.add(tool.tool)
        summary.servers.add(tool.upstream)
        invocation = ToolInvocation(
            id=id_,
            session_id=session.id,
            tool=tool.tool,
            upstream=tool.upstream,
            timestamp=call.started,
            duration_ms=(call.ended - call.started) * 1e3,
            success=call.outcome is not CallOutcome.FAILED,
            sequence_number=session.calls,
            arguments_hash=self.hasher.arguments(call.arguments) if self.hashes_arguments else "",
            error_kind=ErrorKind.TOOL if call.outcome is CallOutcome.FAILED else None,
            found=DiscoveryMethod.LISTED,
        )
        session.steps.append((invocation, session.current_contexts))
        return "new"

    def _find_tool(self, call: TranscriptCall, source: TranscriptSource) -> ResolvedTool | None:
        """Return the tool that was called, also by `call_tool`; None if its server is not behind riglm."""
        names = self.names[source.client]
        tool = names.find(call.name, call.server, source.separator)
        if tool is not None and tool.behind_riglm and tool.tool == CALL_TOOL:
            named = jsonrpc.text(jsonrpc.members(call.arguments).get("name"))
            return None if named is None else names.behind(named)
        return tool

    def _obstacle(self, call: TranscriptCall, tool: ResolvedTool, separator: str) -> str:
        """Return why a call is not recorded, or nothing."""
        if call.outcome is CallOutcome.NOT_RUN:
            return "not_run"
        if call.started < self.kept_since:
            return "expired"
        if call.started < self.since:
            return "too_old"
        bare = call.name if call.server is not None else call.name.partition(separator)[2]
        names = [tool.tool, bare] if bare else [tool.tool]  # with a single server riglm used no prefix
        return "recorded_live" if self.live.take(names, call.started, call.ended) else ""
