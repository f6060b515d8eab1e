"""A line of the file that the MCP memory server writes: an entity with its observations, or a relation."""

from dataclasses import dataclass
from typing import Final

from riglm.application.json_lines import Row
from riglm.application.knowledge.line_values import texts, visible_text, wrong
from riglm.domain.knowledge.normalising import is_visible
from riglm.domain.knowledge.pieces import Relation

ENTITY: Final = "entity"
RELATION: Final = "relation"
_KEYS: Final = {
    ENTITY: frozenset({"type", "name", "entityType", "observations"}),
    RELATION: frozenset({"type", "from", "to", "relationType"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An entity as a line describes it; its relations are on other lines. The kind may be empty."""

    name: str
    kind: str
    observations: tuple[str, ...]


def memory_of(row: Row, owner: str) -> Described | Relation:
    """What a line tells, an owner's. Observations in which nothing can be seen are passed over.

    Raises:
        BadLine: it is neither an entity nor a relation, or a value is none of its key.
    """
    kind = row.get("type")
    if kind == ENTITY:
        return _entity(row)
    if kind == RELATION:
        source, target, relation = (visible_text(key, row.get(key)) for key in ("from", "to", "relationType"))
        return Relation(owner=owner, source=source, target=target, kind=relation)
    fix = "leave the line away, or give --format thoughts if these are thoughts"
    raise wrong("type", f"{ENTITY} or {RELATION}", kind, fix)


def is_known(row: Row, key: str) -> bool:
    """Whether a key of a line that was read counts."""
    return key in _KEYS[row["type"]]


def _entity(row: Row) -> Described:
    kind = row.get("entityType") or ""
    if not isinstance(kind, str):
        raise wrong("entityType", "a text", kind, 'write "entityType": "..." or leave it away')
    observations = texts("observations", row.get("observations"))
    return Described(
        name=visible_text("name", row.get("name")),
        kind=kind.strip(),
        observations=tuple(text for text in observations if is_visible(text)),
    )
