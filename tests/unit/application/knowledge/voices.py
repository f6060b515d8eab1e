"""A voice over a store in memory, asked as riglm asks it."""

import asyncio
import json
from typing import Any

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.inner_voice import InnerVoice
from riglm.application.knowledge.retrieval import Retrieval
from riglm.domain.knowledge import Embedding, Origin, SnippetCandidate, Table, Thought
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.domain.session import uuid7
from riglm.ports.knowledge import Scope
from tests.stores.memory import InMemoryKnowledge

EMBEDDER = HashingEmbedder()


def embedded(text: str) -> Embedding:
    return Embedding(model=EMBEDDER.model, vector=EMBEDDER.embed([text])[0])


def a_thought(text: str, **more: Any) -> Thought:
    given: dict[str, Any] = {"owner": "", "origin": Origin.HUMAN, "created_at": 1.0, "embedding": embedded(text)}
    return Thought(id=uuid7(), text=text, **{**given, **more})


class Memory:
    """A store in memory that fails when it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.kept = InMemoryKnowledge()
        self.asked: list[tuple[Table, Scope, int]] = []
        self.error: BaseException | None = None
        self._more = asyncio.Condition()

    async def was_asked_for(self, times: int) -> None:
        """Wait until it was."""
        async with self._more:
            await self._more.wait_for(lambda: len(self.asked) >= times)

    async def nearest(self, table: Table, asked: Embedding, scope: Scope, most: int) -> list[SnippetCandidate]:
        async with self._more:
            self.asked.append((table, scope, most))
            self._more.notify_all()
        if self.error is not None:
            raise self.error
        return list(self.kept.nearest(table, asked, scope, most))


class Stage:
    """One voice, its store, and an embedder that fails when it is told to."""

    def __init__(self, *, is_silent: bool = False, most_candidates: int = 150, shared: bool = False) -> None:
        self.store = Memory()
        self.kept = self.store.kept
        self.error: BaseException | None = None
        self.hangs = False
        self.was_embedding = asyncio.Event()
        settings = KnowledgeSettings(max_candidates_per_source=most_candidates, shared=shared)
        retrieval = Retrieval(self._embed, self.store.nearest, settings)
        self.voice = InnerVoice(retrieval, is_silent=is_silent)

    async def result(self, given: Any, principal: str = "") -> Any:
        """The result of a call, decoded."""
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        return json.loads(await self.voice.retrieve(principal, raw))

    async def ask(self, query: str, principal: str = "", **given: Any) -> Any:
        """The structured content of an answer."""
        result = await self.result({"query": query, **given}, principal)
        assert "isError" not in result, result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    async def code(self, given: Any) -> str:
        """The code of an error."""
        result = await self.result(given)
        assert result["isError"] is True
        assert "structuredContent" not in result
        return str(json.loads(result["content"][0]["text"])["error"]["code"])

    async def _embed(self, text: str) -> tuple[str, Embedding]:
        self.was_embedding.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return "static", embedded(text)
