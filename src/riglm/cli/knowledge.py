"""`riglm knowledge`: what riglm knows and is asked by `inner_voice.retrieve`."""

import asyncio
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from riglm.cli.knowledge_access import (
    PrincipalOption,
    PrivateOption,
    TagOption,
    WithoutTagOption,
    chosen_embedder,
    fields_of,
    format_owner,
    knowledge_settings,
    opened_knowledge,
    owner_of,
    shown_text,
)
from riglm.cli.output import (
    MAX_ROWS,
    ConfigOption,
    JsonOption,
    print_json,
    print_table,
    printable,
    progress,
    written_time,
)
from riglm.domain.errors import RiglmError, UnusableInputError

if TYPE_CHECKING:
    from riglm.application.knowledge.importing import ImportResult, Source
    from riglm.application.knowledge.retrieval import EmbeddedQuery, RetrievalResult
    from riglm.domain.knowledge import Embedding, SnippetCandidate, Table
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.knowledge import KnowledgePort, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResult:
    """How many pieces were given vectors of a model, and how many still wait for theirs, with the reason if any do."""

    model: str
    given: int
    waiting: int
    reason: str = ""

    def require_all(self) -> None:
        """Raise `RiglmError` if pieces still wait."""
        if self.reason:
            raise RiglmError(
                f"{self.waiting} pieces cannot be found yet, since the embedder's model cannot be used "
                f"({self.reason}) — fix: see `riglm embedder status`, then run `riglm knowledge embed`"
            )


