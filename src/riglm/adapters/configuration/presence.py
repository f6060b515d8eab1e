"""Whether the programs and directories that a configuration names are there."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.problem import Problem, dotted, origin_of, refusal, refuse_any
from riglm.domain.upstream import UpstreamSpec


def require_upstreams(configuration: Configuration, environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError unless there is a server in use and each one's program and directory exist."""
    environment = os.environ if environment is None else environment
    settings = configuration.settings
    specs = settings.upstream_specs()
    if not specs:
        fix = "run `riglm run -- COMMAND` or `riglm run --url URL`, or name servers in riglm.yaml under mcpServers"
        raise refusal(Problem("command line", "", "there is no server to stand in front of", fix))
    refuse_any(problem for spec in specs for problem in _missing(spec, configuration, environment))


def _missing(spec: UpstreamSpec, configuration: Configuration, environment: Mapping[str, str]) -> list[Problem]:
    if spec.kind != "stdio":
        return []
    path = ("upstream",) if configuration.settings.upstream else ("mcpServers", spec.name)

    def problem(key: str, what: str, fix: str) -> list[Problem]:
        place = (*path, key)
        return [Problem(origin_of(place, configuration.origins, "riglm"), dotted(place), what, fix)]

    if spec.cwd is not None and not Path(spec.cwd).is_dir():
        return problem("cwd", f"there is no directory {spec.cwd!r}", "create it, or name another")
    program = spec.command[0]
    if _found(program, spec, environment):
        return []
    words = program.split()
    if len(words) > 1 and _found(words[0], spec, environment):
        fix = f"write `command: {words[0]}` and `args: [{', '.join(words[1:])}]`: no shell splits the words"
        return problem("command", f"the program {program!r} was not found", fix)
    return problem("command", f"the program {program!r} was not found", "install it, correct it, or give its full path")


def _found(program: str, spec: UpstreamSpec, environment: Mapping[str, str]) -> bool:
    if "/" in program:
        return shutil.which(Path(spec.cwd or ".") / program) is not None
    return shutil.which(program, path=spec.env.get("PATH", environment.get("PATH"))) is not None
