"""`riglm config`: look at the configuration before anything runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, print_json
from riglm.cli.store_access import opened, overlaid, read_setting_changes, settings_of
from riglm.domain.errors import ConfigurationError, UnusableInputError

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Configuration
    from riglm.domain.client_setup import ClientSetup

app = typer.Typer(help="Check and show the configuration.", rich_markup_mode=None, no_args_is_help=True)


@app.command()
def check(config: ConfigOption = None, mcp_json: McpJsonOption = None, as_json: JsonOption = False) -> None:
    """Check whether riglm can start with this configuration, and report all errors.

    Where none is named and there is no riglm.yaml here, those that `riglm init` made are checked. The predictor is made
    with its options. A model of the embedder that cannot be loaded is a note, not an error, since a fallback is used.
    Servers are not started.
    """
    from riglm.adapters.configuration.loading import Options, load
    from riglm.adapters.configuration.presence import require_all
    from riglm.cli.setup_access import configurations_in_use, installations

    found = configurations_in_use(Options(config=config, mcp_json=mcp_json), installations())
    checked: list[tuple[Configuration, list[str]]] = []

    def examine(options: Options, made: "ClientSetup | None") -> None:
        configuration = overlaid(load(options))
        checked.append((configuration, _checked(configuration, made.place.project if made is not None else None)))

    require_all(*(partial(examine, options, made) for options, made in found))
    notes = dict.fromkeys(note for _, noted in checked for note in noted)
    servers = [[spec.name for spec in configuration.settings.upstream_specs()] for configuration, _ in checked]
    if as_json:
        print_json({"servers": [name for names in servers for name in names], "notes": list(notes)})
        return
    for note in notes:
        typer.echo(f"riglm: {note}", err=True)
    for (options, made), names in zip(found, servers, strict=True):
        which = f"{options.config}: " if made is not None else ""
        typer.echo(f"{which}the configuration is good; servers: {', '.join(names)}")


@app.command()
def show(config: ConfigOption = None, mcp_json: McpJsonOption = None, as_json: JsonOption = False) -> None:
    """Show every setting and where it comes from. Secrets stay covered.

    Settings that were changed while riglm runs are kept in the store, above the file and the environment.
    """
    from riglm.adapters.configuration.loading import Options, list_values, load

    configuration = overlaid(load(Options(config=config, mcp_json=mcp_json)))
    for warning in configuration.warnings:
        typer.echo(f"riglm: {warning}", err=True)
    lines = list_values(configuration)
    if as_json:
        print_json({path: {"value": value, "source": source} for path, value, source in lines})
        return
    for path, value, source in lines:
        typer.echo(f"{path}: {_written(value)}  # {source}")


KeysArgument = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Settings or sections; all by default.")]


@app.command()
def reset(key: KeysArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Remove settings that were changed while riglm runs: the file and the environment count again.

    Processes that run follow within seconds.
    """
    settings = settings_of(config)
    stored = read_setting_changes(settings)
    for each in key or ():
        if not any(_is_within(row, each) for row in stored):
            known = f"one of {', '.join(stored)}" if stored else "leave it out, since no setting was changed"
            raise UnusableInputError(f"{each}: this was not changed at run time — fix: {known}")
    chosen = [row for row in stored if not key or any(_is_within(row, each) for each in key)]
    if chosen:
        with opened(settings) as store:
            store.delete_setting_changes(chosen)
    if as_json:
        print_json({"reset": chosen})
        return
    typer.echo(f"reset: {', '.join(chosen)}" if chosen else "no setting was changed at run time")


def _is_within(row: str, key: str) -> bool:
    return row == key or row.startswith(f"{key}.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of riglm.yaml, for editors."""
    from riglm.domain.schemas.settings import json_schema

    print_json(json_schema())


def _checked(configuration: "Configuration", project: Path | None) -> list[str]:
    """What there is to note of a configuration that riglm can start with, in a project's directory if it is for one.

    Raises:
        ConfigurationError: it cannot.
    """
    from riglm.adapters.configuration.presence import require_all, require_upstreams

    require_all(
        lambda: require_upstreams(configuration, directory=project),
        lambda: _require_predictor(configuration),
        lambda: _require_model(configuration),
    )
    return _notes(configuration)


def _require_predictor(configuration: "Configuration") -> None:
    from riglm.adapters.configuration.presence import require_predictor
    from riglm.adapters.prediction import available
    from riglm.container import Container

    require_predictor(configuration, available)
    with _placed(configuration):
        Container(settings=configuration.settings).predictor()


def _require_model(configuration: "Configuration") -> None:
    from riglm.adapters.configuration.presence import require_embedder
    from riglm.adapters.embedding.embedders import available, require_known_model

    require_embedder(configuration, available)
    with _placed(configuration):
        require_known_model(configuration.settings.embedder)


@contextmanager
def _placed(configuration: "Configuration") -> Iterator[None]:
    """Put the file, variable or option before errors that begin with a path in the configuration."""
    from riglm.domain.schemas.problems import origin_of

    try:
        yield
    except ConfigurationError as error:
        path = tuple(str(error).partition(":")[0].split("."))
        origin = origin_of(path, configuration.origins, "default")
        raise ConfigurationError(f"{origin}: {error}") from error


def _notes(configuration: "Configuration") -> list[str]:
    from riglm.cli.embedder import examine

    facts = examine(configuration.settings.embedder)
    notes = [*configuration.warnings]
    if facts["reason"]:
        notes.append(f"embedder.model: {facts['identity']} is the fallback: {facts['reason']}")
    both = configuration.settings.filtering.contradictions
    if both:
        notes.append(f"filtering: both lists name {', '.join(map(repr, both))}: what is in the deny list is denied")
    return notes


def _written(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