def embed(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Compute missing vectors for all owners: after an import that was interrupted, or with another model.

    An import does so by itself.
    """
    settings = knowledge_settings(config)
    with opened_knowledge(settings) as store:
        done = give_missing_vectors(settings, store)
    if as_json:
        print_json({"model": done.model, "embedded": done.given, "without_vector": done.waiting})
    else:
        typer.echo(f"{done.given} pieces were given vectors of {done.model}")
    done.require_all()


_EMBEDDING_BATCH_SIZE = 8


def give_missing_vectors(settings: "Settings", store: "KnowledgePort") -> EmbeddingResult:
    """Embed what lacks a vector of the current model, with a progress bar."""
    from riglm.application.knowledge.importing import give_vectors
    from riglm.ports.embedder import EmbedderUnavailableError

    given = 0
    with chosen_embedder(settings) as embedder:
        lacking = store.counts(None, embedder.model).without_vector
        with progress("embedding", lacking) as advance:

            def done(count: int) -> None:
                nonlocal given
                given += count
                advance(count)

            try:
                give_vectors(store, embedder, _EMBEDDING_BATCH_SIZE, done)
            except EmbedderUnavailableError as error:
                return EmbeddingResult(model=embedder.model, given=given, waiting=lacking - given, reason=str(error))
        return EmbeddingResult(model=embedder.model, given=given, waiting=0)


_MAX_SHOWN = 20


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
    sources = _find_sources(files, format_)
    owner = owner_of(settings, principal)
    if strict:
        from riglm.application.knowledge.importing import check

        check(sources)
    with opened_knowledge(settings, make=True) as store:
        done = _import_sources(store, sources, owner)
        _print_left_out(done)
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
        _print_import(done, embedded)
    embedded.require_all()


def _find_sources(files: list[Path], asked: ImportFormat | None) -> "list[Source]":
    """The files, each with its format, said where it was guessed; empty ones are passed over."""
    from riglm.application.knowledge.importing import LineFormat, Source, format_of

    sources = []
    for file in files:
        found = format_of(file, None if asked is None else LineFormat(asked))
        if found is None:
            typer.echo(f"{printable(str(file))}: empty", err=True)
            continue
        if asked is None:
            typer.echo(f"{printable(str(file))}: read as {found}, by what its lines say", err=True)
        sources.append(Source(file, found))
    return sources


def _import_sources(store: "KnowledgePort", sources: "list[Source]", owner: str) -> "ImportResult":
    from riglm.application.knowledge.importing import KnowledgeImporter

    with progress("reading bytes", sum(source.path.stat().st_size for source in sources)) as advance:
        return KnowledgeImporter(store, owner, time.time()).run(sources, advance)


def _print_left_out(done: "ImportResult") -> None:
    for problem in done.problems[:_MAX_SHOWN]:
        typer.echo(f"left out: {printable(str(problem))}", err=True)
    if done.left_out > _MAX_SHOWN:
        typer.echo(f"left out: {done.left_out - _MAX_SHOWN} more lines", err=True)
    if done.unknown_keys:
        keys = ", ".join(f"{key!r} ({place})" for key, place in done.unknown_keys.items())
        typer.echo(f"unknown keys: {printable(keys)}", err=True)
    if done.left_out and not done.read.total:
        raise UnusableInputError(
            "no line could be used, and nothing was stored — fix: what is said above, line by line"
        )


def _print_import(done: "ImportResult", embedded: "EmbeddingResult") -> None:
    read = asdict(done.read)
    kinds = [f"{new} of {read[kind]} {kind}" for kind, new in asdict(done.new).items() if read[kind]]
    typer.echo(f"new: {', '.join(kinds) or 'nothing'}")
    if done.changed.total:
        others = [f"{number} {kind}" for kind, number in asdict(done.changed).items() if number]
        typer.echo(f"changed: {', '.join(others)}")
    if done.left_out:
        typer.echo(f"left out: {done.left_out} lines")
    typer.echo(f"given vectors: {embedded.given}")


def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Pieces by id, as list and search show it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="All with one of these tags.")] = None,
    principal: PrincipalOption = None,
    all_: Annotated[bool, typer.Option("--all", help="The pieces of all owners.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove pieces, private ones as well; an entity takes along its observations and relations.

    Entities that had a relation to it get a new text and new vectors. IDs and --tag are of one
    owner; --principal alone is all that is its, "" all that is the local user's.
    """
    from riglm.domain.knowledge import Table

    if sum((bool(ids), bool(tag), all_)) > 1 or not (ids or tag or all_ or principal is not None):
        raise UnusableInputError(
            "what to forget is not clear — fix: give IDs, or --tag, or --principal alone, or --all"
        )
    if all_ and principal is not None:
        raise UnusableInputError("--all covers all owners, --principal one — fix: give one of them")
    settings = knowledge_settings(config)
    named = _parse_ids(ids or [])
    owner = None if all_ else owner_of(settings, principal)
    with opened_knowledge(settings) as store:
        found = _find_pieces(store, owner, named, tag)
        count = sum(map(len, found.values()))
        if not count and (ids or tag):
            raise RiglmError(f"nothing of this is {format_owner(principal)}'s — fix: see `riglm knowledge list`")
        whose = "all owners" if all_ else format_owner(principal)
        if not yes:
            typer.confirm(f"Delete {_format_pieces(found)} of {whose} permanently?", abort=True, err=True)
        if ids or tag:
            removed = sum(store.forget(table, some, owner) for table, some in found.items())
        else:
            removed = store.forget_owner(owner)
        embedded = give_missing_vectors(settings, store) if (ids or tag) and found[Table.ENTITIES] else None
    if as_json:
        print_json({"removed": removed, "embedded": 0 if embedded is None else embedded.given})
    else:
        typer.echo(f"removed: {removed}")
    if embedded is not None:
        embedded.require_all()


def _find_pieces(
    store: "KnowledgePort", owner: str | None, named: "dict[Table, set[UUID]]", tags: list[str] | None
) -> "dict[Table, list[UUID]]":
    """What is to go, by table: all that is seen with these tags, among the named where any are."""
    from riglm.domain.knowledge import Table
    from riglm.ports.knowledge import Scope

    scope = Scope(owner=owner, include_private=True, include_tags=frozenset(tags or ()))
    found = {table: store.ids(table, scope) for table in Table}
    return {table: [id_ for id_ in there if not named or id_ in named[table]] for table, there in found.items()}


def _parse_ids(ids: list[str]) -> "dict[Table, set[UUID]]":
    from riglm.domain.knowledge import Table
    from riglm.domain.session import parsed_uuid

    if not ids:
        return {}
    letters = {table.public_id("").removesuffix(":"): table for table in Table}
    named: dict[Table, set[UUID]] = {table: set() for table in Table}
    for given in ids:
        letter, _, rest = given.partition(":")
        id_ = parsed_uuid(rest)
        if letter not in letters or id_ is None:
            raise UnusableInputError(
                f"{given!r} is no id of a piece — fix: write it as `riglm knowledge list` shows it"
            )
        named[letters[letter]].add(id_)
    return named


def _format_pieces(found: "dict[Table, list[UUID]]") -> str:
    counts = [f"{len(ids)} {table.removeprefix('kg_')}" for table, ids in found.items() if ids]
    return ", ".join(counts) or "nothing"


app = typer.Typer(help="Fill, search and maintain the knowledge store.", rich_markup_mode=None, no_args_is_help=True)

_SHOWN = 300


@app.command(name="list")
def list_(
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=MAX_ROWS, help="Maximum number of rows per table, newest first."
        ),
    ] = 20,
    tag: TagOption = None,
    without_tag: WithoutTagOption = None,
    include_private: PrivateOption = False,
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is known, newest first; private thoughts when asked for."""
    from riglm.domain.knowledge import Table
    from riglm.ports.knowledge import Scope

    settings = knowledge_settings(config)
    scope = Scope(
        owner=owner_of(settings, principal),
        include_private=include_private,
        include_tags=frozenset(tag or ()),
        exclude_tags=frozenset(without_tag or ()),
    )
    with opened_knowledge(settings) as store:
        found = [(table, piece) for table in Table for piece in store.newest(table, scope, limit)]
    if as_json:
        print_json([fields_of(table, piece) for table, piece in found])
        return
    rows = [
        (
            table.public_id(str(piece.id)),
            written_time(piece.created_at),
            ", ".join(piece.tags),
            shown_text(piece)[:_SHOWN],
        )
        for table, piece in found
    ]
    print_table(f"Knowledge of {format_owner(principal)}", ["id", "created", "tags", "text"], rows)


@app.command()
def stats(config: ConfigOption = None, principal: PrincipalOption = None, as_json: JsonOption = False) -> None:
    """Count what is known, of one owner and of all, and what cannot be found yet for want of a vector."""
    settings = knowledge_settings(config)
    owner = owner_of(settings, principal)
    with opened_knowledge(settings) as store, chosen_embedder(settings) as embedder:
        model = embedder.model
        mine, all_ = store.counts(owner, model), store.counts(None, model)
    if as_json:
        print_json({"model": model, "owner": owner, "own": asdict(mine), "all": asdict(all_)})
        return
    rows = [(name.replace("_", " "), count, asdict(all_)[name]) for name, count in asdict(mine).items()]
    print_table(f"Knowledge, by vectors of {model}", ["", format_owner(principal), "all owners"], rows)


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
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask what is known: the answer is that of the tool inner_voice.retrieve, which need not be switched on."""
    from riglm.application.knowledge.definition import ErrorCode, RetrievalError
    from riglm.application.knowledge.inner_voice import fields_of

    settings = knowledge_settings(config)
    asked = {
        "query": query,
        "top_k": top_k,
        "floor": floor,
        "mix": mix,
        "include_private": include_private,
        "include_tags": tag,
        "exclude_tags": without_tag,
    }
    try:
        answer = _retrieve_snippets(settings, asked, owner_of(settings, principal))
    except RetrievalError as error:
        kind = UnusableInputError if error.code is ErrorCode.INVALID_PARAMS else RiglmError
        raise kind(f"{error} ({error.code}){_format_fix(error.code)}") from error
    fields = fields_of(answer)
    if as_json:
        print_json(fields)
    else:
        _print_snippets(fields)


