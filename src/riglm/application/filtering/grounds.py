"""Why a tool is in a session's list or not, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from riglm.domain.list_plan import ListPlan
from riglm.domain.override import Override, OverrideKind
from riglm.domain.policy import Standing
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.surface import Surface

_MARKED: Final = "marked: loading it at once pays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What decides about the tools of one list.

    `kept` are the tools that are always listed, `overrides` those that hold for the session, `own` the meta-tools next
    to the list, `used` the tools that the session used. `probabilities` are by recorded use.
    """

    rules: Filtering
    surface: Surface
    plan: ListPlan
    kept: frozenset[str]
    overrides: tuple[Override, ...]
    own: frozenset[str]
    used: frozenset[str]
    probabilities: Mapping[str, float]

    def why(self, tool: str, standing: Standing, rank: int | None, *, shown: bool) -> str:
        """Return why a tool is shown or hidden; `rank` is its place by prediction, if there is one."""
        match standing:
            case Standing.DENIED:
                return self._denied()
            case Standing.AWAY:
                return self._overridden(tool, OverrideKind.EXCLUDE) or "it is excluded"
            case Standing.KEPT if shown:
                pinned = self._overridden(tool, OverrideKind.PIN) or self._overridden(tool, OverrideKind.INCLUDE)
                return pinned or "filtering.pinned names it"
        return self._why_shown(tool, rank) if shown else self._why_hidden(tool, rank)

    def _denied(self) -> str:
        if not self.rules.denylist:
            return "denied: filtering.allowlist does not name it"
        if not self.rules.allowlist:
            return "denied: filtering.denylist names it"
        return "denied: filtering.denylist names it, or filtering.allowlist does not"

    def _overridden(self, tool: str, kind: OverrideKind) -> str | None:
        found = [each for each in self.overrides if each.tool == tool and each.kind is kind]
        if not found:
            return None
        last = max(found, key=lambda each: each.created_at)
        words = f"an override ({kind.value}, {last.scope.value}) was made for it"
        return f"{words}: {last.reason}" if last.reason else words

    def _why_shown(self, tool: str, rank: int | None) -> str:
        if not self.rules.is_on:
            return "all are shown: filtering is off"
        if self.surface is Surface.HINTS:
            return _MARKED if tool in (self.plan.tools or ()) else "shown, and not marked"
        if self.plan.tools is None:
            return f"all are shown: {self.plan.reason}"
        if self.rules.coverage is None:
            return f"listing it pays ({self._need(tool)})"
        return "used in this session" if rank is None or tool in self.used else f"number {rank} by prediction"

    def _why_hidden(self, tool: str, rank: int | None) -> str:
        if tool in self.own:
            return "a meta-tool has this name: call_tool reaches it"
        if self.rules.coverage is not None:
            place = "not chosen" if rank is None else f"number {rank} by prediction"
            return f"{place}, and the list holds {len(self.plan.listed)}"
        words = "listing it costs more than searching for it when it is needed"
        if tool in self.used:
            words = "used in this session, so its definition is known; changing the list would cost more than it saves"
        place = "" if rank is None else f"; number {rank} by prediction"
        return f"{words} ({self._need(tool)}){place}"

    def _need(self, tool: str) -> str:
        share = self.probabilities.get(tool)
        if share is None:
            return "no recorded use" if self.probabilities else self.plan.reason
        return f"a session needs it with probability {share:.2f}"
