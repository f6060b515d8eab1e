"""MCP clients, from the table `clients.json`: where each keeps its servers and how it treats tool lists.

Names are what clients call themselves in `clientInfo`; they are self-reported, which is good enough for advice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from riglm.domain.exposure import Surface
from riglm.domain.session import ClientInfo, ProtocolEra

DEFAULT_LIST_TIMEOUT_SECONDS: Final = 10.0
"""Seconds that a client waits for a list if nothing else is known."""

_MAX_NAMES: Final = 1_000
_MARGIN_SECONDS: Final = 0.5
"""How much earlier than that a list is sent, so that it arrives in time."""


class ListChangedSupport(StrEnum):
    """What a client does with `notifications/tools/list_changed`."""

    YES = "yes"
    LATE = "late"
    NO = "no"
    DISCARDS = "discards"
    REPORTED_NO = "reported_no"
    UNKNOWN = "unknown"

    @property
    def description(self) -> str:
        """What the client does, as words that follow its name."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS: Final = {
    ListChangedSupport.YES: "asks for the list again",
    ListChangedSupport.LATE: "asks for the list again, and an added tool reaches the model with the second request "
    "after that",
    ListChangedSupport.NO: "does not ask for the list again",
    ListChangedSupport.DISCARDS: "asks for the list again, and goes on with the old one",
    ListChangedSupport.REPORTED_NO: "is reported not to ask for the list again in mid-session",
    ListChangedSupport.UNKNOWN: "is not known to ask for the list again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimeout:
    """A timeout in a client's entry for a server.

    `covers` are the names of the timeouts in riglm's configuration that it corresponds to. `default` is what the client
    uses without one, `unit` the seconds of one unit. The client ignores values below `minimum`. `other_form_of` is the
    key with the same meaning, which counts if an entry has both.
    """

    covers: tuple[str, ...]
    default: float
    unit: float = 1.0
    minimum: float = 0.0
    other_form_of: str = ""


