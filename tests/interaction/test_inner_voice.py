"""inner_voice.retrieve through real clients: what the specification of the tool says, point by point."""

import contextlib
import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError

from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.definition import OUTPUT_SCHEMA
from riglm.domain.hashing import KeyedHasher
from riglm.domain.knowledge import Embedding, Entity, Observation, Origin, Thought
from riglm.domain.session import uuid7
from tests.interaction.clients.raw import HANDSHAKE, MODERN
from tests.interaction.route import CORNERS, RIGLM, Route, routes
from tests.interaction.stage import Stage
from tests.interaction.test_client_libraries import MODES, sdk_client
from tests.waiting import wait_until_async

NAME = "inner_voice.retrieve"
ON = {"SURR_ENABLE_INNER_VOICE": "1"}
WORDS = "falcon migration over the northern ridge"
"""What the stored texts speak of, and what is asked for."""

_EMBEDDER = HashingEmbedder()


def embedded(words: str) -> Embedding:
    return Embedding(model=_EMBEDDER.model, vector=_EMBEDDER.embed([words])[0])


@dataclass
class Shelf:
    """Pieces of one test's own in a database, with a tag."""

    path: Path
    owner: str = ""
    tag: str = "mine"

    def clear(self) -> None:
        """Take all pieces away."""
        with self._open() as store:
            store.forget_owner(self.owner)

    def thought(self, words: str, **more: Any) -> Thought:
        """Keep a thought."""
        return self.thoughts(words, **more)[0]

    def thoughts(self, *texts: str, **more: Any) -> list[Thought]:
        """Keep thoughts that are alike but for their texts."""
        given: dict[str, Any] = {"origin": Origin.HUMAN, "created_at": 1_756_847_476.0, **more}
        given["tags"] = (self.tag, *more.get("tags", ()))
        pieces = [
            Thought(id=uuid7(), owner=self.owner, text=words, **{"embedding": embedded(words), **given})
            for words in texts
        ]
        with self._open() as store:
            store.add_thoughts(pieces)
        return pieces

    def entity(self, name: str, words: str) -> Entity:
        """Keep an entity."""
        piece = Entity(
            id=uuid7(),
            owner=self.owner,
            name=name,
            kind="bird",
            text=words,
            created_at=2.0,
            tags=(self.tag,),
            embedding=embedded(words),
        )
        with self._open() as store:
            store.add_entities([piece])
        return piece

    def observations(self, entity: str, *texts: str) -> list[Observation]:
        """Keep what is known of an entity."""
        pieces = [
            Observation(
                id=uuid7(),
                owner=self.owner,
                entity=entity,
                text=words,
                created_at=3.0,
                tags=(self.tag,),
                embedding=embedded(words),
            )
            for words in texts
        ]
        with self._open() as store:
            store.add_observations(pieces)
        return pieces

    def _open(self) -> SqlKnowledge:
        return SqlKnowledge(f"sqlite:///{self.path}")


@dataclass
class Asking:
    """Asks the tool of one riglm, as a modern client, about what is on one shelf."""

    url: str
    shelf: Shelf

    async def result(self, query: Any = WORDS, **given: Any) -> Any:
        """The whole result."""
        async with Client(self.url, mode=MODES[MODERN], read_timeout_seconds=30) as client:
            await client.list_tools()
            return await client.call_tool(NAME, {"query": query, "include_tags": [self.shelf.tag], **given})

    async def __call__(self, query: str = WORDS, **given: Any) -> Any:
        """The structured content, which the text says as well."""
        result = await self.result(query, **given)
        assert not result.is_error, result
        assert json.loads(result.content[0].text) == result.structured_content
        Draft202012Validator(OUTPUT_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
            result.structured_content
        )
        return result.structured_content

    async def code(self, query: Any = WORDS, **given: Any) -> str:
        """The code of the error."""
        return code_of(await self.result(query, **given))


def code_of(result: Any) -> str:
    assert result.is_error, result
    assert result.structured_content is None
    told = json.loads(result.content[0].text)
    assert list(told) == ["error"]
    assert sorted(told["error"]) == ["code", "message"]
    return str(told["error"]["code"])


