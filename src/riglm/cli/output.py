"""What commands print: tables for people, JSON for programs."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.domain.duration import to_utc_datetime
from riglm.domain.errors import UnusableInputError, failed_write

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_PIPE_COLUMNS = 10_000
"""Width of tables in pipes and files, where each row stays on one line."""


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_result(fields: Any, words: str, *, as_json: bool) -> None:
    """Print a result as one JSON document, or in words."""
    if as_json:
        print_json(fields)
    else:
        typer.echo(words)


NOTHING_RECORDED: Final = "nothing recorded yet: put riglm in front of a server, for example `riglm run -- COMMAND`"


def print_rows(
    fields: Sequence[Any],
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    as_json: bool,
    empty: str = NOTHING_RECORDED,
    explanation: str = "",
) -> None:
    """Print records as one JSON document, or as a table with an explanation; without any, what `empty` has."""
    if as_json:
        print_json(fields)
    elif not rows:
        typer.echo(empty)
    else:
        print_table(title, columns, rows)
        typer.echo(explanation, nl=bool(explanation))


def create_console(*, quiet: bool = False) -> "Console":
    """Return a console on stdout that prints text as it is."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(width=width, markup=False, emoji=False, highlight=False, quiet=quiet)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout."""
    create_console().print(create_table(title, columns, rows))


def create_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> "Table":
    """Return a table, numbers to the right; control characters in names, which strangers choose, are shown as ?."""
    from rich.table import Table
    from rich.text import Text

    given = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left")
    for place, name in enumerate(columns):
        is_number = bool(given) and all(isinstance(row[place], int | float) for row in given)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in given:
        table.add_row(*(Text(printable(_format_cell(cell))) for cell in row))
    return table


def printable(text: str) -> str:
    """The text with every character that could move the cursor or change colours replaced."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def printable_lines(text: str) -> str:
    """The text with its line breaks, and otherwise as `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def written_time(seconds: float | None) -> str:
    """A time, in seconds since the epoch, in the user's time zone; a dash for none."""
    if not seconds:
        return "-"
    return to_utc_datetime(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def json_time(seconds: float | None) -> str | None:
    """A time, in seconds since the epoch, in ISO 8601 and UTC; None for none."""
    return to_utc_datetime(seconds).isoformat(timespec="milliseconds") if seconds else None


def _format_cell(cell: object) -> str:
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)


MAX_ROWS: Final = 1_000_000
"""The most that a limit of what is shown may be."""


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="F", help="The configuration; by default ./riglm.yaml if it is there."),
]
McpJsonOption = Annotated[
    Path | None, typer.Option("--mcp-json", metavar="F", help="A client's own file of servers, for example .mcp.json.")
]
ServerUrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="URL of one upstream server to proxy.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="Header of requests to --url; may be given several times."),
]
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


Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int, console: "Console | None" = None) -> Iterator[Advance]:
    """A progress bar on stderr if that is a terminal, or below what is printed on a console."""
    if console is None and not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.advance(task, count)


def write_file(option: str, file: Path, text: str) -> None:
    """Write the file that an option names so that only the user can read it.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
    except OSError as error:
        raise UnusableInputError(
            failed_write(file, error, "name a file that you may write", subject=f"{option} {file}")
        ) from error
