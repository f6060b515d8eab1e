"""Reads transcripts and collects what must be recorded."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from riglm.application.knowledge.definition import NAME as INNER_VOICE
from riglm.application.tool_lists.list_writer import CALL_TOOL, NAMES
from riglm.application.transcript_import.naming import ResolvedTool, ToolNames, server_of
from riglm.application.transcript_import.transcript_sessions import (
    ImportedCall,
    StableIds,
    TranscriptSession,
    is_imported,
)
from riglm.domain import jsonrpc
from riglm.domain.hashing import KeyedHasher
from riglm.domain.transcripts import Account
from riglm.ports.analytics import TrainingSession
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptsPort,
    UnreadableLine,
    UserMessage,
)

_LEEWAY_SECONDS: Final = 2.0  # a client may write a line somewhat before or after the event


class LiveCallMatcher:
    """Finds the record of a call by its tool and its time; each record is that of one call."""

    def __init__(self, history: Iterable[TrainingSession]) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)
        for session in history:
            if not is_imported(session.id):
                for call in session.calls:
                    insort(self._times[call.tool], call.timestamp)

    def take(self, names: Iterable[str], started: float, ended: float) -> bool:
        """Whether a tool of one of these names was called in that time; that record is that of no other call then."""
        for name in dict.fromkeys(names):
            times = self._times.get(name)
            at = bisect_left(times, started - _LEEWAY_SECONDS) if times else 0
            if times and at < len(times) and times[at] <= ended + _LEEWAY_SECONDS:
                del times[at]
                return True
        return False


_MAX_DAMAGED: Final = 20
_OWN: Final = frozenset({*NAMES, INNER_VOICE, INNER_VOICE.replace(".", "_")})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportContext:
    """What the store knows already, and how calls are named and hashed.

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


@dataclass(slots=True)
class Collection:
    """The conversations found so far, and the account of each client."""

    conversations: dict[UUID, TranscriptSession] = field(default_factory=dict)
    accounts: list[Account] = field(default_factory=list)

    @property
    def new(self) -> list[TranscriptSession]:
        """Return the conversations with calls to record."""
        return [each for each in self.conversations.values() if each.steps]

    @property
    def billed(self) -> list[TranscriptSession]:
        """Return the conversations with token counts."""
        return [each for each in self.conversations.values() if each.requests]

    def settle(self) -> None:
        """Take out of the accounts what the store would not take."""
        accounts = {account.client: account for account in self.accounts}
        for conversation in self.new:
            account = accounts[conversation.source]
            account.new -= conversation.forgotten
            account.forgotten += conversation.forgotten
            account.sessions -= conversation.forgotten == len(conversation.steps)


class Collector:
    """Goes through the transcripts of one client after the other."""

    def __init__(self, background: ImportContext) -> None:
        self.found = Collection()
        self._background = background
        self._identities = StableIds(background.hasher)
        self._seen: set[tuple[str, str]] = set()

    def collect(self, source: TranscriptsPort, files: Iterable[Path], advance: Callable[[int], None]) -> None:
        """Read the transcripts of a client; unreadable files are skipped and reported."""
        reader = _Reader(source, self._background, self._identities, self._seen, self.found.conversations)
        self.found.accounts.append(reader.account)
        for file in files:
            try:
                reader.account.size += file.stat().st_size
                reader.account.files += 1
                for happening in source.read(file, advance):
                    reader.take(happening, file)
            except OSError as error:
                reader.account.unreadable[str(file)] = error.strerror or str(error)
        theirs = [each for each in self.found.conversations.values() if each.source == source.client]
        self._merge_copies([each for each in theirs if each.requests])
        reader.account.sessions = sum(bool(each.steps) for each in theirs)
        reader.account.billed_sessions = sum(bool(each.requests) for each in theirs)
        reader.account.requests = sum(len(each.requests) for each in theirs)

    def _merge_copies(self, conversations: Iterable[TranscriptSession]) -> None:
        """Give all model requests of conversations that begin with the same one to the first: others resumed it.

        Conversations that ended too early lose them.
        """
        owners: dict[UUID, TranscriptSession] = {}
        for each in conversations:
            requests, each.requests = each.requests, {}
            if each.ended_at < max(self._background.since, self._background.kept_since):
                continue
            first = min(requests.values(), key=lambda request: (request.at, request.identity))
            each.usage_id = self._identities.of_usage(each.source, first.identity)
            owner = owners.setdefault(each.usage_id, each)
            if owner is not each:
                owner.calls += each.calls
            for request in requests.values():
                owner.add_request(request)


