"""What a knowledge store holds: thoughts, and a graph of entities with observations."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

from blake3 import blake3

from riglm.domain.knowledge.provenance import MAX, Origin, Table, less_trusted
from riglm.domain.prediction import Vector

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
    return blake3(normalised(text).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embedding:
    """A text's vector of unit length, and the model that it is of: vectors of different models are never compared."""

    model: str
    vector: "Vector"

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
        origin = less_trusted(old.origin, new.origin)
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
        if len(text) + 1 + len(words) <= MAX:
            text = f"{text} {words}"
    return text


def sentence(relation: Relation) -> str:
    """A relation in words; a kind that is spelt for a program, `works_at` or `worksAt`, becomes plain."""
    kind = _SEAMS.sub(" ", relation.kind).strip()
    return f"{relation.source} {kind if kind.isupper() else kind.lower()} {relation.target}."
