"""What clients call the tools and prompts of several servers."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

SEPARATOR: Final = "__"
"""Separates a server's name from a tool's."""

LONGEST: Final = 64
"""No name that riglm makes is longer: what model providers accept."""

Naming = Literal["prefix", "on_collision", "none"]
"""Whether names start with the server's always, when two servers share a name, or never."""

_HASH: Final = 8
_CUT: Final = re.compile(rf".{{{LONGEST - _HASH - 1}}}_[0-9a-f]{{{_HASH}}}", re.DOTALL)


def prefixed(server: str, name: str) -> str:
    """The name of a server's tool among those of others; a long one is cut and ends in a hash of the whole."""
    whole = f"{server}{SEPARATOR}{name}"
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{whole[: LONGEST - _HASH - 1]}_{digest}"


def may_be_cut(name: str) -> bool:
    """True if a name may be the short form of a longer one, which only a list can decide."""
    return _CUT.fullmatch(name) is not None


def public_names(
    naming: Naming, owned: Mapping[str, Sequence[str]]
) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str, str]]]:
    """The names that clients use, and the collisions that remain.

    Args:
        naming: the policy.
        owned: each server's own names, servers in the order configured.

    Returns:
        The server and its own name by the name that clients use, in order; and for each name that two servers claim
        the name, the server that has it, and the one that is left out.
    """
    shared = _shared(owned) if naming == "on_collision" else set()
    public: dict[str, tuple[str, str]] = {}
    collisions = []
    for server, names in owned.items():
        for name in names:
            bare = naming == "none" or (naming == "on_collision" and name not in shared)
            seen = name if bare else prefixed(server, name)
            holder = public.setdefault(seen, (server, name))
            if holder != (server, name):
                collisions.append((seen, holder[0], server))
    return public, collisions


def _shared(owned: Mapping[str, Sequence[str]]) -> set[str]:
    """The names that need a prefix: two servers have them, or they look like a name that was given a prefix."""
    owners: dict[str, set[str]] = {}
    for server, names in owned.items():
        for name in names:
            owners.setdefault(name, set()).add(server)
    shared = {name for name, servers in owners.items() if len(servers) > 1}
    fresh = shared
    while fresh:
        made = {prefixed(server, name) for name in fresh for server in owners[name]}
        fresh = (made & owners.keys()) - shared
        shared |= fresh
    return shared