_KINDS: Final = frozenset({"stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFormat:
    """Where a client keeps its servers, and how it writes them.

    `files` maps the user's files to their names; the name is empty where several files may exist. Each file begins
    with a directory in braces: `{home}`, `{app}` (application data), `{xdg}`, `{zed}`, `{claude}`, `{codex}`,
    `{copilot}`, `{crush}` or `{goose}`. `*` is for a name of the user's choice. `project_files` are relative to the
    project. `key` is that of the servers in the file.

    `entry` are the members of an entry: command and args; with a type as well; or those of opencode. `variables` is
    the syntax of the variables that the client replaces, `variable` the format of one in riglm's entry,
    `variable_names` the key of a list with the names of variables that the server gets. With `passes_all` servers
    get all of the client's.

    `timeouts` of an entry are by key; a key with a dot is one in an object. `shared_timeout` is the key in the
    file, with dots, of the `timeout` of entries that have none. `has_rules` is True if files of this client hold
    rules for tools of its servers. `kinds` are the values of `type` that riglm supports. `members` are further ones
    of riglm's entry, and `preload_members` those by which the client loads all its tools at once, where it would
    defer them otherwise.
    """

    files: Mapping[str, str]
    project_files: tuple[str, ...] = ()
    key: str = "mcpServers"
    entry: Literal["plain", "typed", "opencode"] = "plain"
    variables: Literal["none", "shell", "editor", "dollar", "braces", "bash"] = "none"
    variable: str = ""
    variable_names: str = ""
    passes_all: bool = True
    timeouts: Mapping[str, ClientTimeout] = field(default_factory=dict)
    shared_timeout: str = ""
    has_rules: bool = False
    kinds: frozenset[str] = _KINDS
    members: Mapping[str, Any] = field(default_factory=dict)
    preload_members: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBehavior:
    """What is known of one client; `most_tools` is how many tools it takes, None where no bound is known.

    `key` is what `riglm init` calls it. `list_timeout` is the number of seconds that it is known to wait for a list.
    `starts_without_list`: its first model request does not wait for slow servers. `honors_hints`: it loads the tools
    with a preload hint and defers the others, unless its tool search is off. `format` is None for a client that
    `riglm init` does not set up. `unedited` is a YAML file with servers of such a client, under `extensions`.
    """

    key: str
    title: str
    names: tuple[str, ...]
    list_changed_support: ListChangedSupport
    most_tools: int | None = None
    list_timeout: float = DEFAULT_LIST_TIMEOUT_SECONDS
    starts_without_list: bool = False
    honors_hints: bool = False
    format: ClientFormat | None = field(default=None, hash=False)
    unedited: str = ""

    @property
    def follows_changes(self) -> bool:
        """Whether a list that changes within a session is of use to it."""
        return self.list_changed_support in {ListChangedSupport.YES, ListChangedSupport.LATE}


CLIENTS: Final = msgspec.json.decode(
    Path(__file__).with_name("clients.json").read_bytes(), type=tuple[ClientBehavior, ...]
)
"""Measured with Claude Code, Codex, opencode, Gemini CLI, Copilot CLI, Qwen Code, Cline and Continue in November 2026.

VS Code and Crush were read in their source, the others are reported. Kiro and Goose are taken from their documentation.
"""


FORMATS: Final = {known.key: known.format for known in CLIENTS if known.format is not None}
"""The clients that `riglm init` sets up, by the names that `--client` takes."""


def support_by_key(key: str) -> ClientBehavior | None:
    """What is known of a client by what `riglm init` calls it; None when there is no such."""
    return next((known for known in CLIENTS if known.key == key), None)


@lru_cache(_MAX_NAMES)
def support_of(name: str) -> ClientBehavior | None:
    """Return what is known of a client by its name; None for an unknown one."""
    folded = name.casefold()
    return next((known for known in CLIENTS if any(fnmatchcase(folded, each) for each in known.names)), None)


NO_TOOL_SEARCH: Final = "no_tool_search"
"""The key of a session's metadata that holds why its client may load every tool, with or without a preload hint."""

_IGNORES_BASE_URL: Final = (2, 1, 330)
"""The first known version of Claude Code that searches for tools with any base URL."""

_ON: Final = frozenset({"true", "1", "yes", "on", "auto:0"})
_PLAIN: Final = re.compile(r"[a-z0-9:._-]{1,16}")
_FIRST_PARTY: Final = re.compile(r"(?:.+\.)?anthropic\.com")


def no_tool_search(client: ClientInfo, environment: Mapping[str, str]) -> str:
    """Return why a client that honors preload hints may load every tool; empty if it surely defers, or honors none.

    `environment` is that of the client's server process. For Claude Code it shows the mode, but not the model.
    """
    known = support_of(client.name)
    if known is None or not known.honors_hints:
        return ""
    if _is_set(environment, "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS"):
        return "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS is set"
    if mode := environment.get("ENABLE_TOOL_SEARCH", "").strip().lower():
        return "" if mode in _ON else f"ENABLE_TOOL_SEARCH is {mode if _PLAIN.fullmatch(mode) else 'not valid'}"
    if _is_set(environment, "CLAUDE_CODE_USE_VERTEX"):
        return "CLAUDE_CODE_USE_VERTEX is set"
    url = environment.get("ANTHROPIC_BASE_URL", "").strip()
    version = tuple(map(int, re.findall(r"\d{1,9}", client.version)[:3]))
    if url and not _FIRST_PARTY.fullmatch(_host(url)) and version < _IGNORES_BASE_URL:
        return "ANTHROPIC_BASE_URL is not Anthropic's"
    return ""


def _host(url: str) -> str:
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() not in {"", "0", "false", "no", "off"}


class ChosenSurface(NamedTuple):
    """The surface for a client, and why. With `has_hints`, the tools of a short list have preload hints."""

    surface: Surface
    reason: str
    has_hints: bool = False


def choose_surface(  # noqa: PLR0911  # one return for each reason
    name: str, era: ProtocolEra, by_client: Mapping[str, str], no_search: str = "", configured: str = "auto"
) -> ChosenSurface:
    """Return the `configured` surface; if that is `auto`, the one for a client by what it calls itself, or by its era.

    `by_client` has glob patterns for names, the first that fits counts; they are compared without regard to case.
    `no_search` is what `no_tool_search` said. Names are self-reported, which is good enough for a choice that is no
    right.
    """
    if configured != "auto":
        return ChosenSurface(Surface(configured), "`filtering.surface` is set")
    for pattern, surface in by_client.items():
        if fnmatchcase(name.casefold(), pattern.casefold()):
            return ChosenSurface(Surface(surface), f"`filtering.clients` has {pattern}")
    known = support_of(name)
    if known is not None and known.honors_hints:
        if no_search:
            return ChosenSurface(Surface.STABLE, f"it may load every tool, since {no_search}", has_hints=True)
        return ChosenSurface(Surface.HINTS, "it loads the tools with preload hints and searches for others")
    if era is ProtocolEra.MODERN:
        return ChosenSurface(Surface.STABLE, "lists of the modern era are the same for all sessions")
    if known is not None and not known.follows_changes:
        return ChosenSurface(Surface.STABLE, "the first list counts")
    return ChosenSurface(Surface.DYNAMIC, "a changed list may reach it")


def most_tools_of(name: str) -> int | None:
    """Return how many tools a client takes by what it calls itself; None where no bound is known."""
    known = support_of(name)
    return None if known is None else known.most_tools


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
