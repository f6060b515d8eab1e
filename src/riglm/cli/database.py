"""`riglm db`: the schema of the store."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json
from riglm.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from riglm.adapters.analytics.schema import SchemaStatus

app = typer.Typer(help="Look after the store.", rich_markup_mode=None, no_args_is_help=True)


@app.command()
def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring the store to the newest schema, or make it.

    `run` and `serve` do so by themselves.
    """
    from riglm.adapters.analytics import schema

    _show(schema.upgrade(_url(config)), as_json)


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show where the store is and which schema it has. Nothing is made or changed."""
    from riglm.adapters.analytics import schema

    _show(schema.status(_url(config)), as_json)


def _url(config: Path | None) -> str:
    from riglm.adapters.configuration.loading import Options, load
    from riglm.cli.store_place import is_there
    from riglm.container import store_path

    settings = load(Options(config=config, with_servers=False)).settings
    if settings.storage.kind == "memory":
        raise ConfigurationError("storage.kind: the store is in memory and has no schema — fix: use sqlite")
    path = store_path(settings)
    is_there(path)
    return f"sqlite:///{path}"


def _show(found: "SchemaStatus", as_json: bool) -> None:
    if as_json:
        pending = list(found.pending)
        print_json({"url": found.url, "current": found.current, "head": found.head, "pending": pending})
        return
    typer.echo(f"store    {found.url}")
    typer.echo(f"schema   {found.current or 'none yet'}")
    typer.echo(f"pending  {', '.join(found.pending) or 'nothing'}")
