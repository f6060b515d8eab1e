"""Contents of a knowledge store: thoughts, a graph of entities, and the snippets that are selected from them."""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar
from uuid import UUID

from riglm.domain.prediction import Vector


class Origin(StrEnum):
    """Who wrote something: a person, a log of what a person said or did, a tool, or a model."""

    HUMAN = "human"
    LOGGED = "logged"
    TOOL = "tool"
    MODEL = "model"


class TrustTier(StrEnum):
    """How trustworthy a snippet is: a fact, to be used with care, or a guess."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class Table(StrEnum):
    """What keeps a piece of knowledge."""

    THOUGHTS = "thoughts"
    ENTITIES = "kg_entities"
    OBSERVATIONS = "kg_observations"

    @property
    def is_graph(self) -> bool:
        """Whether it is a part of the knowledge graph."""
        return self is not Table.THOUGHTS

    @property
    def source_type(self) -> str:
        """One piece of it, by the name that answers use."""
        return _SOURCE_TYPES[self]

    def public_id(self, key: str) -> str:
        """The id of a piece in answers: unique over all tables."""
        return f"{_LETTERS[self]}:{key}"


_SOURCE_TYPES = {Table.THOUGHTS: "thought", Table.ENTITIES: "kg_entity", Table.OBSERVATIONS: "kg_observation"}
_LETTERS = {Table.THOUGHTS: "t", Table.ENTITIES: "e", Table.OBSERVATIONS: "o"}
_TIERS = {
    Origin.HUMAN: TrustTier.GREEN,
    Origin.LOGGED: TrustTier.GREEN,
    Origin.TOOL: TrustTier.AMBER,
    Origin.MODEL: TrustTier.RED,
}
_DOUBTS = {TrustTier.GREEN: 0, TrustTier.AMBER: 1, TrustTier.RED: 2}


def trust_tier(table: Table, origin: Origin) -> TrustTier:
    """Return how trustworthy a piece is: all of the graph, and thoughts by their author."""
    return TrustTier.GREEN if table.is_graph else _TIERS[origin]


MAX_SNIPPET_LENGTH: Final = 800
"""Characters that a snippet has at most."""

_MIN_SHARE: Final = 0.75  # 600 of 800 characters
_END: Final = re.compile(r"[.!?](?=\s)")


def capped(text: str, longest: int = MAX_SNIPPET_LENGTH) -> str:
    """The beginning of a text: whole sentences of it, as many as fit.

    A sentence ends with `.`, `!` or `?` before white space. Where whole sentences would be less than three quarters of
    what fits, as behind an abbreviation at the beginning, the text is cut hard.
    """
    if len(text) <= longest:
        return text
    ends = [found.end() for found in _END.finditer(text, 0, longest + 1)]
    end = ends[-1] if ends and ends[-1] >= longest * _MIN_SHARE else longest
    return text[:end]


_SPACES: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset({"Cc", "Cf"})
"""Unicode's categories of control characters and of those without a width."""

_BLANK: Final = _UNSEEN | {"Zs", "Zl", "Zp", "Mn", "Me"}
_FILLERS: Final = frozenset("\u115f\u1160\u2800")  # letters and a symbol without a shape


