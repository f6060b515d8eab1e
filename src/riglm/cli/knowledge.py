"""`riglm knowledge`: what riglm knows and is asked by `inner_voice.retrieve`."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import typer

from riglm.adapters.embedding.embedders import build_embedders
from riglm.application.knowledge import importing
from riglm.application.knowledge.definition import ErrorCode, RetrievalError
from riglm.application.knowledge.inner_voice import fields_of
from riglm.application.knowledge.retrieval import Retrieval, RetrievalResult, question
from riglm.cli import output
from riglm.cli.store_access import PrincipalOption, configuration_of, owner_of, require_store
from riglm.container import Container
from riglm.domain.errors import RiglmError, UnusableInputError
from riglm.domain.knowledge import Embedding, Entity, Observation, SnippetCandidate, Table, Thought
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import parsed_uuid
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError
from riglm.ports.knowledge import KnowledgePort, Scope

PrivateOption = Annotated[bool, typer.Option("--include-private", help="Private thoughts as well.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with one of these tags.")]
WithoutTagOption = Annotated[
    list[str] | None, typer.Option("--without-tag", metavar="TAG", help="Nothing with one of these tags.")
]

_EMBEDDING_BATCH_SIZE: Final = 8
_MAX_SHOWN: Final = 20
_MAX_SHOWN_LENGTH: Final = 300
_NOT_FOUND: Final = {
    "floor_excluded_all": "there are snippets, but none is so similar to the question (--floor)",
    "no_candidates": "there is nothing that may be shown, or it has no vectors yet (`riglm knowledge stats`)",
}

app = typer.Typer(help="Fill, search and maintain the knowledge store.", rich_markup_mode=None, no_args_is_help=True)


@app.command(name="list")
def list_(
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=output.MAX_ROWS, help="Maximum number of rows per table, newest first."
        ),
    ] = 20,
    tag: TagOption = None,
    without_tag: WithoutTagOption = None,
    include_private: PrivateOption = False,
    principal: PrincipalOption = None,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """List what is known, newest first."""
    settings = _load_settings(config)
    scope = Scope(
        owner=owner_of(settings, principal),
        include_private=include_private,
        include_tags=frozenset(tag or ()),
        exclude_tags=frozenset(without_tag or ()),
    )
    with require_store(settings).knowledge() as store:
        found = [(table, piece) for table in Table for piece in store.newest(table, scope, limit)]
    rows = []
    for table, piece in found:
        id_, created = table.public_id(str(piece.id)), output.written_time(piece.created_at)
        rows.append((id_, created, ", ".join(piece.tags), _format_piece(piece)[:_MAX_SHOWN_LENGTH]))
    title, fields = f"Knowledge of {_format_owner(principal)}", [_piece_fields(*each) for each in found]
    output.print_rows(
        fields, title, ("id", "created", "tags", "text"), rows, as_json=as_json, empty="nothing is known yet"
    )


@app.command()
def stats(
    config: output.ConfigOption = None, principal: PrincipalOption = None, as_json: output.JsonOption = False
) -> None:
    """Count what one owner knows, and all, and what lacks a vector."""
    settings = _load_settings(config)
    owner = owner_of(settings, principal)
    with require_store(settings).knowledge() as store, chosen_embedder(settings) as embedder:
        model = embedder.model
        mine, all_ = (asdict(store.counts(each, model)) for each in (owner, None))
    if as_json:
        output.print_json({"model": model, "owner": owner, "own": mine, "all": all_})
        return
    rows = [(name.replace("_", " "), count, all_[name]) for name, count in mine.items()]
    output.print_table(f"Knowledge, by vectors of {model}", ["", _format_owner(principal), "all owners"], rows)


@app.command(name="import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON lines: thoughts, or what the MCP memory server wrote.")
    ],
    format_: Annotated[
        importing.LineFormat | None,
        typer.Option("--format", help="What the lines are; by default what the first one says."),
    ] = None,
    principal: PrincipalOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Look at all files first, and store nothing if a line is wrong.")
    ] = False,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Import files into the store.

    Records that the store has are skipped, so you can repeat an import at any time.
    """
    settings = _load_settings(config)
    sources = _find_sources(files, format_)
    owner = owner_of(settings, principal)
    if strict:
        importing.check(sources)
    with Container(settings=settings).knowledge() as store:
        with output.progress("reading bytes", sum(source.path.stat().st_size for source in sources)) as advance:
            done = importing.KnowledgeImporter(store, owner, time.time()).run(sources, advance)
        _report_left_out(done)
        embedded = _give_missing_vectors(settings, store)
    read, new, changed = done.read, done.new, done.changed
    kinds = ", ".join(f"{count} of {read[kind]} {kind}" for kind, count in new.items() if read[kind])
    others = ", ".join(f"{count} {kind}" for kind, count in changed.items() if count)
    lines = {
        f"new: {kinds or 'nothing'}": True,
        f"changed: {others}": others,
        f"left out: {done.left_out} lines": done.left_out,
        f"given vectors: {embedded.given}": True,
    }
    fields = {
        "files": [{"file": str(source.path), "format": source.format} for source in sources],
        "read": read,
        "new": new,
        "changed": changed,
        "left_out": done.left_out,
        "problems": [{"file": str(path), "line": line, "reason": why} for path, line, why in done.problems],
        "unknown_keys": done.unknown_keys,
        "embedded": embedded.given,
        "without_vector": embedded.waiting,
        "model": embedded.model,
    }
    output.print_result(fields, "\n".join(line for line, is_shown in lines.items() if is_shown), as_json=as_json)
    embedded.require_all()


