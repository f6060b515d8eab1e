"""`riglm doctor`: what works, what does not, and what to do about it."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from riglm.cli.options import ConfigOption, JsonOption, McpJsonOption
from riglm.domain.finding import Section, is_healthy

if TYPE_CHECKING:
    from riglm.composition.examining import Examination
    from riglm.domain.finding import Finding
    from riglm.domain.schemas.embedder import Embedder
    from riglm.ports.examining import EmbedderFacts


def doctor(
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    only: Annotated[
        list[Section] | None, typer.Option("--only", metavar="SECTION", help="Only this section; may be repeated.")
    ] = None,
    no_upstreams: Annotated[bool, typer.Option("--no-upstreams", help="Start no servers and ask none.")] = False,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", min=0.5, max=600, help="Seconds to wait for each server.")
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Look at the configuration, the servers and their tools, the store, the model, ports and clients.

    Nothing is changed, and a running riglm is not disturbed. Sections: configuration, servers, tools, store, embedder,
    ports, clients, knowledge, machine. Exit codes: 0 healthy, 1 there is a warning or an error, 2 the configuration
    cannot be used.
    """
    from riglm.adapters.configuration.loading import Options
    from riglm.cli.doctor_report import print_report
    from riglm.cli.output import print_json
    from riglm.composition.examining import examination

    options = Options(config=config, mcp_json=mcp_json)
    planned = examination(options, _load_embedder, visits=not no_upstreams, seconds=deadline)
    findings = _run(planned, only or list(Section))
    if as_json:
        print_json(_fields(findings))
    else:
        print_report(findings)
    if not planned.is_usable:
        raise typer.Exit(2)
    if not is_healthy(findings):
        raise typer.Exit(1)


def _run(planned: "Examination", only: Sequence[Section]) -> "list[Finding]":
    from riglm.application.examining.check import run
    from riglm.cli.progress import progress
    from riglm.domain.secret import Redactor

    with planned.overhearing, progress("examining", len(planned.checks)) as advance:
        looking = run(planned.checks, only=only, seconds=planned.seconds, on_done=lambda: advance(1))
        findings = asyncio.run(looking)
    clean = Redactor(planned.secrets)
    return [replace(each, place=clean(each.place), what=clean(each.what), fix=clean(each.fix)) for each in findings]


def _load_embedder(settings: "Embedder") -> "EmbedderFacts":
    from riglm.cli.embedder import examine
    from riglm.ports.examining import EmbedderFacts

    facts = examine(settings)
    embeddings = facts["embeddings"]
    return EmbedderFacts(
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
