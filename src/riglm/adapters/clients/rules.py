"""Servers of which a client's files say by name what would not hold behind riglm."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from riglm.adapters.clients.tool_patterns import begins_with_server
from riglm.domain.installation import Place

RULED: Final = frozenset({"gemini", "opencode", "zed"})
"""The clients whose files with servers hold rules for them as well."""


def ruled(place: Place, names: Collection[str], documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Servers that have to stay for what these files of their client say, and what that is."""
    if place.client == "opencode":
        rules = {rule for document in documents for rule in _rules_of_opencode(document)}
        found = [name for name in names if any(begins_with_server(rule, f"{name}_") for rule in rules)]
        return dict.fromkeys(
            found, "`tools` or `permission` has rules for its tools by their names, which would change"
        )
    if place.client == "zed":
        return {name: why for document in documents for name, why in _rules_of_zed(document, names)}
    if place.client != "gemini":
        return {}
    lists = [_mapping(document.get("mcp")) for document in documents]
    if any(isinstance(each.get("allowed"), list) for each in lists):
        return dict.fromkeys(names, "`mcp.allowed` names the servers that may be used, and riglm is not among them")
    excluded = [str(name) for each in lists for name in each.get("excluded") or ()]
    return dict.fromkeys(excluded, "`mcp.excluded` switches it off")


def _rules_of_opencode(document: Mapping[str, Any]) -> Iterator[str]:
    agents = [agent for key in ("agent", "mode") for agent in _mapping(document.get(key)).values()]
    for said in (document, *agents):
        for key in ("tools", "permission"):
            yield from map(str, _mapping(_mapping(said).get(key)))


def _rules_of_zed(document: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, str]]:
    agent = _mapping(document.get("agent"))
    for key, profile in _mapping(agent.get("profiles")).items():
        for name in _mapping(_mapping(profile).get("context_servers")):
            yield str(name), f"`agent.profiles.{key}` chooses its tools by its name, which would change"
    for rule in _mapping(_mapping(agent.get("tool_permissions")).get("tools")):
        for name in names:
            if str(rule).startswith(f"mcp:{name}:"):
                yield name, "`agent.tool_permissions` has rules for its tools by its name, which would change"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
