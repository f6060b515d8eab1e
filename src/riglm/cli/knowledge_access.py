"""What the commands of `riglm knowledge` share: the store, whose it is, the model, and how pieces are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.output import json_time, printable
from riglm.cli.store_access import configuration_of, is_hash, require_store

if TYPE_CHECKING:
    from riglm.domain.knowledge import Entity, Observation, Table, Thought
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.embedder import EmbedderPort
    from riglm.ports.knowledge import KnowledgePort

PrincipalOption = Annotated[
    str | None,
    typer.Option(
        "--principal",
        "--owner",
        metavar="NAME|HASH",
        help='Whose: by default the local user\'s; "bearer" for callers of a `riglm serve` that a token guards.',
    ),
]
PrivateOption = Annotated[bool, typer.Option("--include-private", help="Private thoughts as well.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with one of these tags.")]
WithoutTagOption = Annotated[
    list[str] | None, typer.Option("--without-tag", metavar="TAG", help="Nothing with one of these tags.")
]


def knowledge_settings(config: Path | None) -> "Settings":
    """Return the settings, with the variables of the inner voice even if it is disabled; warnings are printed.

    Raises:
        ConfigurationError: they cannot be used, or the store is in the memory of another process.
    """
    configuration = configuration_of(config, about_knowledge=True)
    for warning in configuration.warnings:
        typer.echo(f"warning: {printable(warning)}", err=True)
    return configuration.settings


@contextmanager
def opened_knowledge(settings: "Settings", *, make: bool = False) -> "Iterator[KnowledgePort]":
    """The knowledge store, open; with `make` it is made where there is none.

    Raises:
        RiglmError: there is none yet.
        AnalyticsUnavailableError: it cannot be used.
    """
    from riglm.container import Container

    container = Container(settings=settings)
    if not make:
        require_store(settings)
    with container.knowledge() as store:
        yield store


def owner_of(settings: "Settings", principal: str | None) -> str:
    """The keyed hash by which a principal owns knowledge; empty for the local user.

    Raises:
        ConfigurationError: the key cannot be kept, so what is stored under the hash could not be found.
    """
    if not principal or is_hash(principal):
        return principal or ""
    from riglm.adapters.configuration.locations import store_path
    from riglm.adapters.keyfile import load_or_create_key
    from riglm.container import Container

    if settings.privacy.key is None:
        load_or_create_key(store_path(settings).parent / "riglm.key")
    return Container(settings=settings).hasher().principal(principal)


def format_owner(principal: str | None) -> str:
    """Whose it is, in words."""
    return f"the principal {principal}" if principal else "the local user"


def chosen_embedder(settings: "Settings") -> "EmbedderPort":
    """Return the model without a fallback, not open yet."""
    from riglm.adapters.embedding.embedders import build_embedders

    return build_embedders(settings.embedder).chosen


def shown_text(piece: "Thought | Entity | Observation") -> str:
    """A piece in one line, with whom it is about."""
    from riglm.domain.knowledge import Observation

    text = f"{piece.entity}: {piece.text}" if isinstance(piece, Observation) else piece.text
    return " ".join(text.split())


def fields_of(table: "Table", piece: "Thought | Entity | Observation") -> dict[str, Any]:
    """A piece for programs."""
    from riglm.domain.knowledge import Entity, Thought

    common = {
        "id": table.public_id(str(piece.id)),
        "table": str(table),
        "owner": piece.owner,
        "created_at": json_time(piece.created_at),
        "tags": list(piece.tags),
        "text": piece.text,
    }
    if isinstance(piece, Thought):
        return {**common, "origin": str(piece.origin), "private": piece.is_private}
    if isinstance(piece, Entity):
        return {**common, "name": piece.name, "kind": piece.kind}
    return {**common, "entity": piece.entity}
