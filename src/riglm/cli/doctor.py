"""`riglm doctor`: what works, what does not, and what to do about it."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, printable
from riglm.domain.doctor import DoctorSection, Finding, Severity, is_healthy
from riglm.domain.duration import format_count

if TYPE_CHECKING:
    from riglm.cli.doctor_checks import Examination


def doctor(
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    only: Annotated[
        list[DoctorSection] | None,
        typer.Option("--only", metavar="SECTION", help="Only this section; may be repeated."),
    ] = None,
    no_upstreams: Annotated[bool, typer.Option("--no-upstreams", help="Start no servers and ask none.")] = False,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", min=0.5, max=600, help="Seconds to wait for each server.")
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Check the configuration, servers, store, model and clients.

    Nothing is changed, and a running riglm is not disturbed. Sections: configuration, servers, tools, store, embedder,
    ports, clients, knowledge, machine. Exit codes: 0 healthy, 1 there is a warning or an error, 2 the configuration
    cannot be used.
    """
    from riglm.adapters.configuration.loading import Options
    from riglm.cli.doctor_checks import plan_examination
    from riglm.cli.output import print_json

    options = Options(config=config, mcp_json=mcp_json)
    planned = plan_examination(options, probes=not no_upstreams, seconds=deadline)
    findings = _run(planned, only or list(DoctorSection))
    if as_json:
        counts = {severity.value: sum(each.severity is severity for each in findings) for severity in Severity}
        found = [asdict(each) for each in findings]
        print_json({"healthy": is_healthy(findings), "counts": counts, "findings": found})
    else:
        print_report(findings)
    if not planned.is_usable:
        raise typer.Exit(2)
    if not is_healthy(findings):
        raise typer.Exit(1)


def _run(planned: "Examination", only: Sequence[DoctorSection]) -> "list[Finding]":
    from riglm.application.setup.doctor.checks import run_checks
    from riglm.cli.output import progress
    from riglm.domain.redaction import Redactor

    with planned.log, progress("examining", len(planned.checks)) as advance:
        looking = run_checks(planned.checks, only=only, seconds=planned.seconds, on_done=lambda: advance(1))
        findings = asyncio.run(looking)
    clean = Redactor(planned.secrets)
    return [replace(each, place=clean(each.place), what=clean(each.what), fix=clean(each.fix)) for each in findings]


_WIDTH_OF_A_PIPE: Final = 160
_LOOKS: Final = {
    Severity.OK: ("ok", "green"),
    Severity.NOTE: ("note", "cyan"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}
_BAD: Final = (Severity.ERROR, Severity.WARNING)


def print_report(findings: Sequence[Finding]) -> None:
    """Print a table for each section, and a line that sums up."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    with console.capture() as captured:
        for section, group in groupby(findings, key=lambda each: each.section):
            console.print(Text(section.value.capitalize(), style="bold"))
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold", max_width=56)
            table.add_column(overflow="fold")
            for each in group:
                word, style = _LOOKS[each.severity]
                what = Text(printable(each.what))
                if each.fix:
                    what.append("\nfix: ", style="bold").append(printable(each.fix), style="not bold")
                table.add_row(f"  [{style}]{word}[/]", Text(printable(each.place)), what)
            console.print(table, end="\n\n")
        errors, warnings = (sum(each.severity is severity for each in findings) for severity in _BAD)
        words = [format_count(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
        style = "bold red" if errors else "yellow" if warnings else "green"
        console.print(Text(f"found {' and '.join(words)}" if words else "healthy", style=style))
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")))
