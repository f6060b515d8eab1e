"""Implementation of the meta-tools."""

import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.knowledge.definition import NAME as INNER_VOICE
from riglm.application.knowledge.definition import ErrorCode, RetrievalError, refusal
from riglm.application.tool_lists.list_writer import (
    CALL_TOOL,
    INDEX_STATUS,
    MARK_TOOL,
    SEARCH,
    SET_CONTEXT,
    InvalidArgumentsError,
    MetaToolResult,
    context_message,
    how_to_call,
    read_argument,
    read_arguments,
    read_object,
    refused,
    search_message,
    text_result,
    unknown_tool_message,
)
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.exposure import CONTEXT_SURFACE, SEARCH_SURFACE, Surface
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import SURE
from riglm.domain.prediction import ToolMatch
from riglm.domain.session import Session
from riglm.domain.session_state import MAX_QUERY_LENGTH
from riglm.domain.tool import PermittedTools

MAX_NAMED: Final = 100
"""Maximum number of listed tools that a result names."""

_WORTH_SENDING: Final = 0.3
"""Minimum probability of a tool that is sent without being asked for: less likely ones distract the model."""

_CLOSE: Final = 0.2
_MAX_NEAR: Final = 5
_WORTH_NAMING: Final = 0.03
"""Minimum probability of a listed match that a result names."""

_DISABLED: Final = "the tool is disabled: SURR_ENABLE_INNER_VOICE=1 or knowledge.enabled enables it"
_log: Final = logging.getLogger("riglm.filtering")


class KnowledgeTool(Protocol):
    """Answers questions from what is known."""

    @abstractmethod
    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """Return the raw tool result for raw arguments; `principal` is a keyed hash."""