def normalised(text: str) -> str:
    """A text without the differences that do not matter.

    In this order: Unicode's form NFKC, lower case, every run of white space one space, none at the ends, and no control
    characters or characters without a width. What they separated is folded again: the form of a form is the same.
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    spaced = _SPACES.sub(" ", folded).strip()
    if spaced.isprintable():  # nearly every text: nothing of these categories can be in it
        return spaced
    seen = "".join(letter for letter in spaced if unicodedata.category(letter) not in _UNSEEN)
    return seen if seen == spaced else normalised(seen)


def is_visible(text: str) -> bool:
    """Whether anything of a text can be seen: it is more than white space, marks without a letter, and the like."""
    return any(
        unicodedata.category(letter) not in _BLANK and letter not in _FILLERS
        for letter in unicodedata.normalize("NFKC", text)
    )


def content_hash(text: str) -> str:
    """Return BLAKE3 of the normalised text, 256 bits in hex: stable on every machine."""
    from blake3 import blake3  # noqa: PLC0415  # clients that start without knowledge need no hash

    return blake3(normalised(text).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embedding:
    """A text's vector of unit length, and the model that it is of: vectors of different models are never compared."""

    model: str
    vector: Vector

    @property
    def dimensions(self) -> int:
        """How many numbers it has."""
        return int(self.vector.shape[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Thought:
    """Something that was thought, said, or logged.

    `owner` is the keyed hash of the principal that it belongs to, empty for the local user. A private one leaves the
    store only when that is asked for. `created_at` is in seconds since the epoch; `embedding` is None while there is
    none.
    """

    id: UUID
    owner: str
    text: str
    origin: Origin
    created_at: float
    tags: tuple[str, ...] = ()
    is_private: bool = False
    embedding: Embedding | None = None

    @property
    def hash(self) -> str:
        """By which an equal text is recognised."""
        return content_hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entity:
    """A known person or thing, of a kind in the words of the caller.

    `text` is what it is found by: its name, its kind, and how it relates to others.
    """

    id: UUID
    owner: str
    name: str
    kind: str
    text: str
    created_at: float
    tags: tuple[str, ...] = ()
    embedding: Embedding | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One fact about an entity, which is identified by its name."""

    id: UUID
    owner: str
    entity: str
    text: str
    created_at: float
    tags: tuple[str, ...] = ()
    embedding: Embedding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation between two entities, both by name: `Alice works_at Acme`."""

    owner: str
    source: str
    target: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnippetCandidate:
    """A piece that may answer a question, with its cosine similarity to it, between -1 and 1.

    A long `text` may be the beginning alone, from which a snippet is cut as from the whole.
    """

    table: Table
    key: str
    text: str
    origin: Origin
    created_at: float
    score: float


_Piece = TypeVar("_Piece", Thought, Entity, Observation)


def limited(new: _Piece, old: _Piece) -> _Piece:
    """Keep the limits of the stored piece: adding it again makes nothing better trusted or more visible.

    It has the tags of both, since any may be one to exclude; a thought is private if either is, and of the origin that
    is trusted less.
    """
    tags = tuple(sorted({*old.tags, *new.tags}))
    if isinstance(new, Thought) and isinstance(old, Thought):
        origin = max(old.origin, new.origin, key=lambda each: _DOUBTS[_TIERS[each]])
        return replace(new, tags=tags, origin=origin, is_private=old.is_private or new.is_private)
    return replace(new, tags=tags)


_SEAMS: Final = re.compile(r"[_\s-]+|(?<=[a-z])(?=[A-Z])")


def searched_text(piece: Thought | Entity | Observation) -> str:
    """What a piece's vector is made of: its text, and of the graph first whom it is about.

    An observation rarely names its entity, and the text of an entity names others as well.
    """
    match piece:
        case Thought():
            return piece.text
        case Entity():
            return f"About {piece.name}. {piece.text}"
        case Observation():
            return f"About {piece.entity}. {piece.text}"


def entity_text(name: str, kind: str, relations: Iterable[Relation]) -> str:
    """Return an entity as text: its name and kind, and its relations as sentences, outgoing ones first, as many as fit.

    The same for the same relations, in any order.
    """
    text = f"{name} ({kind})." if kind else f"{name}."
    told = sorted((normalised(each.source) != normalised(name), sentence(each)) for each in relations)
    for words in dict.fromkeys(words for _, words in told):
        if len(text) + 1 + len(words) <= MAX_SNIPPET_LENGTH:
            text = f"{text} {words}"
    return text


def sentence(relation: Relation) -> str:
    """A relation in words; a kind that is spelt for a program, `works_at` or `worksAt`, becomes plain."""
    kind = _SEAMS.sub(" ", relation.kind).strip()
    return f"{relation.source} {kind if kind.isupper() else kind.lower()} {relation.target}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A candidate as it is given: `text` is the beginning of it that fits, `content_hash` is of that."""

    candidate: SnippetCandidate
    text: str
    content_hash: str

    @property
    def trust_tier(self) -> TrustTier:
        """How trustworthy it is."""
        return trust_tier(self.candidate.table, self.candidate.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnippetQuery:
    """A question within all bounds: how many snippets are wanted, how similar, and what share of them of the graph.

    `query` is trimmed and not empty. `floor` may give way to `min_floor`, where a source that has candidates and a
    place would otherwise give none.
    """

    query: str
    top_k: int
    mix: float
    floor: float
    min_floor: float
    include_private: bool = False
    include_tags: frozenset[str] = frozenset()
    exclude_tags: frozenset[str] = frozenset()

    @property
    def wants_graph(self) -> bool:
        """Whether there is a share for the graph."""
        return self.mix > 0

    @property
    def wants_thoughts(self) -> bool:
        """Whether there is a share for thoughts."""
        return self.mix < 1


def selected(
    request: SnippetQuery, thoughts: Sequence[SnippetCandidate], graph: Sequence[SnippetCandidate]
) -> tuple[list[Snippet], float]:
    """The snippets to give, the most similar first, and the floor that was used.

    A source without a share takes no part: a duplicate in it leaves the other's in its place.
    """
    thoughts = thoughts if request.wants_thoughts else ()
    graph = graph if request.wants_graph else ()
    floor = floor_for(request, thoughts, graph)
    hits = [each for each in (*thoughts, *graph) if each.score >= floor]
    unique = _unique(sorted(hits, key=_rank))
    of_graph = [each for each in unique if each.candidate.table.is_graph]
    of_thoughts = [each for each in unique if not each.candidate.table.is_graph]
    graph_slots, thought_slots = allocated(request.top_k, request.mix, len(of_graph), len(of_thoughts))
    picked = [*of_graph[:graph_slots], *of_thoughts[:thought_slots]]
    return sorted(picked, key=lambda each: _rank(each.candidate)), floor


def floor_for(request: SnippetQuery, thoughts: Sequence[SnippetCandidate], graph: Sequence[SnippetCandidate]) -> float:
    """The floor, lowered just so far that each source with candidates gives one, and never below the least.

    Of one place there is nothing to share: then it is lowered only where no source gives one, and for the best of all.
    Where no candidate reaches even the least one, that is the floor.
    """
    best = [max(each.score for each in source) for source in (graph, thoughts) if source]
    least = min(request.floor, request.min_floor)
    reachable = [score for score in best if score >= least]
    if not reachable:
        return least
    return min(request.floor, max(reachable) if request.top_k == 1 else min(reachable))


def allocated(top_k: int, mix: float, graph: int, thoughts: int) -> tuple[int, int]:
    """Return how many of the graph and how many thoughts to return, given the number of each.

    The graph gets its share, rounded half up; each source that has any gets at least one unless the share leaves it
    nothing at all; and what one source cannot fill goes to the other. A share of 0 or 1 means one source alone.
    """
    if mix <= 0 or mix >= 1:
        return (min(graph, top_k), 0) if mix >= 1 else (0, min(thoughts, top_k))
    graph_slots = math.floor(mix * top_k + 0.5)
    if top_k > 1 and graph and thoughts:
        graph_slots = min(max(graph_slots, 1), top_k - 1)
    thought_slots = top_k - graph_slots
    graph_slots += max(0, thought_slots - thoughts)
    thought_slots += max(0, top_k - thought_slots - graph)
    return min(graph, graph_slots), min(thoughts, thought_slots)


def _unique(ranked: Iterable[SnippetCandidate]) -> list[Snippet]:
    """Return one snippet for each piece, and for each equal text of any source; the best one stays."""
    pieces, hashes, unique = set(), set(), []
    for candidate in ranked:
        piece = (candidate.table, candidate.key)
        cut = capped(candidate.text)
        hash_ = content_hash(cut)
        if piece not in pieces and hash_ not in hashes:
            unique.append(Snippet(candidate=candidate, text=cut, content_hash=hash_))
        pieces.add(piece)
        hashes.add(hash_)
    return unique


def _rank(candidate: SnippetCandidate) -> tuple[float, bool, str]:
    """The most similar first; of equals the graph, then by key, so that the same question has the same answer."""
    return (-candidate.score, not candidate.table.is_graph, candidate.key)
