"""`riglm knowledge import | list | search | forget | stats | embed`."""

import json
import sys

import pytest
from typer.testing import CliRunner

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.adapters.private_files import load_or_create_key
from riglm.cli import knowledge
from riglm.cli import main as entrance
from riglm.cli.main import app
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError, RiglmError, UnusableInputError
from riglm.domain.hashing import KeyedHasher
from riglm.ports.embedder import EmbedderUnavailableError

THOUGHTS = [
    {"text": "Tea is at five", "tags": ["work"], "created_at": "2026-01-31T12:00:00Z"},
    {"text": "The gate code is secret", "private": True, "tags": ["home"]},
    {"text": "Paint the fence green", "origin": "model"},
]
MEMORY = [
    {"type": "entity", "name": "Alice", "entityType": "person", "observations": ["Likes tea", "Has a cat"]},
    {"type": "entity", "name": "Acme", "entityType": "company", "observations": ["Makes rockets"]},
    {"type": "relation", "from": "Alice", "to": "Acme", "relationType": "works_at"},
]
COMMANDS = [["list"], ["search", "tea"], ["stats"], ["embed"], ["forget", "--all", "--yes"]]


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")


def run(*words, **options):
    result = CliRunner().invoke(app, ["knowledge", *words], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def told(*words):
    return json.loads(run(*words, "--json").stdout)


def written(tmp_path, lines, name="file.jsonl"):
    path = tmp_path / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return str(path)


@pytest.fixture
def thoughts(tmp_path):
    path = written(tmp_path, THOUGHTS, "thoughts.jsonl")
    run("import", path)
    return path


@pytest.fixture
def memory(tmp_path):
    path = written(tmp_path, MEMORY, "memory.jsonl")
    run("import", path)
    return path


def texts(*words):
    return {each["text"] for each in told("list", *words)}


def found(*words):
    return [each["text"] for each in told("search", *words)["snippets"]]


@pytest.fixture
def ended(monkeypatch, capsys):
    """What a command that failed leaves: its exit code and stderr."""

    def ended(*arguments):
        monkeypatch.setattr(sys, "argv", ["riglm", "knowledge", *arguments])
        with pytest.raises(SystemExit) as left:
            entrance.main()
        return left.value.code, capsys.readouterr().err

    return ended


def test_files_of_both_kinds_are_imported_at_once_and_it_is_said_what_they_are(tmp_path):
    files = [written(tmp_path, THOUGHTS, "a.jsonl"), written(tmp_path, MEMORY, "b.jsonl")]
    done = run("import", *files)
    assert f"{files[0]}: read as thoughts" in done.stderr
    assert f"{files[1]}: read as memory" in done.stderr
    assert done.stdout == (
        "new: 3 of 3 thoughts, 2 of 2 entities, 3 of 3 observations, 1 of 1 relations\ngiven vectors: 8\n"
    )
    assert run("import", *files).stdout.endswith("given vectors: 0\n")
    assert told("stats")["own"] == {
        "thoughts": 3,
        "entities": 2,
        "observations": 3,
        "relations": 1,
        "without_vector": 0,
    }


def test_lines_that_are_wrong_are_left_out_and_named_with_the_fix(tmp_path):
    path = written(tmp_path, [THOUGHTS[0], "{", {"text": 7}])
    done = run("import", path)
    assert done.exit_code == 0
    assert f"left out: {path}:2: this is not JSON" in done.stderr
    assert f"left out: {path}:3: 'text' must be" in done.stderr
    assert "left out: 2 lines" in done.stdout


def test_strict_stores_nothing_when_a_line_is_wrong(tmp_path, ended):
    good, bad = written(tmp_path, MEMORY, "good.jsonl"), written(tmp_path, [THOUGHTS[0], "{"], "bad.jsonl")
    code, said = ended("import", "--strict", good, bad)
    assert code == 2
    assert f"{bad}:2: this is not JSON" in said
    assert "nothing was stored" in said
    assert not (tmp_path / "data" / "riglm.db").exists()
    assert run("import", "--strict", good).exit_code == 0


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_stored(tmp_path, ended):
    good = written(tmp_path, THOUGHTS, "good.jsonl")
    for bad in ("nowhere.jsonl", str(tmp_path), written(tmp_path, ['{"other": 1}'], "other.jsonl")):
        code, said = ended("import", good, bad)
        assert (code, " — fix: " in said) == (2, True)
    assert ended("import", "--format", "thoughts", good, "nowhere.jsonl")[0] == 2
    assert not (tmp_path / "data" / "riglm.db").exists()


def test_a_file_of_which_no_line_can_be_used_is_refused(tmp_path, ended):
    code, said = ended("import", "--format", "memory", written(tmp_path, THOUGHTS))
    assert (code, "no line could be used" in said) == (2, True)
    assert told("list") == []


def test_private_thoughts_are_shown_when_asked_for_only(thoughts):
    secret = "The gate code is secret"
    assert secret not in texts()
    assert secret in texts("--include-private")
    assert secret not in found("what is the gate code", "--floor", "0")
    assert secret in found("what is the gate code", "--floor", "0", "--include-private")
    assert secret not in run("list").output + run("search", "gate code", "--floor", "0").output
    assert secret not in run("stats").output


def test_a_list_tells_all_that_is_known_of_a_piece(thoughts, memory):
    pieces = {each["text"]: each for each in told("list")}
    tea = pieces["Tea is at five"]
    assert tea["id"].startswith("t:")
    assert {key: tea[key] for key in ("table", "created_at", "tags", "origin", "private", "owner")} == {
        "table": "thoughts",
        "created_at": "2026-01-31T12:00:00.000+00:00",
        "tags": ["work"],
        "origin": "human",
        "private": False,
        "owner": "",
    }
    assert pieces["Likes tea"]["entity"] == "Alice"
    assert pieces["Alice (person). Alice works at Acme."]["kind"] == "person"
    assert "Alice: Likes tea" in run("list").stdout
    assert len(told("list", "--limit", "1")) == 3


def test_a_search_answers_as_the_tool_does(memory):
    answer = told("search", "what does Alice like", "--top-k", "2")
    assert {"id", "table", "trust_tier", "content_hash", "score"} < set(answer["snippets"][0])
    assert (answer["diagnostics"]["k_req"], answer["diagnostics"]["k_ret"]) == (2, 2)
    assert "Likes tea" in run("search", "what does Alice like").stdout
    assert found("tea", "--mix", "0") == []


def test_the_variables_of_the_tool_count_also_where_it_is_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "fastembed")
    monkeypatch.setenv("SURR_EMBED_PROVIDER", "static")
    monkeypatch.setenv("SURR_INNER_VOICE_TOPK_DEFAULT", "99")
    done = run("import", written(tmp_path, THOUGHTS), "--json")
    assert json.loads(done.stdout)["model"] == HashingEmbedder().model
    assert "warning: SURR_INNER_VOICE_TOPK_DEFAULT: " in done.stderr
    assert told("search", "tea")["diagnostics"]["k_req"] == 50
    assert told("stats")["model"] == HashingEmbedder().model


