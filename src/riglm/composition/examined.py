"""The configurations that `riglm doctor` examines, and what keeps riglm from starting with them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from riglm.adapters.configuration.loading import FILE_NAME, Configuration, Options, load
from riglm.adapters.configuration.presence import missing_parts, require_embedder, require_predictor, started_in
from riglm.application.examining.unvisited import Missing
from riglm.composition.prediction import build_predictor
from riglm.domain.errors import ConfigurationError
from riglm.domain.installation import ENTRY, Installation
from riglm.domain.upstream import UpstreamSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One configuration that is examined.

    `problems` say why it cannot be used; `configuration` is then what can be told of it without its servers, if
    anything can. `label` is empty where there is only one; `client` is the one that riglm serves by it, if it is one,
    `entry` what it calls riglm, and `project` the directory in which it starts it, if it is that of a project.
    """

    label: str
    configuration: Configuration | None
    problems: str = ""
    client: str = ""
    entry: str = ENTRY
    project: Path | None = None

    def specs(self) -> list[UpstreamSpec]:
        """The servers as the client has them started: paths that are not whole begin in its project."""
        found = self.configuration.settings.upstream_specs() if self.configuration is not None else []
        return [started_in(self.project, each) for each in found]

    def missing(self) -> Mapping[str, Missing]:
        """By name, the servers that cannot be started because something is not there."""
        found = {}
        for spec in self.specs():
            for problem in missing_parts(spec, self.configuration, os.environ) if self.configuration else ():
                is_program = problem.path.endswith(".command") and " " not in spec.command[0]
                found[spec.name] = Missing(spec, problem.what, problem.fix, is_program)
        return found


def in_use(options: Options, installed: Sequence[Installation]) -> list[tuple[Options, Installation | None]]:
    """The configuration in use, or where none is named or found, those that clients start riglm with.

    With each is what `riglm init` did when it made it.
    """
    is_named = options.config is not None or options.mcp_json is not None or Path(FILE_NAME).is_file()
    files = {each.configuration: each for each in installed if each.configuration.is_file()}
    if is_named or not files:
        return [(options, files.get(options.config.absolute()) if options.config is not None else None)]
    return [(Options(config=file), each) for file, each in files.items()]


def subjects_of(options: Options, installed: Sequence[Installation]) -> list[Subject]:
    """What is examined of the configurations in use."""
    found = in_use(options, installed)
    labels = [each.config.stem if each.config and len(found) > 1 else "" for each, _ in found]  # a client may have many
    return [_subject(*each, label) for each, label in zip(found, labels, strict=True)]


def _subject(options: Options, served: Installation | None, label: str = "") -> Subject:
    configuration: Configuration | None
    try:
        configuration = load(options)
        problems = "\n".join(_problems(configuration))
    except ConfigurationError as error:
        configuration, problems = _without_servers(options), str(error)
    return Subject(
        label=label,
        configuration=configuration,
        problems=problems,
        client=served.client if served is not None else "",
        entry=served.entry if served is not None else ENTRY,
        project=served.place.project if served is not None else None,
    )


def _without_servers(options: Options) -> Configuration | None:
    try:
        return load(Options(config=options.config, with_servers=False))
    except ConfigurationError:
        return None


def _problems(configuration: Configuration) -> list[str]:
    """All that keeps riglm from starting so, but what is missing of single servers."""
    from riglm.adapters.embedding import plugged
    from riglm.adapters.embedding.building import require_known_model
    from riglm.adapters.prediction import selection

    settings = configuration.settings

    def predictor() -> None:
        require_predictor(configuration, selection.available)
        build_predictor(settings)

    def embedder() -> None:
        require_embedder(configuration, plugged.available)
        require_known_model(settings.embedder)

    found: dict[str, None] = {}
    for require in (predictor, embedder):
        try:
            require()
        except ConfigurationError as error:
            found |= dict.fromkeys(str(error).splitlines())
    return list(found)
