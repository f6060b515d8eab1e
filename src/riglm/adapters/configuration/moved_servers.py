"""Servers that `riglm init` moves: read from, tried for and written to a configuration that riglm makes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from riglm.adapters.configuration.expansion import Expansion
from riglm.adapters.configuration.loading import Configuration
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.problems import problems_in, refusal
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings

_SERVERS: Final = "mcpServers"
_BLOCK: Final = re.compile(rf"(?m)^{_SERVERS}:[ \t]*(?:#.*)?\r?\n(?=([ \t]*))")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def read_servers(file: Path, content: bytes | None) -> dict[str, Any]:
    """Return the servers in a version of a configuration.

    Raises:
        ConfigurationError: it is no configuration.
    """
    try:
        values = {} if content is None else yaml.safe_load(content.decode("utf-8-sig")) or {}
    except (UnicodeDecodeError, yaml.YAMLError):
        raise refusal(str(file), "", "this is not YAML", "correct it") from None
    if not isinstance(values, dict) or "upstream" in values:
        raise refusal(str(file), "", "it holds no `mcpServers`", "rename it, and run this again")
    servers = values.get(_SERVERS) or {}
    return servers if isinstance(servers, dict) else {}


def load_server(
    name: str, definition: Mapping[str, Any], directory: Path | None, *, environment: Mapping[str, str]
) -> ServerSettings:
    """Return the settings of a server that is started in a directory, if one is known.

    Raises:
        ConfigurationError: riglm would not start with it; the message is the reason only.
    """
    from riglm.adapters.configuration.presence import require_upstreams

    expansion = Expansion(name, environment)
    values = expansion({_SERVERS: {name: dict(definition)}})
    if expansion.problems:
        raise ConfigurationError(expansion.problems[0].what)
    try:
        settings = Settings.model_validate(values)
        require_upstreams(Configuration(settings, {}), environment, directory=directory)
    except ValidationError as error:
        raise ConfigurationError(problems_in(error, {}, name)[0].what) from None
    except ConfigurationError as error:
        what = str(error).partition(": ")[2].partition(": ")[2].partition(" — fix")[0]
        raise ConfigurationError(what or str(error)) from None
    return settings.mcp_servers[name]


def add_servers(content: bytes | None, servers: Mapping[str, Mapping[str, Any]], head: str) -> bytes:
    """Return a configuration with servers added; a new one begins with the comment lines of `head`, in shadow mode.

    Raises:
        ConfigurationError: it cannot be changed faithfully.
    """
    added = {name: dict(definition) for name, definition in servers.items()}
    if content is None:
        return (head + _dump({"filtering": {"mode": "shadow"}, _SERVERS: added})).encode()
    text = content.decode("utf-8-sig")
    values = yaml.safe_load(text) or {}
    block = _BLOCK.search(text)
    if block is not None:
        lines = _dump(added).splitlines(keepends=True)
        step = block[1] or "  "
        new = text[: block.end()] + "".join(step + line for line in lines) + text[block.end() :]
    else:
        new = text + ("" if text.endswith("\n") else "\n") + _dump({_SERVERS: added})
    wanted = {**values, _SERVERS: {**added, **(values.get(_SERVERS) or {})}}
    try:
        is_right = (block is not None or _SERVERS not in values) and yaml.safe_load(new) == wanted
    except yaml.YAMLError:
        is_right = False
    if not is_right:
        what = f"it was edited so that riglm cannot add {', '.join(added)} to it"
        fix = f"write `{_SERVERS}:` there in a separate line, with the servers indented below it"
        raise refusal("riglm's configuration", "", what, fix)
    return content[: len(content) - len(text.encode())] + new.encode()


class _Dumper(yaml.SafeDumper):
    """Writes texts in one line, as JSON does, and equal values out, each in its place."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if _PLAIN.fullmatch(data) else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def _dump(values: Mapping[str, Any]) -> str:
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
