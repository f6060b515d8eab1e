"""How each client writes servers down: one table has the differences between clients."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from riglm.adapters.clients import references

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client's way of writing.

    `pattern` finds the variables that it replaces, `variable` writes one. With `passes_all` servers see all
    variables that the client does; to others riglm's entry must name those that it needs. `entry` makes an entry of
    riglm's command line and of variables for it. `waits` are its words for how long it waits for a server, each with
    what holds where nothing is said.
    """

    pattern: re.Pattern[str]
    entry: Callable[[Sequence[str], Mapping[str, str]], Entry]
    variable: str = ""
    passes_all: bool = True
    waits: Mapping[str, float] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset({"stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"})


def _plain(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"command": words[0], "args": list(words[1:]), **({"env": dict(env)} if env else {})}


def _typed(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"type": "stdio", **_plain(words, env)}


def _opencode(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {
        "type": "local",
        "command": list(words),
        "enabled": True,
        **({"environment": dict(env)} if env else {}),
    }


_BY_CLIENT: Final = {
    "claude-code": Dialect(pattern=references.SHELL, entry=_typed, variable="${%s:-}"),
    "claude-desktop": Dialect(pattern=references.NEVER, entry=_plain),
    "cursor": Dialect(pattern=references.EDITOR, entry=_plain, variable="${env:%s}", passes_all=False),
    "vscode": Dialect(pattern=references.EDITOR, entry=_typed, variable="${env:%s}"),
    "codex": Dialect(
        pattern=references.NEVER,
        entry=_plain,
        passes_all=False,
        waits={"startup_timeout_sec": 10, "tool_timeout_sec": 60},
    ),
    "gemini": Dialect(
        pattern=references.DOLLAR, entry=_plain, variable="$%s", passes_all=False, waits={"timeout": 600_000}
    ),
    "opencode": Dialect(
        pattern=references.BRACES,
        entry=_opencode,
        variable="{env:%s}",
        waits={"timeout": 5_000},
        kinds=frozenset({"local", "remote"}),
    ),
    "zed": Dialect(pattern=references.NEVER, entry=_plain),
    "windsurf": Dialect(pattern=references.EDITOR, entry=_plain, variable="${env:%s}", passes_all=False),
    "cline": Dialect(
        pattern=references.EDITOR, entry=_plain, variable="${env:%s}", passes_all=False, waits={"timeout": 60}
    ),
}


def dialect_of(client: str) -> Dialect:
    """The way in which a client writes."""
    return _BY_CLIENT[client]
