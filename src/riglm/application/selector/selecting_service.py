"""Selecting for agents in the same process, by what serves the clients of the proxy."""

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from riglm.application.failing_open import FailingOpen
from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.prediction.prediction_service import PredictionService
from riglm.application.proxy.parts import ProxyParts
from riglm.application.selector.offer import OfferedTools
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain.exposure import SEARCH_SURFACE, Surface
from riglm.domain.invocation import ErrorKind
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_state import MAX_QUERY_LENGTH
from riglm.domain.tool import PermittedTools, ToolCatalog
from riglm.ports.downstream import Caller

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionReason:
    """Why a tool was selected, or was not.

    `rank` is its place by prediction, 1 for the likeliest, and `score` what gave it that place, the sum of `signals`;
    None and empty where nothing was predicted. Scores compare within one selection.
    """

    why: str
    rank: int | None = None
    score: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection(Generic[T]):
    """The selected tools, in the order in which they were given.

    `hidden` has the names of the other tools, which can still be used. `reason` is how the selection was made,
    `confidence` (0 to 1) that of the prediction, and `reasons` the reason for each tool by name. `tokens` and
    `tokens_saved` are the estimated sizes of the selected and the hidden definitions. Tools that the model's provider
    defines, such as `{"type": "web_search"}`, are always selected and have no name.
    """

    objects: Mapping[str, T]
    given: tuple[T, ...]
    hidden: tuple[str, ...]
    reason: str
    confidence: float
    reasons: Mapping[str, SelectionReason]
    tokens: int
    tokens_saved: int

    @property
    def tools(self) -> list[T]:
        """A new list of the given objects."""
        return list(self.given)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the selected tools."""
        return tuple(self.objects)

    def why(self, tool: str) -> str:
        """Return in words why a tool is selected or not."""
        found = self.reasons.get(tool)
        return "no tool of this name was given" if found is None else found.why

    def __len__(self) -> int:
        return len(self.given)

    def __iter__(self) -> Iterator[T]:
        return iter(self.given)

    def __contains__(self, tool: object) -> bool:
        if isinstance(tool, str):
            return tool in self.objects
        return any(tool is each for each in self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool(Generic[T]):
    """A tool that a search found, with its score (0 to 1) and what matched."""

    name: str
    tool: T
    score: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Generic[T]):
    """Result of a search, best first. `near` has the names of tools that come close."""

    found: tuple[FoundTool[T], ...]
    near: tuple[str, ...]

    @property
    def tools(self) -> list[T]:
        """Tools that were found."""
        return [each.tool for each in self.found]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[FoundTool[T]]:
        return iter(self.found)


_IMPATIENT_SECONDS: Final = 2.0
_NOT_AT_HAND: Final = "not all inputs were available in time"
_NOBODY: Final = Session(
    started_at=0.0, era=ProtocolEra.HANDSHAKE, transport=Transport.LIBRARY, method=IdentificationMethod.CONNECTION
)
_log: Final = logging.getLogger("riglm.selecting")


class SelectingService:
    """Selects on a dedicated event loop: it takes the time to learn pending calls first.

    It waits for the model and for the vectors of all tools, so that equal work gives equal selections.
    """

    def __init__(
        self, filtering: FilteringService, prediction: PredictionService, parts: ProxyParts, *, timeout_seconds: float
    ) -> None:
        """It waits at most `timeout_seconds` seconds, and not for long again after that was too little.

        Sessions that end are forgotten by the filter from now on.
        """
        parts.tracking.on_closed(filtering.forget)
        self._filtering = filtering
        self._prediction = prediction
        self._parts = parts
        self._timeout_seconds = timeout_seconds
        self._seconds = timeout_seconds
        self._explaining = FailingOpen(_log, "a selection could not be explained: it is the same without reasons, and")

    def begin(self, client: ClientInfo, key: str, user: str) -> Session:
        """Begin a session, or with a key go on with the one that has it."""
        caller = Caller(transport=Transport.LIBRARY, principal=user, handle=key)
        return self._parts.sessions.of_connection(caller, client, "")

    def expect(self, catalog: ToolCatalog, owners: Mapping[str, tuple[str, str]]) -> None:
        """Begin to load what a choice among these tools needs, if there is a choice."""
        self._parts.owners.note(owners)
        self._filtering.know(_NOBODY, catalog)
        self._filtering.forget(_NOBODY)
        self._prediction.begin()

    def end(self, session: Session) -> None:
        """Release a session; one with a key can be continued for a while."""
        self._parts.sessions.closed(session)

    async def select(self, session: Session, offer: OfferedTools[T], context: str) -> Selection[T]:
        """Return the tools for a session now; an empty context leaves the last one in force."""
        is_choice, is_at_hand = await self._take(session, offer.catalog, offer.owners)
        if is_choice and context:
            before = self._filtering.state(session).context
            await self._filtering.set_context(session, context)
            now = self._filtering.state(session).context
            if before is None or now is None or before.text != now.text:
                await self._filtering.add_matches(session)  # a library has no search that the model knows of
        elif is_choice:
            self._filtering.follow_calls(session)
        shown = self._filtering.compose(session, offer.catalog)
        self._parts.tracking.exposed(session, shown)
        told = None
        with self._explaining:
            told = self._filtering.explain(session).to_prediction()
        names, hidden = shown.shown, shown.hidden
        if shown.mode == "shadow" or shown.surface == Surface.HINTS:
            names, hidden = (*names, *hidden), ()
            names = tuple(name for name in offer.catalog.names if name in frozenset(names))
        return Selection(
            objects={name: offer.objects[name] for name in names},
            given=offer.chosen(frozenset(names)),
            hidden=hidden,
            reason=f"{shown.reason}{self._but(session, is_at_hand=is_at_hand) if is_choice else ''}",
            confidence=0.0 if told is None else told.confidence,
            reasons={
                each.tool: SelectionReason(why=each.why, rank=each.rank, score=each.score, signals=each.contributions)
                for each in (() if told is None else told.tools)
            },
            tokens=shown.tokens_shown,
            tokens_saved=shown.tokens_hidden,
        )

    async def search(self, session: Session, offer: OfferedTools[T], query: str, limit: int) -> SearchResult[T]:
        """Return the tools that fit a query, best first, and the names of those that come close."""
        await self._take(session, offer.catalog, offer.owners)
        view = self._filtering.view(session)
        if view is None:
            return SearchResult(found=(), near=())
        allowed = view.candidate_set
        found = await self._filtering.search(session, query, limit, allowed.__contains__)
        hits = () if found.abstained else tuple(hit for hit in found.hits if hit.name in allowed)
        self._note_search(session, query, view, tuple(hit.name for hit in hits))
        return SearchResult(
            found=tuple(
                FoundTool(name=hit.name, tool=offer.objects[hit.name], score=hit.score, why=hit.why) for hit in hits
            ),
            near=tuple(name for name in found.near if name in allowed),
        )

    async def searched(self, session: Session, offer: OfferedTools[T], query: str, names: Collection[str]) -> None:
        """Note that another search found these tools; unknown names are left out."""
        await self._take(session, offer.catalog, offer.owners)
        view = self._filtering.view(session)
        if view is not None:
            await self._filtering.predicting.search(session, query, 1, view.candidate_set.__contains__)
            self._note_search(session, query, view, tuple(name for name in names if name in view.candidate_set))

    def _note_search(self, session: Session, query: str, view: PermittedTools, names: tuple[str, ...]) -> None:
        self._filtering.state(session).found(query[:MAX_QUERY_LENGTH], names)
        tokens, mode = view.tokens_of(frozenset(names)), self._filtering.rules.mode
        self._parts.tracking.exposed(
            session, ListSelection(names, reason="asked for", mode=mode, surface=SEARCH_SURFACE, tokens_shown=tokens)
        )

    def used(self, session: Session, tool: str, *, failed: bool, seconds: float) -> None:
        """A session used a tool, which took `seconds` and ended just now."""
        found = self._filtering.discovery(session, tool, known=True)
        self._parts.tracking.called(
            session,
            tool=tool,
            upstream=self._parts.owners.of(tool)[0],
            arguments=None,
            sequence_number=session.next_sequence_number(),
            started=time.time() - seconds,
            duration_ms=seconds * 1000.0,
            error_kind=ErrorKind.TOOL if failed else None,
            found=found,
        )
        self._filtering.called(session, tool, found, success=not failed)
        self._prediction.catch_up()

    def mark(self, session: Session, tool: str, *, relevant: bool) -> None:
        """Record feedback of a session on a tool for its context."""
        state = self._filtering.state(session)
        if state.context is not None:
            self._filtering.predicting.marked(session, state, tool, relevant=relevant)

    def status(self) -> dict[str, Any]:
        """What prediction works with."""
        return self._filtering.predicting.status()

    async def _take(
        self, session: Session, catalog: ToolCatalog, owners: Mapping[str, tuple[str, str]]
    ) -> tuple[bool, bool]:
        """Store the tools of a session. Returns whether there is a choice, and whether all inputs are available."""
        self._parts.owners.note(owners)
        self._filtering.know(session, catalog)
        await self._filtering.prepare(session, catalog)
        if not self._filtering.hides(session):
            return False, True
        is_at_hand = await self._prediction.caught_up(session, self._seconds)
        self._seconds = self._timeout_seconds if is_at_hand else min(self._timeout_seconds, _IMPATIENT_SECONDS)
        return True, is_at_hand

    def _but(self, session: Session, *, is_at_hand: bool) -> str:
        """Return why a selection may differ for equal work, or an empty string."""
        context = self._filtering.state(session).context
        if not is_at_hand or (context is not None and context.vector is None):
            return f"; {_NOT_AT_HAND}"
        embedder = self._prediction.embedder_status()
        if embedder.is_fallback_active:
            return f"; {embedder.actual_model} replaces {embedder.model}"
        return ""
