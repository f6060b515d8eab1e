"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

_WIDTH_OF_A_PIPE = 200


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout. Numbers are set right; control characters in names, which strangers choose, are shown as ?."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    values = [list(row) for row in rows]
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        numeric = bool(values) and all(isinstance(row[index], int | float) for row in values)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in values:
        table.add_row(*(Text(printable(_written(cell))) for cell in row))
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    Console(width=width).print(table)


def printable(text: str) -> str:
    """The text with every character that could move the cursor or change colours replaced."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def written_time(seconds: float | None) -> str:
    """A time, in seconds since the epoch, in the user's time zone; a dash for none."""
    if not seconds:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def json_time(seconds: float | None) -> str | None:
    """A time, in seconds since the epoch, in ISO 8601 and UTC; None for none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else None


def _written(cell: object) -> str:
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)
