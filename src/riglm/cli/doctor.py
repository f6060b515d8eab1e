"""`riglm doctor`: what works, what does not, and what to do about it."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, printable
from riglm.domain.finding import DoctorSection, Finding, Severity, is_healthy

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from riglm.composition.doctor import Examination
    from riglm.domain.schemas.section import EmbedderSettings
    from riglm.ports.doctor import EmbedderCheckResult


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
    from riglm.cli.output import print_json
    from riglm.composition.doctor import examination

    options = Options(config=config, mcp_json=mcp_json)
    planned = examination(options, _load_embedder, visits=not no_upstreams, seconds=deadline)
    findings = _run(planned, only or list(DoctorSection))
    if as_json:
        print_json(_fields(findings))
    else:
        print_report(findings)
    if not planned.is_usable:
        raise typer.Exit(2)
    if not is_healthy(findings):
        raise typer.Exit(1)


def _run(planned: "Examination", only: Sequence[DoctorSection]) -> "list[Finding]":
    from riglm.application.doctor.check import run
    from riglm.cli.output import progress
    from riglm.domain.redaction import Redactor

    with planned.overhearing, progress("examining", len(planned.checks)) as advance:
        looking = run(planned.checks, only=only, seconds=planned.seconds, on_done=lambda: advance(1))
        findings = asyncio.run(looking)
    clean = Redactor(planned.secrets)
    return [replace(each, place=clean(each.place), what=clean(each.what), fix=clean(each.fix)) for each in findings]


def _load_embedder(settings: "EmbedderSettings") -> "EmbedderCheckResult":
    from riglm.cli.embedder import examine
    from riglm.ports.doctor import EmbedderCheckResult

    facts = examine(settings)
    embeddings = facts["embeddings"]
    return EmbedderCheckResult(
        wanted=settings.model if settings.provider != "static" else settings.provider,
        at_work=facts["identity"],
        is_fallback=embeddings["is_fallback_active"] and settings.provider != "static",
        is_semantic=embeddings["semantic_quality"] == "high",
        reason=facts["reason"] or "",
        load_ms=facts["load_ms"],
        embed_ms=facts["embed_ms"],
    )


def _fields(findings: "Sequence[Finding]") -> dict[str, object]:
    from riglm.domain.finding import Severity

    counts = {severity.value: sum(each.severity is severity for each in findings) for severity in Severity}
    return {"healthy": is_healthy(findings), "counts": counts, "findings": [asdict(each) for each in findings]}


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