class MetaTools:
    """Runs set_context, search_available_tools, call_tool, mark_tool and index_status, and asks the inner voice."""

    def __init__(
        self, filtering: FilteringService, voice: KnowledgeTool | None = None, names: Sequence[str] = (INNER_VOICE,)
    ) -> None:
        """They go by the same decisions as the lists.

        Without a `voice` it is disabled. `names` are all that it is called by, first the one that it is listed as:
        a server's own tool goes before the other ones, and before a voice that is disabled.
        """
        self._filtering = filtering
        self._voice = voice
        self._voice_names = tuple(names)
        self._called_voice = () if voice is None else self._voice_names[:1]
        self.names: Final = frozenset((*names, SET_CONTEXT, SEARCH, CALL_TOOL, MARK_TOOL, INDEX_STATUS))
        """All names that calls of meta-tools may have."""
        self._runs: Final[Mapping[str, Callable[[Session, dict[str, Raw]], Awaitable[MetaToolResult]]]] = {
            SET_CONTEXT: self._set_context,
            SEARCH: self._search,
            CALL_TOOL: self._call_tool,
            MARK_TOOL: self._mark_tool,
            INDEX_STATUS: self._index_status,
        }

    @property
    def voice_name(self) -> str:
        """The name that the inner voice is listed as."""
        return self._voice_names[0]

    def owns(self, session: Session, name: str) -> bool:
        """Whether a call of this name in a session is for riglm itself."""
        if name in self._voice_names:
            if self.is_denied(name):
                return False
            return name in self._called_voice or not self._has_server_tool(session, name)
        if name not in self._runs:
            return False
        if name in self._filtering.offered(session):
            return True
        return name in self._filtering.answered(session) and not self._has_server_tool(session, name)

    def is_denied(self, name: str) -> bool:
        """True if the denylist contains a meta-tool, by any of its names."""
        names = self._voice_names if name in self._voice_names else (name,)
        return any(map(self._filtering.denies_by_name, names))

    def withholds(self, session: Session, name: str) -> bool:
        """Whether a name means a tool of riglm's that is denied, and none of a server's: no server gets the call."""
        return name in self._voice_names and self.is_denied(name) and not self._has_server_tool(session, name)

    def needs_catalog(self, session: Session, name: str, arguments: bytes) -> bool:
        """True if a call needs the catalog as it is now; call_tool needs it for a name that the last one lacks."""
        if name in self._called_voice:
            return False
        if name != CALL_TOOL or self._filtering.state(session).view is None:
            return True
        return self.is_unknown(session, [jsonrpc.text(jsonrpc.members(arguments).get("name", b"")) or ""])

    def is_unknown(self, session: Session, names: Iterable[str]) -> bool:
        """True if the catalog has no tool of one of these names that is permitted in the session."""
        view = self._filtering.view(session)
        return view is not None and not (view.catalog.missing or any(map(view.allows, names)))

    def is_confidential(self, name: str) -> bool:
        """Whether the arguments of calls of this name must not be recorded."""
        return name in self._voice_names

    async def run(self, session: Session, name: str, arguments: bytes) -> MetaToolResult:
        """Run a meta-tool with its raw arguments; failures are returned as error results."""
        if name in self._voice_names:
            return MetaToolResult(result=await self._retrieved(session, arguments))
        try:
            return await self._runs[name](session, read_arguments(name, arguments))
        except InvalidArgumentsError as error:
            return refused(str(error))
        except Exception:  # noqa: BLE001  # fails open: the client's tools work as before
            _log.exception("%s failed", name)
            return refused(f"{name} failed inside riglm; see its log. Listed tools work as before.")

    async def _retrieved(self, session: Session, arguments: bytes) -> bytes:
        if self._voice is None:
            return refusal(RetrievalError(ErrorCode.FEATURE_DISABLED, _DISABLED))
        return await self._voice.retrieve(session.principal, arguments)

    def _has_server_tool(self, session: Session, name: str) -> bool:
        """True if a server is known to have a tool of this name."""
        view = self._filtering.view(session)
        return view is not None and name in view.catalog.name_set

    def _own(self, session: Session) -> tuple[str, ...]:
        """Return the names of the meta-tools in the list of a session."""
        return (*self._filtering.offered(session), *(name for name in self._called_voice if not self.is_denied(name)))

    async def _set_context(self, session: Session, given: dict[str, Raw]) -> MetaToolResult:
        text = read_argument(SET_CONTEXT, given, "context", str)
        changed = await self._filtering.set_context(session, text)
        view = self._filtering.view(session)
        if view is None:
            return refused("No tools are known yet. Try again after tools/list.")
        state = self._filtering.state(session)
        confidence = self._filtering.predicting.context_confidence(session, state)
        needed = self._filtering.follow_up(session)
        hits, _ = await self._found(session, view, text)
        for hit in hits:
            needed[hit.name] = max(needed.get(hit.name, 0.0), hit.probability)
        listed = self._listed(session, view)
        known = state.sent.union(listed)
        sent = self._sendable(session, {name: share for name, share in needed.items() if name not in known})
        state.suggest(sent)
        state.sent.update(sent)
        message = context_message(
            has_tools=bool(sent),
            changed=changed,
            offered=self._own(session),
            has_meaning=self._filtering.predicting.is_ready,
            is_whole=listed == view.candidate_set,
        )
        fields: dict[str, Any] = {"message": message, "confidence": round(confidence, 3)}
        named = _worth_naming(hits, known)
        if changed:
            named = [name for name in view.candidates if name in listed][:MAX_NAMED]
        if named:
            fields["listed"] = named
        fields["tools"] = [view.catalog.by_name[name].raw for name in sent]
        return MetaToolResult(
            result=text_result(fields), list_changed=changed, selection=self._shown(view, sent, CONTEXT_SURFACE)
        )

    def _listed(self, session: Session, view: PermittedTools) -> frozenset[str]:
        """Return the names in the list that the client has, or gets when it lists again."""
        state = self._filtering.state(session)
        if self._filtering.surface(session) is Surface.DYNAMIC and state.plan is not None:
            return (state.plan.listed | view.kept) & view.candidate_set - frozenset(self._own(session))
        return self._filtering.listed(session)

    def _sendable(self, session: Session, probabilities: dict[str, float]) -> list[str]:
        """Return the tools whose definition pays in a result and that can be called, the likeliest first."""
        return [name for name in self._filtering.sendable(session, probabilities) if self._can_be_called(session, name)]

    def _can_be_called(self, session: Session, name: str) -> bool:
        """Return True if there is a way to call an upstream tool: for the name of a meta-tool, call_tool alone."""
        own = self._own(session)
        return name not in own or CALL_TOOL in own

    async def _search(self, session: Session, given: dict[str, Raw]) -> MetaToolResult:
        return await self._find(session, read_argument(SEARCH, given, "query", str))

    async def suggest(self, session: Session, name: str) -> MetaToolResult:
        """Return an error result for an unknown tool, with the tools that its name matches."""
        try:
            return await self._find(session, name, unknown=name)
        except Exception:  # noqa: BLE001  # the call fails in any case
            _log.exception("no tools were found for an unknown name")
            return refused(f"Unknown tool: {name}")

    async def _find(self, session: Session, query: str, *, unknown: str = "") -> MetaToolResult:
        """Return the tools that a query matches; as an error result if it is an `unknown` name."""
        view = self._filtering.view(session)
        if view is None:
            return refused("No tools are known yet. Try again after tools/list.")
        hits, near = await self._found(session, view, query)
        state = self._filtering.state(session)
        known = state.sent.union(self._listed(session, view))
        new = {hit.name: hit.probability for hit in hits if hit.name not in known}
        found = self._sendable(session, new)
        if not found and hits and hits[0].name in new:
            found = [hits[0].name]
        best = hits[0].name if hits else ""
        named = _worth_naming(hits, known)
        follow_up = self._filtering.follow_up(session, best)
        often_next = self._sendable(
            session,
            {
                name: share
                for name, share in follow_up.items()
                if share >= _WORTH_SENDING and name not in known and name not in found
            },
        )
        state.found(query[:MAX_QUERY_LENGTH], [*found, *named])
        state.suggest(often_next)
        state.sent.update(found, often_next)
        why = {hit.name: hit.why for hit in hits}
        how = how_to_call(self._own(session))
        has_meaning = self._filtering.predicting.is_ready
        is_close = bool(hits) and hits[0].probability >= _CLOSE
        message = search_message(found=bool(hits), is_close=is_close, has_meaning=has_meaning, how=how)
        fields: dict[str, Any] = {
            "message": unknown_tool_message(unknown, [*found, *named]) if unknown else message,
            "tools": [
                Raw(jsonrpc.with_member(view.catalog.by_name[name].raw, ("why",), jsonrpc.encode(why[name])))
                for name in found
            ],
        }
        if named:
            fields["already_available"] = named
        if often_next:
            fields["often_used_next"] = [view.catalog.by_name[name].raw for name in often_next]
        other = [hit.name for hit in hits if hit.name not in known and hit.name not in found]
        near = [*other, *near][:_MAX_NEAR]
        if near and not (hits and hits[0].probability >= SURE):
            fields["near"] = near
        return MetaToolResult(
            result=text_result(fields, is_error=bool(unknown)),
            selection=self._shown(view, [*found, *often_next], SEARCH_SURFACE),
        )

    async def _found(self, session: Session, view: PermittedTools, text: str) -> tuple[list[ToolMatch], list[str]]:
        """Return the permitted tools that a text matches, and the names of near misses."""

        def may_be_found(name: str) -> bool:
            return name in view.candidate_set and self._can_be_called(session, name)

        found = await self._filtering.search(session, text, self._filtering.rules.answer_tools, may_be_found)
        hits = [] if found.abstained else [hit for hit in found.hits if may_be_found(hit.name)]
        return hits, [name for name in found.near if may_be_found(name)]

    def _shown(self, view: PermittedTools, names: Sequence[str], surface: str) -> ListSelection:
        """Return the record of the tools in a result."""
        tokens = view.tokens_of(frozenset(names))
        return ListSelection(
            tuple(names), reason="requested", mode=self._filtering.rules.mode, surface=surface, tokens_shown=tokens
        )

    async def _call_tool(self, session: Session, given: dict[str, Raw]) -> MetaToolResult:
        name = read_argument(CALL_TOOL, given, "name", str)
        arguments = read_object(CALL_TOOL, given, "arguments")
        view = self._filtering.view(session)
        if view is None or not view.allows(name):
            if name in self._voice_names and not self.is_denied(name):
                return refused(f"{name} is a meta-tool of riglm: call it directly.")
            if name in self._runs and name in self._own(session):
                return await self._runs[name](session, read_arguments(name, arguments))
        return MetaToolResult(forward=(bytes(given["name"]), arguments))

    async def _mark_tool(self, session: Session, given: dict[str, Raw]) -> MetaToolResult:
        name = read_argument(MARK_TOOL, given, "name", str)
        relevant = read_argument(MARK_TOOL, given, "relevant", bool)
        view = self._filtering.view(session)
        if view is None or not view.allows(name):
            return refused(f"Unknown tool: {name}")
        state = self._filtering.state(session)
        if state.context is None:
            return refused(f"A tool is marked for a context: say first by {SET_CONTEXT} what you are about.")
        self._filtering.predicting.marked(session, state, name, relevant=relevant)
        words = "of use" if relevant else "of no use"
        return MetaToolResult(result=text_result({"message": f"Noted: {name} is {words} in this context."}))

    async def _index_status(self, session: Session, given: dict[str, Raw]) -> MetaToolResult:
        state, view = self._filtering.state(session), self._filtering.view(session)
        session_fields: dict[str, Any] = {
            "surface": str(self._filtering.surface(session)),
            "mode": self._filtering.rules.mode,
            "available": 0 if view is None else len(view.candidates) + len(view.never_shown),
            "listed": len(self._filtering.listed(session)),
            "has_context": state.context is not None,
            "context_confidence": round(self._filtering.predicting.context_confidence(session, state), 3),
            "list_changes": state.changes,
        }
        fields = {**self._filtering.predicting.status(), "session": session_fields}
        self._filtering.predicting.begin()
        return MetaToolResult(result=text_result(fields))


def _worth_naming(hits: Sequence[ToolMatch], known: Collection[str]) -> list[str]:
    """Return the known tools among the matches: the best match, and others that are likely enough."""
    return [hit.name for hit in hits if hit.name in known and (hit is hits[0] or hit.probability >= _WORTH_NAMING)]


def create_meta_tools(filtering: FilteringService, voice: KnowledgeTool | None, alias: str | None) -> MetaTools:
    """Return the meta-tools; `voice` is listed as `alias`, by default as `inner_voice.retrieve`."""
    return MetaTools(filtering, voice, (INNER_VOICE,) if alias in (None, INNER_VOICE) else (alias, INNER_VOICE))
