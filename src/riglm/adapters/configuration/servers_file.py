"""Adds servers to riglm's configuration without losing what people wrote into it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from riglm.adapters.configuration import yaml_text
from riglm.adapters.configuration.expansion import Expansion
from riglm.adapters.configuration.problem import Problem, refusal
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings
from riglm.ports.clients import ServersFilePort

_SERVERS: Final = "mcpServers"
_START: Final = "filtering:\n  mode: shadow\n"


class ServersFile(ServersFilePort):
    """Configurations in YAML; servers are tried with the variables of an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """The environment is the one that riglm will start in, as far as it is known."""
        self._environment = environment

    def servers(self, file: Path, content: bytes | None) -> Mapping[str, Any]:
        """The servers in this version of the file."""
        if content is None:
            return {}
        try:
            values = yaml.safe_load(content.decode("utf-8-sig")) or {}
            if not isinstance(values, dict) or "upstream" in values:
                raise refusal(
                    Problem(str(file), "", "it holds no `mcpServers`", "rename it, so that riglm makes another")
                )
        except (UnicodeDecodeError, yaml.YAMLError):
            raise refusal(Problem(str(file), "", "this is not YAML", "mend it")) from None
        servers = values.get(_SERVERS) or {}
        return servers if isinstance(servers, dict) else {}

    def fault(self, name: str, definition: Mapping[str, Any], directory: Path | None) -> str:
        """Why riglm would not start with this server, or nothing; it is started in the directory, if one is known."""
        from riglm.adapters.configuration.explanation import problems_in
        from riglm.adapters.configuration.loading import Configuration
        from riglm.adapters.configuration.presence import require_upstreams

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

    def with_servers(self, content: bytes | None, servers: Mapping[str, Mapping[str, Any]], head: str) -> bytes:
        """The file with servers added; a new one begins with the comment lines of `head`, in shadow mode."""
        if content is None:
            content = (head + _START).encode()
        bom = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
        text = content.removeprefix(bom).decode("utf-8")
        wanted = yaml.safe_load(text) or {}
        for name, definition in servers.items():
            text = yaml_text.with_value(text, (_SERVERS, name), dict(definition))
        wanted[_SERVERS] = {**(wanted.get(_SERVERS) or {}), **{name: dict(each) for name, each in servers.items()}}
        if yaml.safe_load(text) != wanted:
            raise refusal(
                Problem("riglm's configuration", "", "servers cannot be added to it faithfully", "add them by hand")
            )
        return bom + text.encode("utf-8")
