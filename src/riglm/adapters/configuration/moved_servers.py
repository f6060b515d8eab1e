"""Servers that `riglm init` moves: read from, tried for and written to a configuration that riglm makes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.problem import ConfigProblem, Expansion, refusal
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.clients import ServersFilePort

_SERVERS: Final = "mcpServers"
_BLOCK: Final = re.compile(rf"(?m)^{_SERVERS}:[ \t]*(?:#.*)?\r?\n(?=([ \t]*))")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


class ServersFile(ServersFilePort):
    """Configurations in YAML; servers are tried with the variables of an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is the environment that riglm will start in, if known."""
        self._environment = environment

    def servers(self, file: Path, content: bytes | None) -> Mapping[str, Any]:
        if content is None:
            return {}
        try:
            values = yaml.safe_load(content.decode("utf-8-sig")) or {}
        except (UnicodeDecodeError, yaml.YAMLError):
            raise refusal(ConfigProblem(str(file), "", "this is not YAML", "correct it")) from None
        if not isinstance(values, dict) or "upstream" in values:
            raise refusal(ConfigProblem(str(file), "", "it holds no `mcpServers`", "rename it, and run this again"))
        servers = values.get(_SERVERS) or {}
        return servers if isinstance(servers, dict) else {}

    def fault(self, name: str, definition: Mapping[str, Any], directory: Path | None) -> str:
        from riglm.adapters.configuration.presence import require_upstreams
        from riglm.adapters.configuration.problem import problems_in

        expansion = Expansion(name, self._environment)
        values = expansion({_SERVERS: {name: dict(definition)}})
        if expansion.problems:
            return expansion.problems[0].what
        try:
            settings = Settings.model_validate(values)
            require_upstreams(Configuration(settings, {}), self._environment, directory=directory)
        except ValidationError as error:
            return problems_in(error, {}, name)[0].what
        except ConfigurationError as error:
            return str(error).partition(": ")[2].partition(": ")[2].partition(" — fix")[0] or str(error)
        return ""

    def settings(self, name: str, definition: Mapping[str, Any]) -> ServerSettings:
        values = Expansion(name, self._environment)({_SERVERS: {name: dict(definition)}})
        return Settings.model_validate(values).mcp_servers[name]

    def with_servers(self, content: bytes | None, servers: Mapping[str, Mapping[str, Any]], head: str) -> bytes:
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
        if (block is None and _SERVERS in values) or yaml.safe_load(new) != wanted:
            raise refusal(
                ConfigProblem(
                    "riglm's configuration",
                    "",
                    f"it was edited so that riglm cannot add {', '.join(added)} to it",
                    f"write `{_SERVERS}:` there in a separate line, with the servers indented below it",
                )
            )
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