def _find_sources(files: list[Path], asked: importing.LineFormat | None) -> list[importing.Source]:
    """The files, each with its format, said where it was guessed; empty ones are passed over."""
    sources = []
    for file in files:
        found = importing.format_of(file, asked)
        if found is None:
            typer.echo(f"{output.printable(str(file))}: empty", err=True)
            continue
        if asked is None:
            typer.echo(f"{output.printable(str(file))}: read as {found}, by what its lines say", err=True)
        sources.append(importing.Source(file, found))
    return sources


def _report_left_out(done: importing.ImportResult) -> None:
    for problem in done.problems[:_MAX_SHOWN]:
        typer.echo(f"left out: {output.printable(str(problem))}", err=True)
    if done.left_out > _MAX_SHOWN:
        typer.echo(f"left out: {done.left_out - _MAX_SHOWN} more lines", err=True)
    if done.unknown_keys:
        keys = ", ".join(f"{key!r} ({place})" for key, place in done.unknown_keys.items())
        typer.echo(f"unknown keys: {output.printable(keys)}", err=True)
    if done.left_out and not done.read.total():
        raise UnusableInputError(
            "no line could be used, and nothing was stored — fix: what is said above, line by line"
        )


@app.command()
def embed(config: output.ConfigOption = None, as_json: output.JsonOption = False) -> None:
    """Compute missing vectors for all owners.

    They are missing after an import that was interrupted, or with another model.

    An import does so by itself.
    """
    settings = _load_settings(config)
    with require_store(settings).knowledge() as store:
        done = _give_missing_vectors(settings, store)
    fields = {"model": done.model, "embedded": done.given, "without_vector": done.waiting}
    output.print_result(fields, f"{done.given} pieces were given vectors of {done.model}", as_json=as_json)
    done.require_all()


class _EmbeddingResult(NamedTuple):
    """How many pieces were given vectors of a model, and how many still wait for theirs, with the reason if any do."""

    model: str
    given: int
    waiting: int
    reason: str

    def require_all(self) -> None:
        """Raise `RiglmError` if pieces still wait."""
        if self.reason:
            raise RiglmError(
                f"{self.waiting} pieces cannot be found yet, since the embedder's model cannot be used "
                f"({self.reason}) — fix: see `riglm embedder status`, then run `riglm knowledge embed`"
            )


