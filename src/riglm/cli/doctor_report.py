"""What `riglm doctor` found, for people."""

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import typer

from riglm.cli.output import printable
from riglm.domain.finding import Finding, Severity

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_WIDTH_OF_A_PIPE: Final = 160
_LOOKS: Final = {
    Severity.OK: ("ok", "green"),
    Severity.NOTE: ("note", "cyan"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}


def print_report(findings: Sequence[Finding]) -> None:
    """A table for each section, and a line that sums up."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    with console.capture() as captured:
        for section, group in groupby(findings, key=lambda each: each.section):
            console.print(Text(section.value.capitalize(), style="bold"))
            console.print(_table(list(group)), end="\n\n")
        console.print(_summary(findings))
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")))


def _table(findings: Sequence[Finding]) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=56)
    table.add_column(overflow="fold")
    for each in findings:
        word, style = _LOOKS[each.severity]
        table.add_row(f"  [{style}]{word}[/]", _plain(each.place), _words(each))
    return table


def _words(each: Finding) -> "Text":
    words = _plain(each.what)
    if each.fix:
        words.append("\nfix: ", style="bold")
        words.append(printable(each.fix))
    return words


def _plain(text: str) -> "Text":
    from rich.text import Text

    return Text(printable(text))


def _summary(findings: Sequence[Finding]) -> "Text":
    from rich.text import Text

    counts = {severity: sum(each.severity is severity for each in findings) for severity in Severity}
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    if not errors and not warnings:
        return Text("healthy", style="green")
    words = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    return Text(f"found {' and '.join(words)}", style="bold red" if errors else "yellow")
