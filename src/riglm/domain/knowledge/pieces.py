"""What a knowledge store holds: thoughts, and a graph of entities with observations."""

from dataclasses import dataclass
from uuid import UUID

from riglm.domain.knowledge.normalising import content_hash
from riglm.domain.knowledge.provenance import Origin, Table
from riglm.domain.prediction import Vector


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
class Candidate:
    """A piece that may answer a question, with its cosine similarity to it, between -1 and 1.

    A long `text` may be the beginning alone, from which a snippet is cut as from the whole.
    """

    table: Table
    key: str
    text: str
    origin: Origin
    created_at: float
    score: float
