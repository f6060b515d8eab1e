"""The file in which a client keeps its servers, read as ours."""

from pathlib import Path
from typing import Any

from riglm.adapters.configuration import document
from riglm.adapters.configuration.document import Document
from riglm.adapters.configuration.problem import Problem, refusal
from riglm.adapters.configuration.shape import keys_at

_SERVER_KEYS = frozenset(keys_at(("upstream",)))
_ALIASES = frozenset({"serverUrl", "httpUrl", "environment", "transport"})
_ONLY_OF_COMMANDS = frozenset({"args", "env", "environment", "cwd"})
_ONLY_OF_URLS = frozenset({"headers", "auth"})
_URLS = ("url", "serverUrl", "httpUrl")


def read(file: Path) -> Document:
    """A client's servers as our `mcpServers`; what riglm does not know is left out, and so is what is disabled.

    Takes `mcpServers` (Claude, Cursor and most others) and `servers` (VS Code).
    """
    found = document.read(file)
    shapes = [key for key in ("mcpServers", "servers") if isinstance(found.values.get(key), dict)]
    if not shapes:
        raise refusal(Problem(found.source, "", "the file lists no servers", 'give it "mcpServers": {"NAME": {...}}'))
    servers = found.values[shapes[0]]
    ours = {name: _known(server) for name, server in servers.items() if not _is_off(server)}
    return Document(found.source, {"mcpServers": ours}, found.problems)


def _is_off(server: Any) -> bool:
    return isinstance(server, dict) and (server.get("disabled") is True or server.get("enabled") is False)


def _known(server: Any) -> Any:
    if not isinstance(server, dict):
        return server
    reached_by_url = any(server.get(key) for key in _URLS) and not server.get("command")
    foreign = _ONLY_OF_COMMANDS if reached_by_url else _ONLY_OF_URLS
    wanted = (_SERVER_KEYS | _ALIASES) - foreign
    return {key: value for key, value in server.items() if key in wanted and value is not None}