@pytest.fixture(params=[HANDSHAKE, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(actors: Stage) -> Iterator[Asking]:
    """Asks a riglm that all tests share, about a shelf of the test's own."""
    origin = actors.serve(*actors.back("http"), env=ON)
    shelf = Shelf(actors.folder / "data" / "riglm.db")
    yield Asking(origin + "/mcp", shelf)
    shelf.clear()


def ids(answer: Any) -> list[str]:
    return [snippet["id"] for snippet in answer["snippets"]]


def tables(answer: Any) -> list[str]:
    return [snippet["table"] for snippet in answer["snippets"]]


async def test_private_thoughts_are_given_only_when_they_are_asked_for(ask: Asking):
    public, private = ask.shelf.thought(f"{WORDS} for all"), ask.shelf.thought(f"{WORDS} for me", is_private=True)
    assert ids(await ask()) == [f"t:{public.id}"]
    assert set(ids(await ask(include_private=True))) == {f"t:{public.id}", f"t:{private.id}"}


async def test_an_answer_without_snippets_says_whether_the_floor_or_the_store_is_why(ask: Asking):
    answer = await ask()
    assert answer["snippets"] == []
    assert (answer["diagnostics"]["no_results"], answer["diagnostics"]["reason"]) == (True, "no_candidates")
    ask.shelf.thought("whales and tea")
    answer = await ask()
    assert answer["snippets"] == []
    assert (answer["diagnostics"]["no_results"], answer["diagnostics"]["reason"]) == (True, "floor_excluded_all")
    assert answer["diagnostics"]["floor_used"] == 0.15
    assert answer["diagnostics"]["thought_candidates"] == 1


async def test_a_snippet_says_where_it_comes_from_and_how_far_it_is_to_be_trusted(ask: Asking):
    stored = {}
    tiers = {Origin.HUMAN: "green", Origin.LOGGED: "green", Origin.TOOL: "amber", Origin.MODEL: "red"}
    for origin, tier in tiers.items():
        piece = ask.shelf.thought(f"{WORDS} by {origin}", origin=origin)
        stored[f"t:{piece.id}"] = (piece.text, "thoughts", "thought", str(origin), tier)
    entity = ask.shelf.entity("falcon", f"{WORDS} is an entity")
    stored[f"e:{entity.id}"] = (entity.text, "kg_entities", "kg_entity", "tool", "green")
    seen = ask.shelf.observations("falcon", f"{WORDS} is observed")[0]
    stored[f"o:{seen.id}"] = (seen.text, "kg_observations", "kg_observation", "tool", "green")
    answer = await ask()
    fields = ("text", "table", "source_type", "origin", "trust_tier")
    assert {each["id"]: tuple(each[key] for key in fields) for each in answer["snippets"]} == stored
    (thought,) = [each for each in answer["snippets"] if each["origin"] == "human"]
    assert thought["created_at"] == "2025-09-02T21:11:16Z"
    assert answer["diagnostics"] | {"latency_ms": 0, "floor_used": 0} == {
        "provider": "static",
        "model": _EMBEDDER.model,
        "dim": 256,
        "k_req": 10,
        "k_ret": 6,
        "kg_candidates": 2,
        "thought_candidates": 4,
        "floor_used": 0,
        "latency_ms": 0,
    }


async def test_arguments_that_are_no_object_are_invalid_params(actors: Stage, ask: Asking):
    route = Route("http", "http", RIGLM, MODERN)
    async with actors.client(route, env=ON) as client:
        for raw in (b"[]", b'"falcon"', b"null", b"7"):
            answer = await client.request("tools/call", b'{"name":"%b","arguments":%b}' % (NAME.encode(), raw))
            assert json.loads(answer.words)["error"]["code"] == "invalid_params"
        bare = await client.request("tools/call", b'{"name":"%b"}' % NAME.encode())
        assert json.loads(bare.words)["error"]["code"] == "invalid_params"


async def test_the_tool_is_off_by_default_and_says_so(actors: Stage, era: str):
    origin = actors.serve(*actors.back("http"))
    async with Client(origin + "/mcp", mode=MODES[era]) as client:
        assert NAME not in {tool.name for tool in (await client.list_tools()).tools}
        assert code_of(await client.call_tool(NAME, {"query": WORDS})) == "feature_disabled"


SURFACES = {
    "off": {"RIGLM_FILTERING__ENABLED": "false"},
    "hints": {"RIGLM_FILTERING__MODE": "enforce", "RIGLM_FILTERING__SURFACE": "hints"},
}


@pytest.mark.parametrize("settings", SURFACES.values(), ids=SURFACES)
async def test_the_tool_is_the_last_of_every_list_and_can_be_called(
    actors: Stage, ask: Asking, settings: dict[str, str]
):
    few = {"RIGLM_FILTERING__COVERAGE": "0.95"}
    ask.url = actors.serve(*actors.back("http", "--tools", "one,two"), env={**ON, **few, **settings}) + "/mcp"
    ask.shelf.thought(WORDS)
    async with Client(ask.url, mode=MODES[MODERN]) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names.count(NAME) == 1
    assert names[-1] == NAME
    assert "one" in names
    assert [snippet["text"] for snippet in (await ask())["snippets"]] == [WORDS]


@routes(CORNERS)
async def test_the_tool_is_listed_and_called_over_every_transport(stage: Stage, route: Route):
    stage.settings.update(ON)
    Shelf(stage.folder / "data" / "riglm.db").thought(WORDS)
    async with sdk_client(stage, route, MODES[route.era], "--tools", "one") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["one", NAME]
        result = await client.call_tool(NAME, {"query": WORDS})
    assert [snippet["text"] for snippet in result.structured_content["snippets"]] == [WORDS]


async def test_an_alias_is_listed_in_the_place_of_the_name_which_can_still_be_called(actors: Stage, ask: Asking):
    env = {**ON, "RIGLM_KNOWLEDGE__ALIAS": "snippets_retrieve"}
    ask.url = actors.serve(*actors.back("http", "--tools", "one"), env=env) + "/mcp"
    async with Client(ask.url, mode=MODES[MODERN]) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["one", "snippets_retrieve"]
        for name in ("snippets_retrieve", NAME):
            assert not (await client.call_tool(name, {"query": WORDS})).is_error


async def test_a_server_s_tool_of_the_same_name_is_left_out_and_reached_by_call_tool(actors: Stage, ask: Asking):
    env = {**ON, "RIGLM_FILTERING__MODE": "enforce", "RIGLM_FILTERING__PINNED": "call_tool"}
    env["RIGLM_FILTERING__SURFACE"] = "dynamic"
    flags = ("--tools", f"{NAME},one")
    ask.url = actors.serve(*actors.back("http", *flags), env=env) + "/mcp"
    ask.shelf.thought(WORDS)
    async with Client(ask.url, mode=MODES[MODERN]) as client:
        listed = [tool for tool in (await client.list_tools()).tools if tool.name == NAME]
        assert [tool.output_schema for tool in listed] == [OUTPUT_SCHEMA]
        theirs = await client.call_tool("call_tool", {"name": NAME, "arguments": {"query": WORDS}})
    assert len((await ask())["snippets"]) == 1
    assert "snippets" not in json.dumps([block.model_dump() for block in theirs.content])


WITHOUT_MODEL = {
    "not in time": ({"RIGLM_EMBEDDER__START_DEADLINE": "0.001"}, "try again later"),
    "not there": ({"RIGLM_EMBEDDER__MODEL": "BAAI/bge-small-en-v1.5"}, "riglm embedder pull BAAI/bge-small-en-v1.5"),
}
"""Why the configured model cannot be used, and the fix; the installed model is there and could be used instead."""


@pytest.mark.parametrize(("settings", "fix"), WITHOUT_MODEL.values(), ids=WITHOUT_MODEL)
async def test_without_its_model_the_embedder_is_unavailable_and_nothing_stands_in(
    actors: Stage, ask: Asking, settings: dict[str, str], fix: str
):
    models = str(actors.folder / "models")
    env = {**ON, "RIGLM_EMBEDDER__PROVIDER": "fastembed", "RIGLM_EMBEDDER__DIRECTORY": models, **settings}
    ask.url = actors.serve(*actors.back("http"), env=env) + "/mcp"
    ask.shelf.thought(WORDS)
    assert await ask.code() == "embedder_unavailable"
    result = await ask.result(WORDS)
    assert code_of(result) == "embedder_unavailable"
    assert fix in result.content[0].text


async def test_a_store_that_fails_is_db_error(stage: Stage):
    origin = stage.serve(*stage.back("http"), env=ON)
    shelf = Shelf(stage.folder / "data" / "riglm.db")
    asking = Asking(origin + "/mcp", shelf)
    shelf.thought(WORDS)
    assert len((await asking())["snippets"]) == 1
    with contextlib.closing(sqlite3.connect(shelf.path)) as database:
        database.execute("ALTER TABLE thought RENAME TO elsewhere")
    result = await asking.result()
    assert code_of(result) == "db_error"
    assert "thought" not in result.content[0].text


async def test_what_should_never_be_in_a_store_is_internal_error_and_tells_nothing_of_it(stage: Stage):
    origin = stage.serve(*stage.back("http"), env=ON)
    shelf = Shelf(stage.folder / "data" / "riglm.db")
    shelf.thought(WORDS)
    with contextlib.closing(sqlite3.connect(shelf.path)) as database, database:
        database.execute("UPDATE thought SET origin = 'xylophonist'")
    result = await Asking(origin + "/mcp", shelf).result()
    assert code_of(result) == "internal_error"
    assert "xylophonist" not in result.content[0].text
    assert (await told(stage, f"{NAME} failed"))["cause"] == "ValueError"
    holds_no_words(stage)


def log_of(stage: Stage) -> list[dict[str, Any]]:
    lines = (stage.folder / "riglm.stderr").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


async def told(stage: Stage, event: str) -> dict[str, Any]:
    """The line of the log with this event, as soon as it is there."""
    await wait_until_async(lambda: any(line["event"] == event for line in log_of(stage)), f"{event} is logged")
    return next(line for line in log_of(stage) if line["event"] == event)


async def asked_in_secret(stage: Stage, **settings: str) -> tuple[Asking, str]:
    """A riglm that was asked a question with a word in it that no log may hold, and answered with it."""
    origin = stage.serve(*stage.back("http"), env={**ON, **settings})
    shelf = Shelf(stage.folder / "data" / "riglm.db")
    piece = shelf.thought(f"{WORDS} and xylophonist", tags=("vibraphone",))
    asking = Asking(origin + "/mcp", shelf)
    assert len((await asking("falcon and xylophonist", exclude_tags=["marimba"]))["snippets"]) == 1
    assert await asking.code("xylophonist", top_k="marimba") == "invalid_params"
    return asking, str(piece.id)


def holds_no_words(stage: Stage) -> None:
    said = (stage.folder / "riglm.stderr").read_text()
    assert [word for word in ("xylophonist", "vibraphone", "marimba", "falcon") if word in said] == []


async def test_the_log_has_numbers_and_ids_of_an_answer_and_no_words(stage: Stage):
    _, key = await asked_in_secret(stage, RIGLM_LOGGING__LEVEL="debug")
    line = await told(stage, f"{NAME} answered")
    metrics = {"provider", "model", "dim", "k_req", "floor", "floor_used", "kg_candidates", "thought_candidates"}
    assert {*line} - {"timestamp", "level", "logger", "event"} == {*metrics, "k_ret", "latency_ms"}
    assert (await told(stage, f"{NAME} failed"))["code"] == "invalid_params"
    given = await told(stage, f"{NAME} gave")
    assert (given["level"], given["ids"], given["tables"]) == ("debug", [f"t:{key}"], ["thoughts"])
    holds_no_words(stage)


async def test_with_mcp_no_log_nothing_but_counters_is_logged(stage: Stage):
    asking, _ = await asked_in_secret(stage, MCP_NO_LOG="1", RIGLM_LOGGING__LEVEL="debug")
    stage.served_by(asking.url.removesuffix("/mcp")).end()
    (line,) = [line for line in log_of(stage) if line["logger"] == "riglm.knowledge"]
    assert (line["succeeded"], line["failed"]) == (1, 1)
    assert {*line} - {"timestamp", "level", "logger", "event"} == {"succeeded", "failed"}
    holds_no_words(stage)


KEY = "c1f0a8d2b7e94f36a5d08c7e21b394f6"
TOKENS = {"alice": "the-token-of-alice", "bob": "the-token-of-bob"}
OWNERS = {"local": ""} | {
    name: KeyedHasher(hashlib.sha256(KEY.encode()).digest()).principal(name) for name in ("bearer", *TOKENS)
}
"""The principals at one database: whoever comes without a token, and whoever has one of them."""


@pytest.mark.parametrize(("era", "shared"), [(HANDSHAKE, "false"), (MODERN, "true")], ids=["kept apart", "shared"])
async def test_each_principal_gets_its_own_unless_the_store_is_shared(stage: Stage, era: str, shared: str):
    own: dict[str, set[str]] = {}
    for name, owner in OWNERS.items():
        shelf = Shelf(stage.folder / "data" / "riglm.db", owner)
        kept = [
            shelf.thought(f"{WORDS}, thought by {name}"),
            shelf.thought(f"{WORDS}, kept private by {name}", is_private=True),
            shelf.entity("falcon", f"{WORDS}, described by {name}"),
            *shelf.observations("falcon", f"{WORDS}, observed by {name}"),
        ]
        own[name] = {piece.text for piece in kept}
    env = {**ON, "RIGLM_PRIVACY__KEY": KEY, "RIGLM_KNOWLEDGE__SHARED": shared}
    tokens = {"bearer": "the-downstream-token", **TOKENS}
    guard = {"RIGLM_DOWNSTREAM__TOKEN": tokens["bearer"], "RIGLM_DOWNSTREAM__TOKENS": json.dumps(TOKENS)}
    asked = {"query": WORDS, "include_private": True, "floor": 0, "top_k": 50}
    for name in OWNERS:
        route = Route("http", "http", RIGLM, era)
        headers = {"authorization": f"Bearer {tokens[name]}"} if name in tokens else {}
        async with stage.client(route, headers=headers, env=env | (guard if headers else {})) as client:
            answer = (await client.request("tools/call", {"name": NAME, "arguments": asked})).decoded()
        found = {snippet["text"] for snippet in answer["structuredContent"]["snippets"]}
        assert found == (set.union(*own.values()) if shared == "true" else own[name])


async def test_a_call_is_recorded_as_riglm_s_own_with_the_hash_of_its_arguments(stage: Stage, era: str):
    stage.settings.update({**ON, "RIGLM_PRIVACY__ARGUMENTS": "raw"})
    async with stage.client(Route("stdio", "stdio", RIGLM, era)) as client:
        await client.request("tools/call", {"name": NAME, "arguments": {"query": "about the xylophonist"}})
        await client.call("nonce", {"nonce": "kept as it is"})
    with contextlib.closing(sqlite3.connect(stage.folder / "data" / "riglm.db")) as database:
        columns = "tool, upstream, arguments_hash <> '', arguments, error_kind"
        rows = {tool: rest for tool, *rest in database.execute(f"SELECT {columns} FROM invocation")}
    assert rows[NAME] == ["riglm", 1, None, None]
    assert "kept as it is" in rows["nonce"][2]


WITHOUT_TOOLS = """
import json, sys
ABOUT = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "bare", "version": "1"}}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "supportedVersions": ["2026-07-28"]}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if asked["method"] in ("initialize", "server/discover"):
        answer = {"result": {**(ABOUT if asked["method"] == "initialize" else MODERN), "capabilities": {"prompts": {}}}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize(
    ("era", "enabled"), [(HANDSHAKE, "true"), (MODERN, "false")], ids=["filtering", "not filtering"]
)
async def test_in_front_of_a_server_without_tools_there_is_still_this_one(stage: Stage, era: str, enabled: str):
    env = {**ON, "RIGLM_FILTERING__ENABLED": enabled}
    upstream = ["--", sys.executable, "-c", WITHOUT_TOOLS]
    Shelf(stage.folder / "data" / "riglm.db").thought(WORDS)
    async with stage.client(Route("stdio", "stdio", RIGLM, era), env=env, upstream=upstream) as client:
        assert client.greeting is not None
        assert {"prompts", "tools"} <= {*client.greeting.decoded()["capabilities"]}
        assert [tool["name"] for tool in (await client.request("tools/list")).decoded()["tools"]] == [NAME]
        answer = (await client.request("tools/call", {"name": NAME, "arguments": {"query": WORDS}})).decoded()
    assert [snippet["text"] for snippet in answer["structuredContent"]["snippets"]] == [WORDS]


@pytest.mark.parametrize("denied", ["Inner_Voice.*", "snip"])
async def test_the_deny_list_denies_it_like_any_tool_by_all_its_names(actors: Stage, ask: Asking, denied: str):
    rules = {"RIGLM_FILTERING__MODE": "enforce", "RIGLM_FILTERING__DENYLIST": denied, "RIGLM_KNOWLEDGE__ALIAS": "snip"}
    ask.url = actors.serve(*actors.back("http", "--tools", "one"), env={**ON, **rules}) + "/mcp"
    async with Client(ask.url, mode=MODES[MODERN]) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["one"]
        for name in (NAME, "snip"):
            with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
                await client.call_tool(name, {"query": WORDS})