class _Reader:
    """Takes what happened in the conversations of one client."""

    def __init__(
        self,
        source: TranscriptsPort,
        background: ImportContext,
        identities: StableIds,
        seen: set[tuple[str, str]],
        conversations: dict[UUID, TranscriptSession],
    ) -> None:
        self.account = Account(client=source.client, are_names_guessed=background.names[source.client].is_guessing)
        self._source = source
        self._background = background
        self._names = background.names[source.client]
        self._identities = identities
        self._seen = seen
        self._conversations = conversations

    def take(self, happening: TranscriptEvent, file: Path) -> None:
        """Add the events of a file."""
        match happening:
            case UserMessage() if happening.at <= self._background.until:
                self._conversation(happening.lane, happening.at, happening.at).hear(happening.text)
            case TranscriptCall():
                self._take_call(happening)
            case TranscriptRequest() if happening.at <= self._background.until:
                self._conversation(happening.lane, happening.at, happening.at).add_request(happening)
            case UnreadableLine():
                self.account.damaged_lines += 1
                if len(self.account.damaged) < _MAX_DAMAGED:
                    self.account.damaged.append((str(file), happening.line, happening.reason))

    def _conversation(self, lane: str, began: float, ended: float) -> TranscriptSession:
        id_ = self._identities.of_conversation(self._source.client, lane)
        found = self._conversations.get(id_)
        if found is None:
            found = self._conversations[id_] = TranscriptSession(
                id=id_,
                source=self._source.client,
                client=self._source.introduces_itself,
                started_at=began,
                ended_at=ended,
            )
        found.ended_at = max(found.ended_at, ended)
        return found

    def _take_call(self, call: TranscriptCall) -> None:
        account = self.account
        account.read += 1
        if call.is_copy or (self._source.client, call.identity) in self._seen:
            account.copied += 1
            return
        self._seen.add((self._source.client, call.identity))
        if max(call.started, call.ended) > self._background.until:
            account.future += 1
            return
        conversation = self._conversation(call.lane, call.started, call.ended)
        conversation.calls += 1
        conversation.directory = conversation.directory or call.directory
        tool = self._tool(call)
        if tool is None:
            return
        if conversation.known is None:
            conversation.known = self._background.known(conversation.id)
        id_ = self._identities.of_call(self._source.client, call.identity, tool.tool)
        if id_ in conversation.known:
            account.known += 1
        elif self._is_new(call, tool):
            account.new += 1
            account.tools.add(tool.tool)
            account.servers.add(tool.upstream)
            conversation.steps.append(self._step(id_, call, tool, conversation))

    def _tool(self, call: TranscriptCall) -> ResolvedTool | None:
        """Return the tool that was called, if its server is behind riglm and it is no meta-tool."""
        separator = self._source.separator
        tool = self._names.find(call.name, call.server, separator)
        if tool is not None and tool.behind_riglm and tool.tool == CALL_TOOL:
            named = jsonrpc.text(jsonrpc.members(call.arguments).get("name"))
            tool = None if named is None else self._names.behind(named)
        if tool is None:
            server = server_of(call.name, call.server, separator)
            self.account.elsewhere[server] = self.account.elsewhere.get(server, 0) + 1
        elif tool.behind_riglm and tool.tool in _OWN:
            self.account.own += 1
            return None
        return tool

    def _is_new(self, call: TranscriptCall, tool: ResolvedTool) -> bool:
        account, background = self.account, self._background
        if call.ending is CallOutcome.NOT_RUN:
            account.not_run += 1
        elif call.started < background.kept_since:
            account.expired += 1
        elif call.started < background.since:
            account.too_old += 1
        elif background.live.take(_name_patterns(call, tool, self._source.separator), call.started, call.ended):
            account.live += 1
        else:
            return True
        return False

    def _step(
        self, id_: UUID, call: TranscriptCall, tool: ResolvedTool, conversation: TranscriptSession
    ) -> ImportedCall:
        hasher = self._background.hasher
        return ImportedCall(
            id=id_,
            tool=tool.tool,
            upstream=tool.upstream,
            arguments_hash=hasher.arguments(call.arguments) if self._background.hashes_arguments else "",
            started=call.started,
            seconds=call.ended - call.started,
            failed=call.ending is CallOutcome.FAILED,
            number=conversation.calls,
            asked=conversation.asked,
        )


def _name_patterns(call: TranscriptCall, tool: ResolvedTool, separator: str) -> Sequence[str]:
    """Return the names that riglm may have used for the tool: with a single server it has no prefix."""
    bare = call.name if call.server is not None else call.name.partition(separator)[2]
    return [tool.tool, bare] if bare else [tool.tool]
