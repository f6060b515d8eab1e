"""What the reference memory server of MCP wrote is imported, and found by what it says."""

import json
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from typer.testing import CliRunner

from riglm.cli.main import app
from tests import npm

VERSION = "2026.8.31"
ALICE = ["Likes green tea", "Speaks fluent Portuguese", "Moved to Lisbon in 2021", "Has a cat named Miso"]
ENTITIES = [
    {"name": "Alice", "entityType": "person", "observations": ALICE[:2]},
    {"name": "Bob", "entityType": "person", "observations": ["Plays the cello", "Allergic to peanuts"]},
    {"name": "Acme", "entityType": "organization", "observations": ["Founded in 1999", "Sells rockets to coyotes"]},
    {"name": "Riverside_Project", "entityType": "project", "observations": ["Deadline is in March"]},
    {"name": "default_user", "entityType": "user", "observations": ["Prefers dark mode"]},
]
RELATIONS = [
    {"from": "Alice", "to": "Acme", "relationType": "works_at"},
    {"from": "Bob", "to": "Alice", "relationType": "is married to"},
    {"from": "Alice", "to": "Riverside_Project", "relationType": "leads"},
]
SHAPE = [
    {"type": "entity", **entity, "observations": ALICE if entity["name"] == "Alice" else entity["observations"]}
    for entity in ENTITIES
] + [{"type": "relation", **relation} for relation in RELATIONS]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path))
    return tmp_path


def riglm(*words: str) -> object:
    done = CliRunner().invoke(app, ["knowledge", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def found(question: str) -> list[str]:
    answer = riglm("search", question)
    assert isinstance(answer, dict)
    return [snippet["text"] for snippet in answer["snippets"]]


async def write_memory(file: Path) -> None:
    """Has the real server remember, through its tools."""
    script = npm.installed("@modelcontextprotocol/server-memory", VERSION) / "dist" / "index.js"
    server = StdioServerParameters(command=str(npm.node), args=[str(script)], env={"MEMORY_FILE_PATH": str(file)})
    with (file.parent / "server.stderr").open("w") as errors:
        async with Client(stdio_client(server, errlog=errors), mode="legacy", read_timeout_seconds=60) as client:
            contents = {"entityName": "Alice", "contents": ALICE[2:]}
            for tool, arguments in (
                ("create_entities", {"entities": ENTITIES}),
                ("create_relations", {"relations": RELATIONS}),
                ("add_observations", {"observations": [contents]}),
            ):
                assert not (await client.call_tool(tool, arguments)).is_error


@pytest.mark.timeout(300)
async def test_what_the_real_memory_server_wrote_has_the_shape_that_is_imported(directory: Path):
    file = directory / "memory.jsonl"
    await write_memory(file)
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == SHAPE
    summary = riglm("import", str(file))
    assert isinstance(summary, dict)
    assert summary["files"] == [{"file": str(file), "format": "memory"}]
    assert summary["new"] == {"thoughts": 0, "entities": 5, "observations": 10, "relations": 3}
    assert (summary["left_out"], summary["unknown_keys"], summary["embedded"]) == (0, {}, 15)


def test_what_is_known_of_somebody_is_found_in_the_first_places(directory: Path):
    """The observations do not say whose they are."""
    file = directory / "memory.jsonl"
    file.write_text("\n".join(map(json.dumps, SHAPE)), "utf-8")
    riglm("import", str(file))
    for question in ("what do we know about Alice", "tell me about Alice"):
        first = found(question)
        assert len(set(ALICE) & set(first[:4])) >= 3
        assert set(ALICE) <= set(first[:8])
        assert "Alice (person). Alice leads Riverside_Project. Alice works at Acme. Bob is married to Alice." in first
    assert found("who must not eat nuts")[0] == "Allergic to peanuts"
    assert found("when is the riverside project due")[0] == "Deadline is in March"
    assert "Bob (person). Bob is married to Alice." in found("who is Alice married to")[:3]
