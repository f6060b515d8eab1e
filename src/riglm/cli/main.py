"""The command `riglm`, and `riglm run` and `serve`: proxy MCP servers."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from riglm.cli import output
from riglm.cli.entry import common_values, ready
from riglm.domain.errors import RiglmError, UnusableInputError

GROUPS: Final = {
    "Set up": {
        "init": ("init:init", "Move the servers of your clients behind riglm."),
        "undo": ("init:undo", "Restore your clients' files, to the byte."),
        "login": ("accounts:login", "Sign in to a server that requires OAuth, in the browser."),
        "logout": ("accounts:logout", "Revoke and delete the tokens of a server."),
        "accounts": ("accounts:list_accounts", "List the servers that riglm is signed in to."),
        "learn-from": ("learning_from:learn_from", "Learn from the transcripts of your clients."),
        "doctor": ("doctor:doctor", "Check the configuration, servers, store, model and clients."),
        "demo": ("demo:demo", "Show in a minute what riglm learns and saves."),
    },
    "Run": {
        "run": ("main:run", "Proxy MCP servers for one client over stdio."),
        "serve": ("main:serve", "Proxy MCP servers for clients over HTTP."),
    },
    "Observe": {
        "report": ("report:report", "Report what filtering would have saved and missed."),
        "stats": ("usage:stats", "Sum up what was recorded."),
        "sessions": ("usage:sessions", "List all recorded sessions, or one session's calls."),
        "tools": ("trust:tools", "List recorded tools, and approve those that changed."),
        "evaluate": ("report:evaluate", "Compare strategies and prices on your recorded sessions."),
    },
    "Configure": {
        "enforce": ("config:enforce", "Enable filtering: clients get only the selected tools."),
        "shadow": ("config:shadow", "List all tools, and record what filtering would hide."),
        "config": ("config:app", "Check and show the configuration."),
        "trust": ("trust:trust", "Keep the list of approved tools as a file."),
        "control": ("config:control_app", "Manage the control API."),
    },
    "Maintain": {
        "db": ("database:app", "Maintain the store."),
        "embedder": ("config:embedder_app", "Manage the embedding model."),
        "knowledge": ("knowledge:app", "Fill, search and maintain the knowledge store."),
        "audit": ("database:audit_app", "Check the audit log."),
    },
}
"""Commands in `riglm --help`, by heading: module and name, and the first sentence of the help."""

_PLACES: Final = {name: place for commands in GROUPS.values() for name, (place, _) in commands.items()}


class _LazyCommands(Mapping[str, Any]):
    """Imports the module of a command when the command is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


@cache
def _load(name: str) -> Any:
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_module(f"riglm.cli.{module}"), attribute)
    part = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        part.add_typer(found, name=name)
    else:  # what follows the first word of a server's command belongs to that command
        part.command(name, context_settings={"allow_interspersed_args": name not in GROUPS["Run"]})(found)
    return typer.main.get_group(part).commands[name]


class _GroupedCommands(TyperGroup):
    """Lists commands under the headings of `GROUPS`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _LazyCommands()  # type: ignore[assignment]  # nothing is added

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, words) for name, (_, words) in commands.items()])


app = typer.Typer(
    name="riglm",
    cls=_GroupedCommands,
    help="A drop-in MCP proxy that records which tools are used.",
    epilog="`riglm demo` shows an example. `riglm run -- COMMAND` replaces COMMAND in a client's configuration.",
    rich_markup_mode=None,  # rich costs 60 ms of start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"riglm {version('riglm')}")
        raise typer.Exit


@app.callback()
def _riglm(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A drop-in MCP proxy that records which tools are used."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, configuration or data."""
    try:
        app()
    except RiglmError as error:
        typer.echo(f"riglm: {output.printable_lines(str(error))}", err=True)
        sys.exit(2 if isinstance(error, UnusableInputError) else 1)


def run(
    command: output.CommandArgument = None,
    url: output.ServerUrlOption = None,
    header: output.HeaderOption = None,
    config: output.ConfigOption = None,
    mcp_json: output.McpJsonOption = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="The profile of this client (`filtering.profile`).")
    ] = None,
    no_filter: output.NoFilterOption = False,
    log_level: output.LogLevelOption = None,
) -> None:
    """Proxy MCP servers for one client over stdio.

    For example: riglm run -- npx -y @modelcontextprotocol/server-everything
    """
    values = [*common_values(no_filter, log_level, url, header or ()), ("--profile", ("filtering", "profile"), profile)]
    configuration = ready(config=config, mcp_json=mcp_json, url=url, command=command or (), values=values)
    from riglm.running import run_stdio

    raise typer.Exit(run_stdio(configuration))


def serve(
    command: output.CommandArgument = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="The address to listen on (127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="The port to listen on (8700); 0 takes a free one.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option("--transport", metavar="KIND", help="http (the default), sse or both.")
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Serve the control API, its metrics and its page as well.")
    ] = False,
    control_port: Annotated[
        int | None, typer.Option("--control-port", metavar="N", help="The same, on this port (8701); 0: a free one.")
    ] = None,
    url: output.ServerUrlOption = None,
    header: output.HeaderOption = None,
    config: output.ConfigOption = None,
    mcp_json: output.McpJsonOption = None,
    no_filter: output.NoFilterOption = False,
    log_level: output.LogLevelOption = None,
) -> None:
    """Proxy MCP servers for clients over HTTP.

    Clients find them at http://HOST:PORT/mcp, and with --transport sse or both at /sse.
    """
    values = [
        *common_values(no_filter, log_level, url, header or ()),
        ("--host", ("downstream", "host"), host),
        ("--port", ("downstream", "port"), port),
        ("--transport", ("downstream", "transport"), transport),
        ("--control", ("control", "enabled"), True if control or control_port is not None else None),
        ("--control-port", ("control", "port"), control_port),
    ]
    configuration = ready(config=config, mcp_json=mcp_json, url=url, command=command or (), values=values)
    from riglm.running import run_http

    raise typer.Exit(run_http(configuration))
