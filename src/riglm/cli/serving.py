"""`riglm run` and `riglm serve`: proxy MCP servers."""

from typing import Annotated

import typer

from riglm.cli.entry import common_values, ready
from riglm.cli.output import (
    CommandArgument,
    ConfigOption,
    HeaderOption,
    LogLevelOption,
    McpJsonOption,
    NoFilterOption,
    ServerUrlOption,
)


def run(
    command: CommandArgument = None,
    url: ServerUrlOption = None,
    header: HeaderOption = None,
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="The profile of this client (`filtering.profile`).")
    ] = None,
    no_filter: NoFilterOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Proxy MCP servers for one client over stdio.

    For example: riglm run -- npx -y @modelcontextprotocol/server-everything
    """
    values = [*common_values(no_filter, log_level, url, header or ()), ("--profile", ("filtering", "profile"), profile)]
    configuration = ready(config=config, mcp_json=mcp_json, url=url, command=command or (), values=values)
    from riglm.running import run_stdio

    raise typer.Exit(run_stdio(configuration))


def serve(
    command: CommandArgument = None,
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
    url: ServerUrlOption = None,
    header: HeaderOption = None,
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    no_filter: NoFilterOption = False,
    log_level: LogLevelOption = None,
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
