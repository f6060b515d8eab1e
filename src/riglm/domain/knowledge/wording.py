"""The words by which pieces of knowledge are found."""

import re
from collections.abc import Iterable
from typing import Final

from riglm.domain.knowledge.capping import LONGEST
from riglm.domain.knowledge.normalising import normalised
from riglm.domain.knowledge.pieces import Entity, Observation, Relation, Thought

_SEAMS: Final = re.compile(r"[_\s-]+|(?<=[a-z])(?=[A-Z])")


def searched_text(piece: Thought | Entity | Observation) -> str:
    """What a piece's vector is made of: its text, and of the graph first whom it is about.

    An observation rarely says so itself, and the text of an entity names others as well.
    """
    match piece:
        case Thought():
            return piece.text
        case Entity():
            return f"About {piece.name}. {piece.text}"
        case Observation():
            return f"About {piece.entity}. {piece.text}"


def entity_text(name: str, kind: str, relations: Iterable[Relation]) -> str:
    """Return an entity in words: its name and kind, and its relations as sentences, its own first, as many as fit.

    The same for the same relations, in any order.
    """
    text = f"{name} ({kind})." if kind else f"{name}."
    told = sorted((normalised(each.source) != normalised(name), sentence(each)) for each in relations)
    for words in dict.fromkeys(words for _, words in told):
        if len(text) + 1 + len(words) <= LONGEST:
            text = f"{text} {words}"
    return text


def sentence(relation: Relation) -> str:
    """A relation in words; a kind that is spelt for a program, `works_at` or `worksAt`, becomes plain."""
    kind = _SEAMS.sub(" ", relation.kind).strip()
    return f"{relation.source} {kind if kind.isupper() else kind.lower()} {relation.target}."