def test_what_belongs_to_a_principal_is_found_by_it_alone(tmp_path):
    run("import", written(tmp_path, MEMORY), "--principal", "bearer")
    assert (texts(), found("tea", "--floor", "0")) == (set(), [])
    assert "Likes tea" in texts("--principal", "bearer")
    assert "Likes tea" in found("tea", "--floor", "0", "--owner", "bearer")
    owner = KeyedHasher(load_or_create_key(tmp_path / "data" / "riglm.key")).principal("bearer")
    assert told("list", "--principal", owner) == told("list", "--principal", "bearer") != []
    assert {each["owner"] for each in told("list", "--principal", "bearer")} == {owner}
    assert told("stats")["own"]["entities"] == 0
    assert told("stats")["all"]["entities"] == 2


def test_a_key_that_cannot_be_kept_is_an_error_for_whoever_has_a_name(tmp_path):
    path = written(tmp_path, MEMORY)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "riglm.key").mkdir()
    with pytest.raises(ConfigurationError):
        run("import", path, "--principal", "ann")


def test_pieces_are_forgotten_by_id_private_ones_too(thoughts):
    [secret] = [each["id"] for each in told("list", "--include-private") if each["private"]]
    assert run("forget", secret, "--yes").stdout == "removed: 1\n"
    assert "The gate code is secret" not in texts("--include-private")
    with pytest.raises(RiglmError, match=r"nothing of this is the local user's — fix:"):
        run("forget", secret, "--yes")


