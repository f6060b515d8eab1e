"""Whether what a configuration names is there: programs, directories, stores, predictors, embedders."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.variables import Expansion
from riglm.domain.errors import ConfigurationError
from riglm.domain.redaction import mask_command
from riglm.domain.schemas.problems import ConfigProblem, dotted, origin_of, problems_in, refusal, refuse_any
from riglm.domain.schemas.section import OWN_KINDS, OWN_PROVIDERS
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.upstream import UpstreamSpec


def require_upstreams(
    configuration: Configuration,
    environment: Mapping[str, str] | None = None,
    *,
    every: bool = True,
    directory: Path | None = None,
) -> None:
    """Raise ConfigurationError unless there is a server in use and each one's program and directory exist.

    Without `every` it is enough that those of one exist: the others are left out and logged. They are started
    in `directory`, if that is another than this process is in.
    """
    environment = os.environ if environment is None else environment
    settings = configuration.settings
    specs = [started_in(directory, spec) for spec in settings.upstream_specs()]
    if not specs:
        fix = "run `riglm run -- COMMAND` or `riglm run --url URL`, or name servers in riglm.yaml under mcpServers"
        raise refusal("command line", "", "there is no server to proxy", fix)
    missing = [missing_parts(spec, configuration, environment) for spec in specs]
    if every or all(missing):
        refuse_any(problem for problems in missing for problem in problems)


def load_server(
    name: str, definition: Mapping[str, Any], directory: Path | None, *, environment: Mapping[str, str]
) -> ServerSettings:
    """Return the settings of a server that is started in a directory, if one is known.

    Raises:
        ConfigurationError: riglm would not start with it; the message is the reason only.
    """
    expansion = Expansion(name, environment)
    values = expansion({"mcpServers": {name: dict(definition)}})
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


def started_in(directory: Path | None, spec: UpstreamSpec) -> UpstreamSpec:
    """A server as it is where riglm is started in another directory: paths that are not whole begin there."""
    if directory is None or spec.kind != "stdio":
        return spec
    return replace(spec, cwd=str(directory / (spec.cwd or "")))


def require_predictor(configuration: Configuration) -> None:
    """Raise ConfigurationError unless the predictor is built in or installed.

    Only names are looked at: a start waits for no predictor to be imported.
    """
    kind = configuration.settings.predictor.kind
    if kind not in OWN_KINDS:
        from riglm.ports.predictor import PREDICTORS

        _require_named(configuration, ("predictor", "kind"), "predictor", kind, PREDICTORS.names())


def require_embedder(configuration: Configuration) -> None:
    """Raise ConfigurationError unless the embedder is built in or installed."""
    provider = configuration.settings.embedder.provider
    if provider not in OWN_PROVIDERS:
        from riglm.ports.predictor import EMBEDDERS

        known = {*OWN_PROVIDERS, *EMBEDDERS.names()}
        _require_named(configuration, ("embedder", "provider"), "embedder", provider, known)


def require_store_file(configuration: Configuration, file: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raise ConfigurationError unless the store's file can be used, or made; nothing is made for it.

    `is_ours` returns whether an existing file is, or was, a database, and raises `OSError`.
    """
    what, fix = f"{str(file)!r} cannot be used as a store", "name a file that you may write, or that can be made"
    try:
        directory = next(parent for parent in file.absolute().parents if parent.exists())
        is_usable = directory.is_dir() and os.access(directory, os.W_OK | os.X_OK) and "\0" not in str(file)
        if is_usable and file.exists():
            is_usable = file.is_file() and os.access(file, os.R_OK | os.W_OK)
            if is_usable and not is_ours(file):
                is_usable, what, fix = False, f"{str(file)!r} is a file of something else", "name a different one"
    except (OSError, ValueError) as error:
        is_usable, what = False, f"{what}: {error}"
    if not is_usable:
        path = ("storage", "path")
        raise refusal(origin_of(path, configuration.origins, "default"), dotted(path), what, fix)


def require_all(*checks: Callable[[], object]) -> None:
    """Raise one ConfigurationError that says all that the checks have to say."""
    wrong = []
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigurationError("\n".join(wrong))


def _require_named(
    configuration: Configuration, path: tuple[str, str], what: str, name: str, there: Collection[str]
) -> None:
    known = sorted(there)
    if name in known:
        return
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    fix = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
    source = origin_of(path, configuration.origins, "default")
    raise refusal(source, dotted(path), f"no {what} is called {name!r}", fix)


def missing_parts(
    spec: UpstreamSpec, configuration: Configuration, environment: Mapping[str, str]
) -> list[ConfigProblem]:
    """Why a server cannot be started: its program or its directory is not there."""
    if spec.kind != "stdio":
        return []
    path = ("upstream",) if configuration.settings.upstream else ("mcpServers", spec.name)

    def problem(key: str, what: str, fix: str) -> list[ConfigProblem]:
        place = (*path, key)
        return [ConfigProblem(origin_of(place, configuration.origins, "riglm"), dotted(place), what, fix)]

    if spec.cwd is not None and not Path(spec.cwd).is_dir():
        return problem("cwd", f"there is no directory {spec.cwd!r}", "create it, or name another")
    program = spec.command[0]
    if _found(program, spec, environment):
        return []
    words, shown = program.split(), mask_command(program.split())
    what = f"the program {' '.join(shown)!r} was not found"
    if len(words) > 1 and _found(words[0], spec, environment):
        fix = f"write `command: {words[0]}` and `args: [{', '.join(shown[1:])}]`: no shell splits the words"
        return problem("command", what, fix)
    return problem("command", what, "install it, correct it, or give its full path")


def _found(program: str, spec: UpstreamSpec, environment: Mapping[str, str]) -> bool:
    if "/" in program:
        return shutil.which(Path(spec.cwd or ".") / program) is not None
    return shutil.which(program, path=spec.env.get("PATH", environment.get("PATH"))) is not None
