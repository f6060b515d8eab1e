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
from riglm.domain.errors import UnusableInputError
from riglm.domain.shortage import failed_write

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_WIDTH_OF_A_PIPE = 200
_BORDER = 3
_MIN_TEXT = 24
"""Maximum number of characters of a text on one line; longer texts may continue on the next line."""


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, labels: int = 1) -> None:
    """A table on stdout, as several where the terminal is too narrow: each begins with the first columns, its labels.

    Numbers are set right; control characters in names, which strangers choose, are shown as ?.
    """
    from rich.console import Console

    given = [list(row) for row in rows]
    numeric = [bool(given) and all(isinstance(row[at], int | float) for row in given) for at in range(len(columns))]
    cells = [[printable(_written(cell)) for cell in row] for row in given]
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    needed = [
        width if at < labels or numeric[at] else min(width, max(len(columns[at]), _MIN_TEXT))
        for at, width in enumerate(widths)
    ]
    for number, part in enumerate(_parts(needed, labels, console.width)):
        whole = [numeric[at] or (at < labels and needed[at] <= console.width // 2) for at in part]
        heads = [(columns[at], "right" if numeric[at] else "left") for at in part]
        console.print(_table("" if number else title, heads, whole, [[row[at] for at in part] for row in cells]))


def _parts(widths: Sequence[int], labels: int, room: int) -> list[list[int]]:
    """Return the columns of each table, by number: as many as fit next to the labels."""
    first = list(range(labels))
    empty = 1 + sum(widths[at] + _BORDER for at in first)
    parts, used = [list(first)], empty
    for at in range(labels, len(widths)):
        if used + widths[at] + _BORDER > room and len(parts[-1]) > labels:
            parts.append(list(first))
            used = empty
        parts[-1].append(at)
        used += widths[at] + _BORDER
    return parts


def _table(
    title: str, heads: Sequence[tuple[str, Any]], whole: Sequence[bool], rows: Sequence[Sequence[str]]
) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for (head, side), unbroken in zip(heads, whole, strict=True):
        table.add_column(head, justify=side, overflow="fold", no_wrap=unbroken)
    for row in rows:
        table.add_row(*map(Text, row))
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


def _written(cell: object) -> str:
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


def write_page(file: Path, text: str) -> None:
    """Write the page of `--html` so that only the user can read it.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as page_file:
            page_file.write(text)
    except OSError as error:
        raise UnusableInputError(
            failed_write(file, error, "name a file that you may write", subject=f"--html {file}")
        ) from error
