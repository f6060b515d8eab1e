"""`riglm knowledge import`: thoughts, and the memory of the MCP memory server, from files."""

import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from riglm.cli.knowledge_access import PrincipalOption, knowledge_settings, opened_knowledge, owner_of
from riglm.cli.knowledge_embedding import give_missing_vectors
from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json, printable
from riglm.cli.progress import progress
from riglm.domain.errors import UnusableInput

if TYPE_CHECKING:
    from riglm.application.knowledge.importing import Imported, Source
    from riglm.cli.knowledge_embedding import Embedded
    from riglm.ports.knowledge import KnowledgePort

_MOST_SHOWN = 20


class ImportFormat(StrEnum):
    """What the lines of a file are."""

    THOUGHTS = "thoughts"
    MEMORY = "memory"


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON lines: thoughts, or what the MCP memory server wrote.")
    ],
    format_: Annotated[
        ImportFormat | None, typer.Option("--format", help="What the lines are; by default what the first one says.")
    ] = None,
    principal: PrincipalOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Look at all files first, and store nothing if a line is wrong.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take files into the store; what it knows already is not taken twice, so an import can be repeated at any time."""
    settings = knowledge_settings(config)
    sources = _sources(files, format_)
    owner = owner_of(settings, principal)
    if strict:
        from riglm.application.knowledge.importing import check

        check(sources)
    with opened_knowledge(settings, make=True) as store:
        done = _stored(store, sources, owner)
        _tell_left_out(done)
        embedded = give_missing_vectors(settings, store)
    if as_json:
        print_json(
            {
                "files": [{"file": str(source.path), "format": source.format} for source in sources],
                "read": asdict(done.read),
                "new": asdict(done.new),
                "changed": asdict(done.changed),
                "left_out": done.left_out,
                "problems": [{"file": str(path), "line": line, "reason": why} for path, line, why in done.problems],
                "unknown_keys": done.unknown_keys,
                "embedded": embedded.given,
                "without_vector": embedded.waiting,
                "model": embedded.model,
            }
        )
    else:
        _show(done, embedded)
    embedded.require_all()


def _sources(files: list[Path], asked: ImportFormat | None) -> "list[Source]":
    """The files, each with its format, said where it was guessed; empty ones are passed over."""
    from riglm.application.knowledge.importing import Format, Source, format_of

    sources = []
    for file in files:
        found = format_of(file, None if asked is None else Format(asked))
        if found is None:
            typer.echo(f"{printable(str(file))}: empty", err=True)
            continue
        if asked is None:
            typer.echo(f"{printable(str(file))}: read as {found}, by what its lines say", err=True)
        sources.append(Source(file, found))
    return sources


def _stored(store: "KnowledgePort", sources: "list[Source]", owner: str) -> "Imported":
    from riglm.application.knowledge.importing import Importing

    with progress("reading bytes", sum(source.path.stat().st_size for source in sources)) as advance:
        return Importing(store, owner, time.time()).run(sources, advance)


def _tell_left_out(done: "Imported") -> None:
    for problem in done.problems[:_MOST_SHOWN]:
        typer.echo(f"left out: {printable(str(problem))}", err=True)
    if done.left_out > _MOST_SHOWN:
        typer.echo(f"left out: {done.left_out - _MOST_SHOWN} more lines", err=True)
    if done.unknown_keys:
        told = ", ".join(f"{key!r} ({place})" for key, place in done.unknown_keys.items())
        typer.echo(f"unknown keys: {printable(told)}", err=True)
    if done.left_out and not done.read.total:
        raise UnusableInput("no line could be used, and nothing was stored — fix: what is said above, line by line")


def _show(done: "Imported", embedded: "Embedded") -> None:
    read = asdict(done.read)
    kinds = [f"{new} of {read[kind]} {kind}" for kind, new in asdict(done.new).items() if read[kind]]
    typer.echo(f"new: {', '.join(kinds) or 'nothing'}")
    if done.changed.total:
        others = [f"{number} {kind}" for kind, number in asdict(done.changed).items() if number]
        typer.echo(f"changed: {', '.join(others)}")
    if done.left_out:
        typer.echo(f"left out: {done.left_out} lines")
    typer.echo(f"given vectors: {embedded.given}")
