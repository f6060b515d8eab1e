"""What is known of clients: how each takes a changed list of tools, and how many tools it takes.

Names are what clients call themselves in `clientInfo`; they are self-reported, which is good enough for advice.
"""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

DEFAULT_LIST_TIMEOUT_SECONDS: Final = 10.0
"""Seconds that a client waits for a list if nothing else is known."""

_MARGIN_SECONDS: Final = 0.5
"""How much earlier than that a list is sent, so that it arrives in time."""


class ListChangedSupport(StrEnum):
    """What a client does with `notifications/tools/list_changed`."""

    YES = "asks for the list again"
    LATE = "asks for the list again, and an added tool reaches the model with the second request after that"
    NO = "does not ask for the list again"
    DISCARDS = "asks for the list again, and goes on with the old one"
    REPORTED_NO = "is reported not to ask for the list again in mid-session"
    UNKNOWN = "is not known to ask for the list again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBehavior:
    """What is known of one client; `most_tools` is how many tools it takes, None where no bound is known.

    `key` is what `riglm init` calls it. `list_timeout` is the number of seconds that it is known to wait for a list.
    `starts_without_list`: its first model request does not wait for slow servers.
    """

    key: str
    title: str
    names: tuple[str, ...]
    list_changed_support: ListChangedSupport
    most_tools: int | None = None
    list_timeout: float = DEFAULT_LIST_TIMEOUT_SECONDS
    starts_without_list: bool = False

    @property
    def follows_changes(self) -> bool:
        """Whether a list that changes within a session is of use to it."""
        return self.list_changed_support in {ListChangedSupport.YES, ListChangedSupport.LATE}


CLIENTS: Final = (
    ClientBehavior(
        key="claude-code",
        title="Claude Code",
        names=("claude-code*",),
        list_changed_support=ListChangedSupport.LATE,
        list_timeout=27.0,
    ),
    ClientBehavior(
        key="claude-desktop",
        title="Claude Desktop",
        names=("claude-ai*", "claude-desktop*"),
        list_changed_support=ListChangedSupport.DISCARDS,
    ),
    ClientBehavior(
        key="codex",
        title="Codex",
        names=("codex*",),
        list_changed_support=ListChangedSupport.NO,
        starts_without_list=True,
    ),
    ClientBehavior(
        key="opencode",
        title="opencode",
        names=("opencode*",),
        list_changed_support=ListChangedSupport.YES,
        list_timeout=9.0,
    ),
    ClientBehavior(
        key="gemini",
        title="Gemini CLI",
        names=("gemini-cli*",),
        list_changed_support=ListChangedSupport.YES,
        list_timeout=9.0,
    ),
    ClientBehavior(
        key="copilot",
        title="Copilot CLI",
        names=("copilot-cli*",),
        list_changed_support=ListChangedSupport.YES,
        list_timeout=20.0,
    ),
    ClientBehavior(
        key="vscode",
        title="VS Code",
        names=("visual studio code*", "visual-studio-code*"),
        list_changed_support=ListChangedSupport.YES,
        most_tools=128,
    ),
    ClientBehavior(key="zed", title="Zed", names=("zed*",), list_changed_support=ListChangedSupport.YES),
    ClientBehavior(
        key="cursor",
        title="Cursor",
        names=("cursor*",),
        list_changed_support=ListChangedSupport.REPORTED_NO,
        most_tools=40,
    ),
    ClientBehavior(
        key="qwen",
        title="Qwen Code",
        names=("qwen-cli-mcp-client*",),
        list_changed_support=ListChangedSupport.NO,
        list_timeout=4.0,
    ),
    ClientBehavior(
        key="cline",
        title="Cline",
        names=("cline*", "@cline/*"),
        list_changed_support=ListChangedSupport.NO,
        list_timeout=2.0,
    ),
    ClientBehavior(
        key="continue",
        title="Continue",
        names=("continue*",),
        list_changed_support=ListChangedSupport.NO,
        list_timeout=9.0,
    ),
    ClientBehavior(
        key="windsurf", title="Windsurf", names=("windsurf*",), list_changed_support=ListChangedSupport.UNKNOWN
    ),
)
"""Measured with Claude Code, Codex, opencode, Gemini CLI, Copilot CLI, Qwen Code, Cline and Continue in November 2026.

VS Code was read in its source, the others are reported.
"""


def support_by_key(key: str) -> ClientBehavior | None:
    """What is known of a client by what `riglm init` calls it; None when there is no such."""
    return next((known for known in CLIENTS if known.key == key), None)


def support_of(name: str) -> ClientBehavior | None:
    """Return what is known of a client by its name; None for an unknown one."""
    folded = name.casefold()
    return next((known for known in CLIENTS if any(fnmatchcase(folded, each) for each in known.names)), None)


def longest_wait_of(known: ClientBehavior | None, longest: float) -> float:
    """Return the number of seconds, at most `longest`, after which a client must have an answer to its list request."""
    timeout = known.list_timeout if known is not None else DEFAULT_LIST_TIMEOUT_SECONDS
    return min(timeout - _MARGIN_SECONDS, longest)


def list_timeout_of(known: ClientBehavior | None, grace: float, longest: float) -> float:
    """Return the number of seconds that a client's list waits for each server whose list is not known.

    A client that follows list-changed notifications or starts without the list waits for the grace. Any other client
    needs the complete list at once.
    """
    if known is not None and (known.follows_changes or known.starts_without_list):
        return grace
    return max(grace, longest_wait_of(known, longest))