def _retrieve_snippets(settings: "Settings", asked: dict[str, Any], owner: str) -> "RetrievalResult":
    from riglm.application.knowledge.retrieval import Retrieval, question

    wanted = question(asked, settings.knowledge)
    with opened_knowledge(settings) as store:

        async def nearest(table: "Table", vector: "Embedding", scope: "Scope", most: int) -> "list[SnippetCandidate]":
            return list(store.nearest(table, vector, scope, most))

        retrieval = Retrieval(lambda text: _embed_question(settings, text), nearest, settings.knowledge)
        return asyncio.run(retrieval.answer(wanted, owner))


async def _embed_question(settings: "Settings", text: str) -> "EmbeddedQuery":
    from riglm.application.knowledge.retrieval import EmbeddedQuery
    from riglm.domain.knowledge import Embedding

    with chosen_embedder(settings) as embedder:
        [vector] = embedder.embed([text])
        embedding = Embedding(model=embedder.model, vector=vector)
        if settings.knowledge.dimensions not in (None, embedding.dimensions):
            said = f"knowledge.dimensions is {settings.knowledge.dimensions}, but the model has {embedding.dimensions}"
            typer.echo(f"warning: {said}, which counts", err=True)
        return EmbeddedQuery(provider=embedder.status().actual_provider, embedding=embedding)


def _format_fix(code: str) -> str:
    return " — fix: see `riglm embedder status`" if code == "embedder_unavailable" else ""


def _print_snippets(answer: dict[str, Any]) -> None:
    said = answer["diagnostics"]
    if said.get("no_results"):
        typer.echo("nothing was found: " + _WHY[said["reason"]])
        return
    rows = [
        (f"{each['score']:.3f}", each["trust_tier"], each["origin"], each["id"], " ".join(each["text"].split()))
        for each in answer["snippets"]
    ]
    print_table("", ["score", "trust", "origin", "id", "text"], rows)


_WHY = {
    "floor_excluded_all": "there are snippets, but none is so similar to the question (--floor)",
    "no_candidates": "there is nothing that may be shown, or it has no vectors yet (`riglm knowledge stats`)",
}


app.command(name="import")(import_)
app.command()(embed)
app.command()(search)
app.command()(forget)
