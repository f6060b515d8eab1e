"""Changes that commands make to configuration files: single settings changed."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from riglm.adapters.configuration.loading import Configuration, Options, load
from riglm.adapters.configuration.persisting import ConfigurationDocuments, Replacement
from riglm.adapters.configuration.problem import setter_of
from riglm.domain.control import ControlError
from riglm.domain.errors import ConfigurationError
from riglm.domain.exposure import Mode

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
