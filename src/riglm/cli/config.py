"""`riglm config`: look at the configuration before anything runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from riglm.cli.options import ConfigOption, JsonOption, McpJsonOption
from riglm.cli.output import print_json

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Configuration

app = typer.Typer(help="Check and show the configuration.", rich_markup_mode=None, no_args_is_help=True)


@app.command()
def check(config: ConfigOption = None, mcp_json: McpJsonOption = None) -> None:
    """Say whether riglm could start with this configuration, and if not, all that is wrong."""
    from riglm.adapters.configuration.presence import require_upstreams

    configuration = _load(config, mcp_json)
    require_upstreams(configuration)
    names = ", ".join(spec.name for spec in configuration.settings.upstream_specs())
    typer.echo(f"the configuration is good; servers: {names}")


@app.command()
def show(config: ConfigOption = None, mcp_json: McpJsonOption = None, as_json: JsonOption = False) -> None:
    """Show every setting and where it comes from. Secrets stay covered."""
    from riglm.adapters.configuration.disclosure import shown

    configuration = _load(config, mcp_json)
    lines = shown(configuration)
    if as_json:
        print_json({path: {"value": value, "source": source} for path, value, source in lines})
        return
    for path, value, source in lines:
        typer.echo(f"{path}: {_written(value)}  # {source}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of riglm.yaml, for editors."""
    from riglm.domain.schemas.published import json_schema

    print_json(json_schema())


def _load(config: Path | None, mcp_json: Path | None) -> "Configuration":
    from riglm.adapters.configuration.loading import Options, load

    return load(Options(config=config, mcp_json=mcp_json))


def _written(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
