"""What the groups of callers may see and use."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from riglm.domain.naming import SEPARATOR, NamePatterns
from riglm.domain.schemas.access_settings import ANY_GROUP, AccessSettings

_MAX_REMEMBERED: Final = 50_000


class AccessRules:
    """Permits what one rule of a caller's groups permits, and denies everything else.

    The rules that apply to a caller are named by one text, with a line for each rule.
    """

    def __init__(self, rules: Mapping[str, AccessSettings], servers: Iterable[str]) -> None:
        """`servers` are those in use; a rule that permits none of them applies to no caller."""
        self._servers = {group: NamePatterns(rule.servers) for group, rule in rules.items()}
        self._tools = {
            group: NamePatterns(p for p in rule.tools if SEPARATOR not in p) for group, rule in rules.items()
        }
        self._full_names = {
            group: NamePatterns(p for p in rule.tools if SEPARATOR in p) for group, rule in rules.items()
        }
        self._profiles = {group: NamePatterns(rule.profiles) for group, rule in rules.items()}
        in_use = tuple(servers)
        self._groups = tuple(group for group, patterns in self._servers.items() if any(map(patterns.has, in_use)))
        self.permits = lru_cache(_MAX_REMEMBERED)(self._permits)
        self.find = lru_cache(_MAX_REMEMBERED)(self._find)

    def _find(self, groups: frozenset[str], profile: str) -> str:
        """Return the rules that apply to a member of these groups in a profile; empty if there is none."""
        mine = (group for group in self._groups if group == ANY_GROUP or group in groups)
        return "\n".join(group for group in mine if self._profiles[group].has(profile))

    def permits_server(self, access: str, server: str) -> bool:
        """True if the rules `access` permit anything of a server."""
        return any(group in self._servers and self._servers[group].has(server) for group in access.split("\n"))

    def _permits(self, access: str, server: str, tool: str) -> bool:
        """True if the rules `access` permit a server's tool, by the server's name for it."""
        full_name = f"{server}{SEPARATOR}{tool}"
        return any(
            group in self._servers
            and self._servers[group].has(server)
            and (self._tools[group].has(tool) or self._full_names[group].has(full_name))
            for group in access.split("\n")
        )