def test_a_principal_that_is_forgotten_takes_its_knowledge_along(thoughts, memory):
    run("import", memory, "--principal", "ann")
    done = CliRunner().invoke(app, ["db", "forget", "--principal", "ann"], input="y\n", catch_exceptions=False)
    assert "Erase nothing, 5 pieces of knowledge of the principal " in done.stderr
    assert done.stdout.endswith("removed: nothing, 5 pieces of knowledge\n")
    assert told("stats", "--principal", "ann")["own"]["relations"] == 0
    assert told("stats")["own"]["entities"] == 2


@pytest.mark.parametrize(
    "words",
    [[], ["--all", "--tag", "x"], ["t:1", "--all"], ["--all", "--principal", "x"], ["nonsense"], ["x:1"], ["t:1"]],
)
def test_what_to_forget_must_be_clear(thoughts, words):
    with pytest.raises(UnusableInputError, match=" — fix: "):
        run("forget", *words, "--yes")
    assert len(texts("--include-private")) == 3


class Away(HashingEmbedder):
    """A model that was loaded and answers no more."""

    def embed(self, texts):
        raise EmbedderUnavailableError("it ended")


def test_without_a_model_texts_are_stored_and_vectors_come_later(tmp_path, monkeypatch, ended):
    with monkeypatch.context() as away:
        away.setattr(knowledge, "chosen_embedder", lambda _: Away())
        code, said = ended("import", written(tmp_path, THOUGHTS))
        assert (code, "3 pieces cannot be found yet" in said, " — fix: " in said) == (1, True, True)
        code, said = ended("search", "tea")
        assert (code, "embedder_unavailable" in said, " — fix: " in said) == (1, True, True)
    assert told("stats")["own"]["without_vector"] == 3
    assert told("embed")["embedded"] == 3
    assert run("embed").stdout.startswith("0 pieces")
    assert "Tea is at five" in found("tea", "--floor", "0")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(tmp_path, words):
    with pytest.raises(RiglmError, match=r"there is no store at .*riglm\.db yet — fix:"):
        run(*words)
    assert not (tmp_path / "data" / "riglm.db").exists()


@pytest.mark.parametrize("words", [*COMMANDS, ["import", "file.jsonl"]])
def test_a_server_that_is_away_is_an_error(tmp_path, monkeypatch, words):
    written(tmp_path, THOUGHTS)
    monkeypatch.setenv("RIGLM_STORAGE__URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(AnalyticsUnavailableError, match="cannot be used"):
        run(*words)


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    run("import", written(tmp_path, [{"text": "red \x1b[31m tea", "tags": ["\x1b[2J"]}]))
    assert "\x1b" not in run("list").stdout + run("search", "red tea", "--floor", "0").stdout


def test_a_search_warns_of_a_model_that_has_other_dimensions_than_is_said(thoughts, monkeypatch):
    assert "warning" not in run("search", "tea").stderr
    monkeypatch.setenv("SURR_EMBED_DIM", "7")
    searched = run("search", "tea", "--floor", "0", "--json")
    assert "warning: knowledge.dimensions is 7, but the model has " in searched.stderr
    assert json.loads(searched.stdout)["snippets"]
