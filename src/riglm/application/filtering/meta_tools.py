"""What riglm's own tools do."""

import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from riglm.application.filtering.service import FilteringService
from riglm.application.knowledge.definition import NAME as INNER_VOICE
from riglm.application.knowledge.errors import Code, Unanswered, refusal
from riglm.application.lists.meta_answers import (
    MetaAnswer,
    Misused,
    array,
    context_message,
    flag_given,
    members_given,
    object_given,
    refused,
    search_message,
    structured,
    text_given,
    way_to_call,
)
from riglm.application.lists.meta_tool_definitions import CALL_TOOL, INDEX_STATUS, MARK_TOOL, SEARCH, SET_CONTEXT
from riglm.application.lists.predicting import Hit
from riglm.application.lists.shown import Selection
from riglm.domain import jsonrpc
from riglm.domain.exposure import CONTEXT_SURFACE, SEARCH_SURFACE
from riglm.domain.jsonrpc import Raw
from riglm.domain.ranking import UNSURE
from riglm.domain.session import Session
from riglm.domain.session_state import LONGEST_QUERY
from riglm.domain.surface import Surface
from riglm.domain.view import View

MOST_NAMED: Final = 100
"""A list longer than this is not spelt out in an answer."""

_SWITCHED_OFF: Final = "the tool is switched off: SURR_ENABLE_INNER_VOICE=1 or knowledge.enabled switches it on"
_log: Final = logging.getLogger("riglm.filtering")


class Voice(Protocol):
    """Answers questions from what is known."""

    @abstractmethod
    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """The raw tool result for raw arguments, asked by a principal, told by its keyed hash."""


