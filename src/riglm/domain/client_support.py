"""What is known of clients: how each takes a changed list of tools, and how many tools it takes.

Names are what clients call themselves in `clientInfo`; they are self-reported, which is good enough for advice.
"""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final


class Relisting(StrEnum):
    """What a client does with `notifications/tools/list_changed`."""

    YES = "asks for the list again"
    LATE = "asks for the list again, and an added tool reaches the model with the second request after that"
    NO = "does not ask for the list again"
    DISCARDS = "asks for the list again, and goes on with the old one"
    REPORTED_NO = "is reported not to ask for the list again in mid-session"
    UNKNOWN = "is not known to ask for the list again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSupport:
    """What is known of one client; `most_tools` is how many tools it takes, None where no bound is known.

    `key` is what `riglm init` calls it. `first_list` is how many seconds it may wait for its first
    list: well below the time after which it gives a server up.
    """

    key: str
    title: str
    names: tuple[str, ...]
    relisting: Relisting
    most_tools: int | None = None
    first_list: float = 20.0

    @property
    def follows_changes(self) -> bool:
        """Whether a list that changes within a session is of use to it."""
        return self.relisting in {Relisting.YES, Relisting.LATE}


CLIENTS: Final = (
    ClientSupport(key="claude-code", title="Claude Code", names=("claude-code*",), relisting=Relisting.LATE),
    ClientSupport(
        key="claude-desktop",
        title="Claude Desktop",
        names=("claude-ai*", "claude-desktop*"),
        relisting=Relisting.DISCARDS,
    ),
    ClientSupport(key="codex", title="Codex", names=("codex*",), relisting=Relisting.NO, first_list=8.0),
    ClientSupport(key="opencode", title="opencode", names=("opencode*",), relisting=Relisting.YES),
    ClientSupport(key="gemini", title="Gemini CLI", names=("gemini-cli*",), relisting=Relisting.YES),
    ClientSupport(
        key="vscode",
        title="VS Code",
        names=("visual studio code*", "visual-studio-code*"),
        relisting=Relisting.YES,
        most_tools=128,
    ),
    ClientSupport(key="zed", title="Zed", names=("zed*",), relisting=Relisting.YES),
    ClientSupport(key="cursor", title="Cursor", names=("cursor*",), relisting=Relisting.REPORTED_NO, most_tools=40),
    ClientSupport(key="cline", title="Cline", names=("cline*",), relisting=Relisting.UNKNOWN),
    ClientSupport(key="windsurf", title="Windsurf", names=("windsurf*",), relisting=Relisting.UNKNOWN),
)
"""Measured with Claude Code 2.1.330 and Codex 0.169.0, read in the source of VS Code, reported of the others."""


def support_by_key(key: str) -> ClientSupport | None:
    """What is known of a client by what `riglm init` calls it; None when there is no such."""
    return next((known for known in CLIENTS if known.key == key), None)


def support_of(name: str) -> ClientSupport | None:
    """What is known of a client by what it calls itself; None when it is nobody that is known."""
    folded = name.casefold()
    return next((known for known in CLIENTS if any(fnmatchcase(folded, each) for each in known.names)), None)


def patience_of(known: ClientSupport | None, grace: float, longest: float) -> float:
    """For how many seconds a client's lists wait for the slowest of several servers.

    A client that hears of what comes later waits for the grace, and so does one of which nothing is known. One that
    does not has to get the whole list at once, and waits for as long as it surely can, at most for `longest`.
    """
    if known is None or known.follows_changes:
        return grace
    return max(grace, min(known.first_list, longest))
