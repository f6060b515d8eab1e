"""What becomes of a piece that comes again."""

from dataclasses import replace
from typing import TypeVar

from riglm.domain.knowledge.pieces import Entity, Observation, Thought
from riglm.domain.knowledge.provenance import less_trusted

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