class MetaTools:
    """Runs set_context, search_available_tools, call_tool, mark_tool and index_status, and asks the inner voice."""

    def __init__(
        self, filtering: FilteringService, voice: Voice | None = None, names: Sequence[str] = (INNER_VOICE,)
    ) -> None:
        """They go by the same decisions as the lists.

        Without a `voice` it is switched off. `names` are all that it is called by, first the one that it is listed as:
        a server's own tool goes before the other ones, and before a voice that is switched off.
        """
        self._filtering = filtering
        self._voice = voice
        self._voice_names = tuple(names)
        self._called_voice = () if voice is None else self._voice_names[:1]
        self._runs: Final[Mapping[str, Callable[[Session, dict[str, Raw]], Awaitable[MetaAnswer]]]] = {
            SET_CONTEXT: self._set_context,
            SEARCH: self._search,
            CALL_TOOL: self._call_tool,
            MARK_TOOL: self._mark_tool,
            INDEX_STATUS: self._index_status,
        }

    def owns(self, session: Session, name: str) -> bool:
        """Whether a call of this name in a session is for riglm itself."""
        if name in self._voice_names:
            if self.is_denied(name):
                return False
            return name in self._called_voice or not self._has_server_tool(session, name)
        return name in self._runs and name in self._filtering.offered(session)

    def is_denied(self, name: str) -> bool:
        """Whether the deny list means one of riglm's own tools, by whichever of its names."""
        names = self._voice_names if name in self._voice_names else (name,)
        return any(map(self._filtering.denies_by_name, names))

    def withholds(self, session: Session, name: str) -> bool:
        """Whether a name means a tool of riglm's that is denied, and none of a server's: no server gets the call."""
        return name in self._voice_names and self.is_denied(name) and not self._has_server_tool(session, name)

    def is_about_lists(self, name: str) -> bool:
        """Whether a tool needs to know the session's list, or whether it has the name at all does."""
        return name not in self._called_voice

    def is_confidential(self, name: str) -> bool:
        """Whether what a tool is asked is nowhere kept as it is."""
        return name in self._voice_names

    async def run(self, session: Session, name: str, arguments: bytes) -> MetaAnswer:
        """Run one of them with its raw arguments; whatever goes wrong is said in the result."""
        if name in self._voice_names:
            return MetaAnswer(result=await self._retrieved(session, arguments))
        try:
            return await self._runs[name](session, members_given(name, arguments))
        except Misused as error:
            return refused(str(error))
        except Exception:  # noqa: BLE001  # fails open: the client's tools work as before
            _log.exception("%s failed", name)
            return refused(f"{name} failed inside riglm, and its log says why. Tools can still be called by name.")

    async def _retrieved(self, session: Session, arguments: bytes) -> bytes:
        if self._voice is None:
            return refusal(Unanswered(Code.FEATURE_DISABLED, _SWITCHED_OFF))
        return await self._voice.retrieve(session.principal, arguments)

    def _has_server_tool(self, session: Session, name: str) -> bool:
        """Whether a server has a tool of this name, as far as is known."""
        view = self._filtering.view(session)
        return view is not None and name in view.catalogue.name_set

    def _own(self, session: Session) -> tuple[str, ...]:
        """The names of riglm's own tools in the list of a session."""
        return (*self._filtering.offered(session), *(name for name in self._called_voice if not self.is_denied(name)))

    async def _set_context(self, session: Session, given: dict[str, Raw]) -> MetaAnswer:
        text = text_given(SET_CONTEXT, given, "context")
        changed = await self._filtering.set_context(session, text)
        view = self._filtering.view(session)
        if view is None:
            return refused("No tools are known yet: ask again once they were listed.")
        state = self._filtering.state(session)
        confidence = self._filtering.predicting.context_confidence(session, state)
        dynamic = self._filtering.surface(session) is Surface.DYNAMIC
        listed = self._listed(session, view, dynamic=dynamic)
        best = await self._likeliest(session, view, text, confidence)
        state.suggest(best)
        way = way_to_call(self._own(session), best)
        fields: dict[str, bytes] = {
            "message": jsonrpc.encode(context_message(len(best), len(listed), way, changed=changed)),
            "confidence": jsonrpc.encode(round(confidence, 3)),
            "listed_count": jsonrpc.encode(len(listed)),
        }
        if len(listed) <= MOST_NAMED:
            fields["listed"] = jsonrpc.encode(listed)
        fields["tools"] = array(bytes(view.catalogue.by_name[name].raw) for name in best)
        shown = self._shown(view, best, CONTEXT_SURFACE)
        if dynamic:
            fields["list_changed"] = jsonrpc.encode(changed)
        return MetaAnswer(result=structured(fields), list_changed=changed, selection=shown)

    async def _likeliest(self, session: Session, view: View, text: str, confidence: float) -> list[str]:
        """The tools for a context: by prediction, or by a search where little was learned of such contexts."""
        if not confidence >= UNSURE:
            hits, _ = await self._found(session, view, text)
            if hits:
                return [hit.name for hit in hits]
        best = self._filtering.best(session, self._filtering.rules.answer_tools)
        return [name for name in best if self._can_be_called(session, name)]

    def _listed(self, session: Session, view: View, *, dynamic: bool) -> list[str]:
        """The names in the list that the client has, or that it gets when it asks again."""
        state = self._filtering.state(session)
        if dynamic and state.choice is not None:
            names = (state.choice.chosen | view.kept) & view.candidate_set
        else:
            names = self._filtering.listed(session) or view.candidate_set
        own = self._own(session)
        return [name for name in view.candidates if name in names and name not in own]

    def _can_be_called(self, session: Session, name: str) -> bool:
        """Whether there is a way to an upstream's tool: where riglm's own has the name, that is call_tool alone."""
        own = self._own(session)
        return name not in own or CALL_TOOL in own

    async def _search(self, session: Session, given: dict[str, Raw]) -> MetaAnswer:
        query = text_given(SEARCH, given, "query")
        view = self._filtering.view(session)
        if view is None:
            return refused("No tools are known yet: ask again once they were listed.")
        hits, near = await self._found(session, view, query)
        listed = self._filtering.listed(session)
        tools = []
        for hit in hits:
            raw = bytes(view.catalogue.by_name[hit.name].raw)
            raw = jsonrpc.with_member(raw, ("why",), jsonrpc.encode(hit.why))
            tools.append(jsonrpc.with_member(raw, ("listed",), jsonrpc.encode(hit.name in listed)))
        names = [hit.name for hit in hits]
        way = way_to_call(self._own(session), names)
        self._filtering.state(session).found(query[:LONGEST_QUERY], names)
        fields = {
            "message": jsonrpc.encode(search_message(len(hits), near, way)),
            "tools": array(tools),
            "near": jsonrpc.encode(near),
        }
        return MetaAnswer(result=structured(fields), selection=self._shown(view, names, SEARCH_SURFACE))

    async def _found(self, session: Session, view: View, text: str) -> tuple[list[Hit], list[str]]:
        """The tools that a text finds among those that may be known of, and the names of near misses."""

        def may_be_found(name: str) -> bool:
            return name in view.candidate_set and self._can_be_called(session, name)

        found = await self._filtering.predicting.search(session, text, self._filtering.rules.answer_tools, may_be_found)
        hits = [] if found.abstained else [hit for hit in found.hits if may_be_found(hit.name)]
        return hits, [name for name in found.near if may_be_found(name)]

    def _shown(self, view: View, names: Sequence[str], surface: str) -> Selection:
        """The record of the tools that an answer shows."""
        tokens = view.tokens_of(frozenset(names))
        return Selection(
            tuple(names), reason="asked for", mode=self._filtering.rules.mode, surface=surface, tokens_shown=tokens
        )

    async def _call_tool(self, session: Session, given: dict[str, Raw]) -> MetaAnswer:
        name = text_given(CALL_TOOL, given, "name")
        arguments = object_given(CALL_TOOL, given, "arguments")
        view = self._filtering.view(session)
        is_own = name in self._own(session) or (name in self._voice_names and not self.is_denied(name))
        if is_own and (view is None or not view.allows(name)):
            return refused(f"{name} is one of riglm's own tools: call it directly.")
        return MetaAnswer(forward=(bytes(given["name"]), arguments))

    async def _mark_tool(self, session: Session, given: dict[str, Raw]) -> MetaAnswer:
        name = text_given(MARK_TOOL, given, "name")
        relevant = flag_given(MARK_TOOL, given, "relevant")
        view = self._filtering.view(session)
        if view is None or not view.allows(name):
            return refused(f"Unknown tool: {name}")
        state = self._filtering.state(session)
        if state.context is None:
            return refused(f"A tool is marked for a context: say first by {SET_CONTEXT} what you are about.")
        self._filtering.predicting.marked(session, state, name, relevant=relevant)
        words = "of use" if relevant else "of no use"
        return MetaAnswer(result=structured({"message": jsonrpc.encode(f"Noted: {name} is {words} in this context.")}))

    async def _index_status(self, session: Session, given: dict[str, Raw]) -> MetaAnswer:
        state, view = self._filtering.state(session), self._filtering.view(session)
        session_fields: dict[str, Any] = {
            "surface": str(self._filtering.surface(session)),
            "mode": self._filtering.rules.mode,
            "available": 0 if view is None else len(view.candidates) + len(view.away),
            "listed": len(self._filtering.listed(session)),
            "has_context": state.context is not None,
            "context_confidence": round(self._filtering.predicting.context_confidence(session, state), 3),
            "list_changes": state.changes,
        }
        fields = {**self._filtering.predicting.status(), "session": session_fields}
        return MetaAnswer(result=structured({name: jsonrpc.encode(value) for name, value in fields.items()}))
