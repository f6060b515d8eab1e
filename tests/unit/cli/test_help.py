"""The help of every command, on a terminal with 80 columns."""

from collections.abc import Iterator

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from riglm.cli.main import app


def list_commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command and of those below it."""
    yield path
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from list_commands(below, (*path, name))


def test_each_command_begins_with_one_line_that_lists_have_as_a_whole() -> None:
    for path in list_commands(typer.main.get_command(app)):
        text = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
        usage, summary, *_ = text.split("\n\n")
        assert usage.startswith("Usage: riglm"), path
        assert len(summary.splitlines()) == 1, path
        assert "..." not in text.partition("Commands:")[2], path
        assert all(len(line) <= 80 for line in text.splitlines()), path
