"""`riglm knowledge forget`: delete pieces permanently."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from riglm.cli.knowledge_access import PrincipalOption, knowledge_settings, opened_knowledge, owner_of, told_owner
from riglm.cli.knowledge_embedding import give_missing_vectors
from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json
from riglm.domain.errors import RiglmError, UnusableInput

if TYPE_CHECKING:
    from riglm.domain.knowledge.provenance import Table
    from riglm.ports.knowledge import KnowledgePort


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
    from riglm.domain.knowledge.provenance import Table

    if sum((bool(ids), bool(tag), all_)) > 1 or not (ids or tag or all_ or principal is not None):
        raise UnusableInput("what to forget is not clear — fix: give IDs, or --tag, or --principal alone, or --all")
    if all_ and principal is not None:
        raise UnusableInput("--all covers all owners, --principal one — fix: give one of them")
    settings = knowledge_settings(config)
    named = _parsed(ids or [])
    owner = None if all_ else owner_of(settings, principal)
    with opened_knowledge(settings) as store:
        found = _chosen(store, owner, named, tag)
        count = sum(map(len, found.values()))
        if not count and (ids or tag):
            raise RiglmError(f"nothing of this is {told_owner(principal)}'s — fix: see `riglm knowledge list`")
        whose = "all owners" if all_ else told_owner(principal)
        if not yes:
            typer.confirm(f"Delete {_words(found)} of {whose} permanently?", abort=True, err=True)
        if ids or tag:
            gone = sum(store.forget(table, some, owner) for table, some in found.items())
        else:
            gone = store.forget_owner(owner)
        embedded = give_missing_vectors(settings, store) if (ids or tag) and found[Table.ENTITIES] else None
    if as_json:
        print_json({"removed": gone, "embedded": 0 if embedded is None else embedded.given})
    else:
        typer.echo(f"removed: {gone}")
    if embedded is not None:
        embedded.require_all()


def _chosen(
    store: "KnowledgePort", owner: str | None, named: "dict[Table, set[UUID]]", tags: list[str] | None
) -> "dict[Table, list[UUID]]":
    """What is to go, by table: all that is seen with these tags, among the named where any are."""
    from riglm.domain.knowledge.provenance import Table
    from riglm.ports.knowledge import Scope

    scope = Scope(owner=owner, include_private=True, include_tags=frozenset(tags or ()))
    found = {table: store.ids(table, scope) for table in Table}
    return {table: [id_ for id_ in there if not named or id_ in named[table]] for table, there in found.items()}


def _parsed(ids: list[str]) -> "dict[Table, set[UUID]]":
    from riglm.domain.identifier import parsed_uuid
    from riglm.domain.knowledge.provenance import Table

    if not ids:
        return {}
    letters = {table.public_id("").removesuffix(":"): table for table in Table}
    named: dict[Table, set[UUID]] = {table: set() for table in Table}
    for given in ids:
        letter, _, rest = given.partition(":")
        id_ = parsed_uuid(rest)
        if letter not in letters or id_ is None:
            raise UnusableInput(f"{given!r} is no id of a piece — fix: write it as `riglm knowledge list` shows it")
        named[letters[letter]].add(id_)
    return named


def _words(found: "dict[Table, list[UUID]]") -> str:
    counts = [f"{len(ids)} {table.removeprefix('kg_')}" for table, ids in found.items() if ids]
    return ", ".join(counts) or "nothing"