def _give_missing_vectors(settings: Settings, store: KnowledgePort) -> _EmbeddingResult:
    """Embed what lacks a vector of the current model, with a progress bar."""
    given, reason = 0, ""
    with chosen_embedder(settings) as embedder:
        lacking = store.counts(None, embedder.model).without_vector
        with output.progress("embedding", lacking) as advance:
            try:
                for count in importing.give_vectors(store, embedder, _EMBEDDING_BATCH_SIZE):
                    given += count
                    advance(count)
            except EmbedderUnavailableError as error:
                reason = str(error)
        return _EmbeddingResult(embedder.model, given, lacking - given if reason else 0, reason)


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="What is asked, in your own words.")],
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="N", min=1, max=50, help="Maximum number of snippets.")
    ] = None,
    floor: Annotated[
        float | None, typer.Option("--floor", metavar="X", min=0, max=1, help="So similar they are at least.")
    ] = None,
    mix: Annotated[
        float | None, typer.Option("--mix", metavar="X", min=0, max=1, help="The graph's share: 0 is thoughts alone.")
    ] = None,
    tag: TagOption = None,
    without_tag: WithoutTagOption = None,
    include_private: PrivateOption = False,
    principal: PrincipalOption = None,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Search what is known, as the tool inner_voice.retrieve does.

    The tool need not be enabled.
    """
    settings = _load_settings(config)
    asked = {"query": query, "top_k": top_k, "floor": floor, "mix": mix}
    of = {"include_private": include_private, "include_tags": tag, "exclude_tags": without_tag}
    try:
        answer = fields_of(asyncio.run(_retrieve(settings, {**asked, **of}, owner_of(settings, principal))))
    except RetrievalError as error:
        kind = UnusableInputError if error.code is ErrorCode.INVALID_PARAMS else RiglmError
        fix = " — fix: see `riglm embedder status`" if error.code is ErrorCode.EMBEDDER_UNAVAILABLE else ""
        raise kind(f"{error} ({error.code}){fix}") from error
    said = answer["diagnostics"]
    if as_json:
        output.print_json(answer)
    elif said.get("no_results"):
        typer.echo(f"nothing was found: {_NOT_FOUND[said['reason']]}")
    else:
        rows = [
            (f"{each['score']:.3f}", each["trust_tier"], each["origin"], each["id"], " ".join(each["text"].split()))
            for each in answer["snippets"]
        ]
        output.print_table("", ["score", "trust", "origin", "id", "text"], rows)


async def _retrieve(settings: Settings, asked: Mapping[str, Any], owner: str) -> RetrievalResult:
    async def embed_query(text: str) -> tuple[str, Embedding]:
        with chosen_embedder(settings) as embedder:
            [vector] = embedder.embed([text])
            embedding = Embedding(model=embedder.model, vector=vector)
            expected = settings.knowledge.dimensions
            if expected not in (None, embedding.dimensions):
                said = f"knowledge.dimensions is {expected}, but the model has {embedding.dimensions}"
                typer.echo(f"warning: {said}, which counts", err=True)
            return embedder.status().actual_provider, embedding

    async def nearest(table: Table, vector: Embedding, scope: Scope, most: int) -> list[SnippetCandidate]:
        return list(store.nearest(table, vector, scope, most))

    wanted = question(asked, settings.knowledge)
    with require_store(settings).knowledge() as store:
        return await Retrieval(embed_query, nearest, settings.knowledge).answer(wanted, owner)


@app.command()
def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Pieces by id, as list and search show it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="All with one of these tags.")] = None,
    principal: PrincipalOption = None,
    all_: Annotated[bool, typer.Option("--all", help="The pieces of all owners.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Remove pieces, private ones as well.

    An entity takes along its observations and relations.

    Entities that had a relation to it get a new text and new vectors. IDs and --tag are of one
    owner; --principal alone is all that is its, "" all that is the local user's.
    """
    is_part = bool(ids or tag)
    if sum((bool(ids), bool(tag), all_)) > 1 or not (is_part or all_ or principal is not None):
        raise UnusableInputError(
            "what to forget is not clear — fix: give IDs, or --tag, or --principal alone, or --all"
        )
    if all_ and principal is not None:
        raise UnusableInputError("--all covers all owners, --principal one — fix: give one of them")
    settings = _load_settings(config)
    named = [_parse_id(each) for each in ids or ()]
    owner = None if all_ else owner_of(settings, principal)
    scope = Scope(owner=owner, include_private=True, include_tags=frozenset(tag or ()))
    embedded = None
    with require_store(settings).knowledge() as store:
        found = {
            table: [id_ for id_ in store.ids(table, scope) if not named or (table, id_) in named] for table in Table
        }
        if is_part and not any(found.values()):
            raise RiglmError(f"nothing of this is {_format_owner(principal)}'s — fix: see `riglm knowledge list`")
        pieces = ", ".join(f"{len(some)} {table.removeprefix('kg_')}" for table, some in found.items() if some)
        whose = "all owners" if all_ else _format_owner(principal)
        if not yes:
            typer.confirm(f"Delete {pieces or 'nothing'} of {whose} permanently?", abort=True, err=True)
        if is_part:
            removed = sum(store.forget(table, some, owner) for table, some in found.items())
            embedded = _give_missing_vectors(settings, store) if found[Table.ENTITIES] else None
        else:
            removed = store.forget_owner(owner)
    fields = {"removed": removed, "embedded": 0 if embedded is None else embedded.given}
    output.print_result(fields, f"removed: {removed}", as_json=as_json)
    if embedded is not None:
        embedded.require_all()


def _parse_id(text: str) -> tuple[Table, UUID]:
    letter, _, rest = text.partition(":")
    id_ = parsed_uuid(rest)
    table = next((each for each in Table if each.public_id("") == f"{letter}:"), None)
    if table is None or id_ is None:
        raise UnusableInputError(f"{text!r} is no id of a piece — fix: write it as `riglm knowledge list` shows it")
    return table, id_


def _load_settings(config: Path | None) -> Settings:
    """Return the settings, with the variables of the inner voice even if it is disabled; warnings are printed.

    Raises:
        ConfigurationError: they cannot be used, or the store is in the memory of another process.
    """
    configuration = configuration_of(config, about_knowledge=True)
    for warning in configuration.warnings:
        typer.echo(f"warning: {output.printable(warning)}", err=True)
    return configuration.settings


def _format_owner(principal: str | None) -> str:
    return f"the principal {principal}" if principal else "the local user"


def chosen_embedder(settings: Settings) -> EmbedderPort:
    """Return the model without a fallback, not open yet."""
    return build_embedders(settings.embedder).chosen


def _format_piece(piece: Thought | Entity | Observation) -> str:
    """A piece in one line, with whom it is about."""
    text = f"{piece.entity}: {piece.text}" if isinstance(piece, Observation) else piece.text
    return " ".join(text.split())


def _piece_fields(table: Table, piece: Thought | Entity | Observation) -> dict[str, Any]:
    common = {
        "id": table.public_id(str(piece.id)),
        "table": str(table),
        "owner": piece.owner,
        "created_at": output.json_time(piece.created_at),
        "tags": list(piece.tags),
        "text": piece.text,
    }
    if isinstance(piece, Thought):
        return {**common, "origin": str(piece.origin), "private": piece.is_private}
    if isinstance(piece, Entity):
        return {**common, "name": piece.name, "kind": piece.kind}
    return {**common, "entity": piece.entity}
