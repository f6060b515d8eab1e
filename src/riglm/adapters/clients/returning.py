"""Where restored servers are inserted in a file: each behind its former predecessor, if that is still there."""

from collections import defaultdict
from collections.abc import Collection, Sequence


def behind_whom(were: Sequence[str], returning: Collection[str], there: Collection[str]) -> dict[str | None, list[str]]:
    """Those that return, in their order, by the one of those there that they go behind; None: in front of all."""
    groups: dict[str | None, list[str]] = defaultdict(list)
    last = None
    for name in were:
        if name in returning:
            groups[last].append(name)
        elif name in there:
            last = name
    return groups


def stands_behind(name: str, are: Sequence[str], were: Collection[str]) -> str | None:
    """The nearest in front of this one that was there before as well; None when there is none."""
    return next((other for other in reversed(are[: are.index(name)]) if other in were), None)
