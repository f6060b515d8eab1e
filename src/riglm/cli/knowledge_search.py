"""`riglm knowledge search`: what `inner_voice.retrieve` answers, on the command line."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.knowledge_access import (
    PrincipalOption,
    PrivateOption,
    chosen_embedder,
    knowledge_settings,
    opened_knowledge,
    owner_of,
)
from riglm.cli.output import ConfigOption, JsonOption, print_json, print_table
from riglm.domain.errors import RiglmError, UnusableInputError

if TYPE_CHECKING:
    from riglm.application.knowledge.retrieval import EmbeddedQuery, RetrievalResult
    from riglm.domain.knowledge.provenance import Table
    from riglm.domain.knowledge.records import Embedding, SnippetCandidate
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.knowledge import Scope


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
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with one of these tags.")] = None,
    without_tag: Annotated[
        list[str] | None, typer.Option("--without-tag", metavar="TAG", help="Nothing with one of these tags.")
    ] = None,
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
    from riglm.domain.knowledge.records import Embedding

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
