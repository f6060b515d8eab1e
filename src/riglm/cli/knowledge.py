"""`riglm knowledge`: what riglm knows and is asked by `inner_voice.retrieve`."""

from dataclasses import asdict
from typing import Annotated

import typer

from riglm.cli import knowledge_embedding, knowledge_forgetting, knowledge_importing, knowledge_search
from riglm.cli.knowledge_access import (
    PrincipalOption,
    PrivateOption,
    chosen_embedder,
    fields_of,
    knowledge_settings,
    opened_knowledge,
    owner_of,
    shown_text,
    told_owner,
)
from riglm.cli.options import MOST_ROWS, ConfigOption, JsonOption
from riglm.cli.output import print_json, print_table, written_time

app = typer.Typer(
    help="Fill, search and maintain the store of thoughts and of the knowledge graph.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command(name="import")(knowledge_importing.import_)
app.command()(knowledge_embedding.embed)
app.command()(knowledge_search.search)
app.command()(knowledge_forgetting.forget)

_SHOWN = 300


@app.command(name="list")
def list_(
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=MOST_ROWS, help="Maximum number of rows per table, newest first."
        ),
    ] = 20,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with one of these tags.")] = None,
    without_tag: Annotated[
        list[str] | None, typer.Option("--without-tag", metavar="TAG", help="Nothing with one of these tags.")
    ] = None,
    include_private: PrivateOption = False,
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is known, newest first; private thoughts when asked for."""
    from riglm.domain.knowledge.provenance import Table
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
    print_table(f"Knowledge of {told_owner(principal)}", ["id", "created", "tags", "text"], rows)


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
    print_table(f"Knowledge, by vectors of {model}", ["", told_owner(principal), "everybody"], rows)
