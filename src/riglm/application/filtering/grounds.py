"""Why a tool is in a session's list or not, in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from riglm.application.lists.surfaces import Outlook
from riglm.domain.override import Override, OverrideKind
from riglm.domain.policy import Standing
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.surface import Surface

_KEPT: Final = "kept"
_USED: Final = "used"
_WARM: Final = "in the warm set"
_BEFORE: Final = "chosen before"
_HOLDS: Final = (_KEPT, _USED, _WARM, _BEFORE)
_LATE: Final = ", or once this one has its vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What decides about the tools of one list.

    `overrides` are those that hold for the session, `chosen` the tools that prediction would choose now, `own` the
    names of riglm's tools that stand beside the list, `used` the tools that the session used, and `used_lately` those
    of them that stay for that.
    """

    rules: Filtering
    surface: Surface
    outlook: Outlook
    overrides: tuple[Override, ...]
    chosen: frozenset[str]
    own: frozenset[str]
    used: frozenset[str]
    used_lately: frozenset[str]

    def why(self, tool: str, standing: Standing, rank: int | None, *, shown: bool, lower: Sequence[str] = ()) -> str:
        """Why a tool is shown, or why it is not.

        `rank` is its place by prediction, if there is one, and `lower` are the tools of the list with a lower one.
        """
        match standing:
            case Standing.DENIED:
                return self._denied()
            case Standing.AWAY:
                return self._overridden(tool, OverrideKind.EXCLUDE) or "it is excluded"
            case Standing.KEPT if shown:
                pinned = self._overridden(tool, OverrideKind.PIN) or self._overridden(tool, OverrideKind.INCLUDE)
                return pinned or "filtering.pinned names it"
        return self._why_shown(tool, rank) if shown else self._why_hidden(tool, rank, lower)

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
        choice = self.outlook.choice
        if not self.rules.is_on:
            return "all are shown: filtering is off"
        if self.surface is Surface.HINTS:
            return "marked: in the warm set of this epoch" if tool in (choice.tools or ()) else "shown, and not marked"
        if self.outlook.passes or choice.tools is None:
            return f"all are shown: {choice.reason}"
        if self.surface is Surface.STABLE:
            return "in the warm set of this epoch, or to fill the list up to filtering.min_tools"
        return self._why_chosen(tool, rank)

    def _why_chosen(self, tool: str, rank: int | None) -> str:
        if tool in self.used_lately:
            return "used lately in this session"
        if tool in self.chosen and rank is not None:
            is_by_rank = rank <= len(self.chosen)
            return f"number {rank} by prediction" if is_by_rank else "in the warm set, with which a list begins"
        if tool in self.used:
            return "used in this session"
        return "chosen before: while the context is the same, lists only grow"

    def _why_hidden(self, tool: str, rank: int | None, lower: Sequence[str]) -> str:
        if tool in self.own:
            return "riglm's own tool has this name: it is reached by call_tool"
        if self.surface is Surface.STABLE:
            return "not in the warm set of this epoch"
        if rank is None:
            return "not chosen"
        if tool in self.chosen:
            return f"number {rank} by prediction now: {self._when_followed()}"
        held = f"number {rank} by prediction, and the list holds {len(self.outlook.names)}"
        return f"{held}, {self._why_lower(lower)}" if rank <= len(self.outlook.names) else held

    def _when_followed(self) -> str:
        """When a list that hides something takes a tool in; a new turn only shortens one that is whole."""
        when = "when it is used, and is chosen anew with the next context"
        return f"the list takes it in {when}" + ("" if self.outlook.choice.settled else _LATE)

    def _why_lower(self, lower: Sequence[str]) -> str:
        """Why tools of a lower rank are in the list."""
        holds = Counter(map(self._hold, lower))
        words = "some of lower rank: " + ", ".join(f"{holds[each]} {each}" for each in _HOLDS if each in holds)
        return f"{words} (while the context is the same, lists only grow)" if _BEFORE in holds else words

    def _hold(self, tool: str) -> str:
        """By what a tool has its place that its rank would not give it."""
        if tool in self.outlook.view.kept:
            return _KEPT
        if tool in self.used:
            return _USED
        return _WARM if tool in self.chosen else _BEFORE
