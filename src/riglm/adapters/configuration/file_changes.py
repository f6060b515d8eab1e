"""Changes that commands make to configuration files: servers added, single settings changed."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from riglm.adapters.configuration import yaml_text
from riglm.adapters.configuration.loading import Configuration, Options, load
from riglm.adapters.configuration.persisting import ConfigurationDocuments, Replacement
from riglm.adapters.configuration.problem import ConfigProblem, Expansion, refusal, setter_of
from riglm.domain.control import ControlError
from riglm.domain.errors import ConfigurationError
from riglm.domain.exposure import Mode
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.clients import ServersFilePort

_SERVERS: Final = "mcpServers"
_START: Final = "filtering:\n  mode: shadow\n"


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
            if not isinstance(values, dict) or "upstream" in values:
                raise refusal(
                    ConfigProblem(str(file), "", "it holds no `mcpServers`", "rename it, so that riglm makes another")
                )
        except (UnicodeDecodeError, yaml.YAMLError):
            raise refusal(ConfigProblem(str(file), "", "this is not YAML", "mend it")) from None
        servers = values.get(_SERVERS) or {}
        return servers if isinstance(servers, dict) else {}

    def fault(self, name: str, definition: Mapping[str, Any], directory: Path | None) -> str:
        from riglm.adapters.configuration.loading import Configuration
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
        if content is None:
            content = (head + _START).encode()
        bom = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
        text = content.removeprefix(bom).decode("utf-8")
        wanted = yaml.safe_load(text) or {}
        if wanted.get(_SERVERS):
            for name, definition in servers.items():
                text = yaml_text.with_value(text, (_SERVERS, name), dict(definition))
        else:
            text = yaml_text.with_value(text, (_SERVERS,), {name: dict(each) for name, each in servers.items()})
        wanted[_SERVERS] = {**(wanted.get(_SERVERS) or {}), **{name: dict(each) for name, each in servers.items()}}
        if yaml.safe_load(text) != wanted:
            raise refusal(
                ConfigProblem(
                    "riglm's configuration", "", "servers cannot be added to it faithfully", "add them by hand"
                )
            )
        return bom + text.encode("utf-8")


_MODE = ("filtering", "mode")
_ENABLED = ("filtering", "enabled")
_ELSEWHERE = ", or leave persist out"
"""What only callers of the control API can do."""


@dataclass(frozen=True, slots=True)
class ModeSwitch:
    """A file that is to say another mode of filtering: what it says now, and the lines that change.

    `replacement` is next to the file and None if the file has the setting already; it must be taken over or discarded.
    `strategy` is `filtering.strategy`, since a mode only matters where something is predicted.
    """

    file: Path
    before: str
    strategy: str
    lines: tuple[str, ...]
    replacement: Replacement | None


def switch_mode(
    file: Path, mode: Mode, *, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> ModeSwitch:
    """Make a file ready that says this mode; nothing else of it changes, comments and order included.

    Raises:
        ConfigurationError: the file cannot be used or changed, or something else than the file decides.
    """
    environment = os.environ if environment is None else environment
    found = load(Options(config=file, with_servers=False), environment=environment, directory=directory)
    _require_effect(found, file, mode)
    rules = found.settings.filtering
    try:
        documents = ConfigurationDocuments(found, environment, directory)
        replacement = documents.write_temporary(found.settings, {"filtering": {"mode": mode}}, lambda _: True)
    except ControlError as error:
        raise ConfigurationError(str(error).replace(_ELSEWHERE, "")) from error
    lines: tuple[str, ...] = ()
    if replacement is not None:
        before, after = ((directory or Path.cwd()) / file).read_bytes(), replacement.path.read_bytes()
        lines = _changed(before, after)
    return ModeSwitch(file, rules.mode, rules.strategy, lines, replacement)


def _require_effect(found: Configuration, file: Path, mode: Mode) -> None:
    setter = setter_of(_MODE, found.origins)
    if setter not in {None, "default", str(file)}:
        raise ConfigurationError(
            f"filtering.mode: {setter} sets it to {found.settings.filtering.mode}, so what {file} says would not count "
            f"— fix: remove {setter}, or change it"
        )
    if mode == "enforce" and not found.settings.filtering.enabled:
        raise ConfigurationError(
            f"filtering.enabled: {setter_of(_ENABLED, found.origins)} sets it to false, so nothing would be hidden — "
            "fix: remove it first"
        )


def _changed(before: bytes, after: bytes) -> tuple[str, ...]:
    old, new = (each.decode("utf-8-sig", "replace").splitlines() for each in (before, after))
    lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    return tuple(line for line in lines if not line.startswith("@@"))
