"""`riglm enforce`, `shadow`, `config`, `control` and `embedder`: look at the configuration, and change it."""

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from riglm.adapters.configuration.loading import Configuration, Options, list_values, load
from riglm.adapters.configuration.locations import data_directory, store_url
from riglm.adapters.configuration.presence import require_all, require_embedder, require_predictor, require_upstreams
from riglm.adapters.control.tokens import FILE_NAME, TokenFile, create_tokens
from riglm.adapters.embedding.embedders import build_embedders, require_known_model
from riglm.adapters.embedding.fastembed import BUNDLED_MODEL, DIMENSIONS, REVISION, bundled_file, pull_model
from riglm.adapters.embedding.model_client import models_directory
from riglm.cli import store_access
from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, print_json, print_result, printable
from riglm.container import Container
from riglm.domain.client_setup import ClientSetup
from riglm.domain.errors import ConfigurationError, RiglmError, UnusableInputError
from riglm.domain.exposure import Mode
from riglm.domain.redaction import mask_url
from riglm.domain.schemas.problems import origin_of
from riglm.domain.schemas.section import EmbedderSettings
from riglm.domain.schemas.settings import json_schema

ModeDryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def enforce(dry_run: ModeDryRunOption = False, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Enable filtering: clients get only the selected tools.

    It changes filtering.mode in the store, for all riglm processes that use it: those that run follow within seconds.
    A client that defers the tools of all servers is set up to load riglm's, which are few then.
    """
    _switch_mode("enforce", config, dry_run=dry_run, as_json=as_json)


def shadow(dry_run: ModeDryRunOption = False, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List all tools, and record what filtering would hide.

    Denied tools stay denied. The command changes filtering.mode in the store, for all riglm processes that use it:
    those that run follow within seconds. A client that defers the tools of all servers defers riglm's again.
    """
    _switch_mode("shadow", config, dry_run=dry_run, as_json=as_json)


def _switch_mode(mode: Mode, config: Path | None, *, dry_run: bool, as_json: bool) -> None:
    from riglm.application.setup.init import SetupPlanner, install
    from riglm.application.setup.undo import carry_out
    from riglm.cli.setup_access import setup_context

    files = store_access.find_configurations(config)
    if not files:
        raise UnusableInputError(
            "there is no configuration to change: no riglm.yaml here, and none that `riglm init` made — fix: name it "
            "with --config, or set RIGLM_FILTERING__MODE where riglm is started"
        )
    by_store: dict[str, Configuration] = {}  # of those with one store, one with another mode if there is any
    for file in files:
        configuration = store_access.configuration_of(file)
        if mode == "enforce" and not configuration.settings.filtering.enabled:
            raise ConfigurationError(
                f"{file}: filtering.enabled is false, so nothing would be hidden — fix: remove it first"
            )
        url = store_url(configuration.settings)
        if by_store.setdefault(url, configuration).settings.filtering.mode == mode:
            by_store[url] = configuration
    stores = []
    for url, configuration in by_store.items():
        rules = configuration.settings.filtering
        if rules.mode != mode and not dry_run:
            with Container(settings=configuration.settings).analytics() as store:
                store.put_setting_changes({"filtering.mode": mode})
        place = mask_url(url).removeprefix("sqlite:///")
        stores.append({"store": place, "before": rules.mode, "changed": rules.mode != mode, "strategy": rules.strategy})
    context = setup_context()
    plans = SetupPlanner(context).preload_plans(files, is_on=mode == "enforce")
    clients = [
        {"client": each.place.client, "file": str(each.place.file), "trouble": each.fault or None}
        for each in (plans if dry_run else carry_out(partial(install, context), plans))
    ]
    report = {"mode": mode, "dry_run": dry_run, "stores": stores, "clients": clients}
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if any(each["trouble"] for each in clients):
        raise typer.Exit(1)


def _print_report(report: dict[str, Any]) -> None:
    mode, dry_run = report["mode"], report["dry_run"]
    for each in report["stores"]:
        store, verb = printable(each["store"]), "would be" if dry_run else "is now"
        if not each["changed"]:
            typer.echo(f"{store}: filtering.mode is {mode} already")
            continue
        typer.echo(f"{store}: filtering.mode {verb} {mode} (it was {each['before']})")
        if (strategy := each["strategy"]) != "prediction":
            typer.echo(f"  filtering.strategy is {strategy}: nothing is predicted, and the mode changes no list")
    if any(each["changed"] for each in report["stores"]) and not dry_run:
        typer.echo("riglm processes that run follow within seconds; `riglm config reset filtering.mode` reverts it")
    does = "loads riglm's tools at once" if mode == "enforce" else "defers riglm's tools"
    for each in report["clients"]:
        outcome = f"{'would change' if dry_run else 'changed'}: {each['client']} {does}"
        if each["trouble"]:
            outcome = f"was not changed: {printable(each['trouble'])}"
        typer.echo(f"{printable(each['file'])} {outcome}")


app = typer.Typer(help="Check and show the configuration.", rich_markup_mode=None, no_args_is_help=True)


@app.command()
def check(config: ConfigOption = None, mcp_json: McpJsonOption = None, as_json: JsonOption = False) -> None:
    """Check whether riglm can start with this configuration.

    All errors are reported. Where none is named and there is no riglm.yaml here, those that `riglm init` made are
    checked. The predictor is made with its options. A model of the embedder that cannot be loaded is a note, not an
    error, since a fallback is used. Servers are not started.
    """
    from riglm.cli.setup_access import configurations_in_use, installations

    found = configurations_in_use(Options(config=config, mcp_json=mcp_json), installations())
    checked: list[tuple[Configuration, list[str]]] = []

    def examine(options: Options, made: ClientSetup | None) -> None:
        configuration = store_access.overlaid(load(options))
        project = made.place.project if made is not None else None
        require_all(lambda: require_upstreams(configuration, directory=project), lambda: require_parts(configuration))
        checked.append((configuration, _notes(configuration)))

    require_all(*(partial(examine, options, made) for options, made in found))
    notes = dict.fromkeys(note for _, noted in checked for note in noted)
    servers = [[spec.name for spec in configuration.settings.upstream_specs()] for configuration, _ in checked]
    if not as_json:
        for note in notes:
            typer.echo(f"riglm: {note}", err=True)
    lines = [
        f"{f'{options.config}: ' if made is not None else ''}the configuration is good; servers: {', '.join(names)}"
        for (options, made), names in zip(found, servers, strict=True)
    ]
    fields = {"servers": [name for names in servers for name in names], "notes": list(notes)}
    print_result(fields, "\n".join(lines), as_json=as_json)


@app.command()
def show(config: ConfigOption = None, mcp_json: McpJsonOption = None, as_json: JsonOption = False) -> None:
    """Show every setting and where it comes from.

    Secrets stay covered. Settings that were changed while riglm runs are kept in the store, above the file and the
    environment.
    """
    configuration = store_access.overlaid(load(Options(config=config, mcp_json=mcp_json)))
    for warning in configuration.warnings:
        typer.echo(f"riglm: {warning}", err=True)
    lines = list_values(configuration)
    fields = {path: {"value": value, "source": source} for path, value, source in lines}
    words = (f"{path}: {json.dumps(value, ensure_ascii=False)}  # {source}" for path, value, source in lines)
    print_result(fields, "\n".join(words), as_json=as_json)


KeysArgument = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Settings or sections; all by default.")]


@app.command()
def reset(key: KeysArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Remove settings that were changed while riglm runs.

    The file and the environment count again. Processes that run follow within seconds.
    """
    settings = store_access.settings_of(config)
    stored = store_access.read_setting_changes(settings)
    for each in key or ():
        if not any(_is_within(row, each) for row in stored):
            known = f"one of {', '.join(stored)}" if stored else "leave it out, since no setting was changed"
            raise UnusableInputError(f"{each}: this was not changed at run time — fix: {known}")
    chosen = [row for row in stored if not key or any(_is_within(row, each) for each in key)]
    if chosen:
        with store_access.require_store(settings).analytics() as store:
            store.delete_setting_changes(chosen)
    words = f"reset: {', '.join(chosen)}" if chosen else "no setting was changed at run time"
    print_result({"reset": chosen}, words, as_json=as_json)


def _is_within(row: str, key: str) -> bool:
    return row == key or row.startswith(f"{key}.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of riglm.yaml, for editors."""
    print_json(json_schema())


def require_parts(configuration: Configuration) -> None:
    """Raise ConfigurationError unless the predictor can be made with its options, and the embedder's model exists."""
    settings = configuration.settings
    require_all(
        lambda: _require(configuration, require_predictor, lambda: Container(settings=settings).predictor()),
        lambda: _require(configuration, require_embedder, lambda: require_known_model(settings.embedder)),
    )


def _require(
    configuration: Configuration, require_installed: Callable[[Configuration], None], create: Callable[[], object]
) -> None:
    """Require a part and create it; errors of the latter begin with a path, and get its file, variable or option."""
    require_installed(configuration)
    try:
        create()
    except ConfigurationError as error:
        path = tuple(str(error).partition(":")[0].split("."))
        origin = origin_of(path, configuration.origins, "default")
        raise ConfigurationError(f"{origin}: {error}") from error


def _notes(configuration: Configuration) -> list[str]:
    facts = examine_embedder(configuration.settings.embedder)
    notes = [*configuration.warnings]
    if facts["reason"]:
        notes.append(f"embedder.model: {facts['identity']} is the fallback: {facts['reason']}")
    both = configuration.settings.filtering.contradictions
    if both:
        notes.append(f"filtering: both lists name {', '.join(map(repr, both))}: what is in the deny list is denied")
    return notes


control_app = typer.Typer(name="control", help="Manage the control API.", no_args_is_help=True, rich_markup_mode=None)


@control_app.callback()
def _control() -> None:
    """The control API."""


@control_app.command()
def token(
    new: Annotated[
        bool, typer.Option("--new", help="Replace the tokens that there are; a riglm that runs rejects these at once.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the tokens of the control API and show them once.

    Only their hashes are kept.
    """
    control = load(Options(config=config, with_servers=False)).settings.control
    file = TokenFile(data_directory(os.environ) / FILE_NAME)
    if not new and file.read() is not None:
        raise RiglmError(
            f"the tokens in {file.path} were shown before, and only their hashes are kept — fix: riglm control token "
            "--new makes others"
        )
    tokens = create_tokens()
    file.write(tokens)
    print_result(tokens, "\n".join(f"{scope:6}{text}" for scope, text in tokens.items()), as_json=as_json)
    for key, given in (("token", control.token), ("read_token", control.read_token)):
        if given is not None:
            scope = "write" if key == "token" else "read"
            typer.echo(f"control.{key} is set: it counts in place of the {scope} token", err=True)


embedder_app = typer.Typer(help="Manage the embedding model.", rich_markup_mode=None, no_args_is_help=True)

_SAMPLE = "Search the web and return the most relevant pages for a question."


@embedder_app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Load the model and show which one is used.

    That is what `run` and `serve` do. No network is used.
    """
    facts = examine_embedder(_settings(config))
    embeddings = facts["embeddings"]
    lines = {
        "configured": f"{embeddings['model']} ({embeddings['provider']})",
        "loaded": f"{facts['identity']} ({embeddings['actual_provider']})",
        "quality": f"{embeddings['semantic_quality']}, {embeddings['dimensions']} dimensions",
        "fallback": "yes" if embeddings["is_fallback_active"] else "no",
        "because": facts["reason"],
        "installed": facts["bundled_file"] or "no",
        "downloads": facts["directory"],
        "load": f"{facts['load_ms']:.0f} ms",
        "one text": f"{facts['embed_ms']:.1f} ms",
    }
    print_result(facts, "\n".join(f"{name:12}{text}" for name, text in lines.items() if text), as_json=as_json)


@embedder_app.command()
def pull(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="One of fastembed's models, for example BAAI/bge-small-en-v1.5.")
    ],
    config: ConfigOption = None,
    deadline: Annotated[
        float,
        typer.Option("--deadline", metavar="SECONDS", min=0.1, max=86_400, help="Seconds to wait for the download."),
    ] = 900,
    as_json: JsonOption = False,
) -> None:
    """Download a model, so that `embedder.model` can name it.

    No other command uses a network for models.
    """
    pulled: dict[str, Any]
    if model == BUNDLED_MODEL:
        pulled = {"model": model, "identity": f"{model}@{REVISION}", "dimensions": DIMENSIONS}
        words = f"{model} is installed with riglm; there is nothing to download."
    else:
        directory = models_directory(_settings(config))
        typer.echo(f"Downloading {model} into {directory}, for at most {deadline:g} s.", err=True)
        pulled = pull_model(model, directory, timeout=deadline)
        words = "{identity} can be used ({dimensions} dimensions). Set embedder.model to {model}.".format(**pulled)
    print_result(pulled, words, as_json=as_json)


def _settings(config: Path | None) -> EmbedderSettings:
    return load(Options(config=config, with_servers=False)).settings.embedder


def examine_embedder(settings: EmbedderSettings) -> dict[str, Any]:
    """Load the configured model, and report the model that is used and why; it may be the fallback."""
    reasons = _Reasons()
    logging.getLogger("riglm.embedder").addHandler(reasons)
    started = time.perf_counter()
    private = settings.model_copy(update={"shared": False})  # it loads the model, and leaves no process
    with build_embedders(private).always as embedder:
        loaded = time.perf_counter()
        embedder.embed([_SAMPLE])
        done = time.perf_counter()
        found = embedder.status()
        return {
            "embeddings": asdict(found),
            "identity": embedder.model,
            "reason": "; ".join(reasons.messages) or None,
            "bundled_file": _bundled_file(),
            "directory": str(models_directory(settings)),
            "load_ms": 1000 * (loaded - started),
            "embed_ms": 1000 * (done - loaded),
        }


def _bundled_file() -> str | None:
    try:
        return str(bundled_file())
    except LookupError:
        return None


class _Reasons(logging.Handler):
    """Keeps the reason for a fallback, which the embedder logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's reason."""
        self.messages.append(str(record.__dict__.get("reason", record.getMessage())))
