"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Final

import typer

MOST_ROWS: Final = 1_000_000
"""The most that a limit of what is shown may be."""


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="F", help="The configuration; by default ./riglm.yaml if it is there."),
]
McpJsonOption = Annotated[
    Path | None, typer.Option("--mcp-json", metavar="F", help="A client's own file of servers, for example .mcp.json.")
]
UrlOption = Annotated[str | None, typer.Option("--url", metavar="URL", help="URL of one upstream server to proxy.")]
CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND", help="Command of one upstream server to proxy; options of riglm come before it."
    ),
]
NoFilterOption = Annotated[bool, typer.Option("--no-filter", help="Show all tools, as the servers list them.")]
LogLevelOption = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
