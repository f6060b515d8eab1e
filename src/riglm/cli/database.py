"""`riglm db`: the schema of the store, and what waits for it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from riglm.cli import exporting, forgetting, purging
from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json
from riglm.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from riglm.adapters.analytics.schema import SchemaStatus
    from riglm.adapters.spool.survey import SpoolFound
    from riglm.domain.schemas.settings import Settings

app = typer.Typer(help="Maintain the store.", rich_markup_mode=None, no_args_is_help=True)
app.command()(purging.purge)
app.command()(purging.vacuum)
app.command()(exporting.export)
app.command()(forgetting.forget)


@app.command()
def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring the store to the newest schema, or make it.

    `run` and `serve` do so by themselves.
    """
    from riglm.adapters.analytics import schema
    from riglm.composition.storage import store_url

    _show(schema.upgrade(store_url(_settings(config))), None, as_json)


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show where the store is, which schema it has, and what waits in spools. Nothing is made or changed."""
    from riglm.adapters.analytics import schema
    from riglm.adapters.spool.survey import survey
    from riglm.composition.storage import spool_path, store_url

    settings = _settings(config)
    _show(schema.status(store_url(settings)), survey(spool_path(settings)), as_json)


def _settings(config: Path | None) -> "Settings":
    from riglm.adapters.configuration.loading import Options, load
    from riglm.cli.store_place import is_there
    from riglm.composition.storage import store_path

    settings = load(Options(config=config, with_servers=False)).settings
    if settings.storage.kind == "memory":
        raise ConfigurationError(
            "storage.kind: the store is in memory and has no schema — fix: use sqlite or postgresql"
        )
    if settings.storage.kind == "sqlite":
        is_there(store_path(settings))
    return settings


def _show(found: "SchemaStatus", spools: "list[SpoolFound] | None", as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {
            "url": found.url,
            "current": found.current,
            "head": found.head,
            "pending": list(found.pending),
        }
        if spools is not None:
            told["spools"] = [asdict(spool) | {"path": str(spool.path)} for spool in spools]
        print_json(told)
        return
    typer.echo(f"store    {found.url}")
    typer.echo(f"schema   {found.current or 'none yet'}")
    typer.echo(f"pending  {', '.join(found.pending) or 'nothing'}")
    for spool in spools or []:
        whose = "of a process that runs" if spool.is_held else "left behind: the next start stores it"
        damage = f", {spool.damaged} damaged" if spool.damaged else ""
        newer = f", {spool.newer} files of a newer riglm" if spool.newer else ""
        typer.echo(f"spool    {spool.path}: {spool.records} records{damage}{newer}, {whose}")
