"""Token usage of transcripts: `riglm learn-from` stores it, and `riglm report` compares it with the price model.

The transcripts have three requests with prompts of P, P + 1,000 and P + 2,000 tokens, of which the previous prompt is
read from the cache. The price model therefore computes exactly what was billed.
"""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from riglm.cli.main import app

DAY = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"


def at(second):
    return f"{DAY}T10:00:{second:02}.000Z"


def claude_code(*requests, session="s1", **more):
    """Lines of requests (message id, uncached, cached, written, output), with a second incomplete one of each."""
    for place, (number, uncached, cached, written, output) in enumerate(requests):
        usage = {
            "input_tokens": uncached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {"ephemeral_5m_input_tokens": written},
        }
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "mcp__github__list_issue", "input": {}}
        for content, tokens in (({"type": "text", "text": "s3cr3t"}, 1), (call, output), (call, 2)):
            message = {"id": f"msg_{number}", "content": [content], "usage": {**usage, "output_tokens": tokens}}
            yield {"type": "assistant", "sessionId": session, "timestamp": at(place), "message": message, **more}
        result = {"content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "fine"}]}
        yield {"type": "user", "sessionId": session, "timestamp": at(place), "message": result, **more}
    message = {"id": "synthetic", "content": [{"type": "text", "text": "error"}], "usage": {"input_tokens": 0}}
    yield {"type": "assistant", "sessionId": session, "timestamp": at(59), "message": message, **more}


CLAUDE_CODE = ((1, 10, 0, 9_990, 100), (2, 10, 10_000, 990, 100), (3, 10, 11_000, 990, 100))


def codex():
    """Cumulative totals, each written twice, and some without totals."""
    yield {"type": "session_meta", "timestamp": at(0), "payload": {"id": "c1"}}
    totals = [(8_000, 0, 50), (17_000, 8_000, 100), (27_000, 17_000, 150)]
    for second, (prompts, cached, output) in enumerate(totals, 1):
        names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
        counts = dict(zip(names, (prompts, cached, output, 20, prompts + output), strict=True))
        for info in (None, {"total_token_usage": counts}, {"total_token_usage": counts, "last_token_usage": {}}):
            yield {
                "type": "event_msg",
                "timestamp": at(second),
                "payload": {"type": "token_count", "info": info, "rate_limits": {}},
            }


def gemini():
    """Messages that are written before their counts are known, and then with them."""
    yield {"sessionId": "g1", "projectHash": "h", "startTime": at(0)}
    for second, (prompt, cached, tool) in enumerate([(8_000, 0, 0), (9_000, 8_000, 0), (9_900, 9_000, 100)], 1):
        message = {"id": f"m{second}", "type": "gemini", "timestamp": at(second), "content": "s3cr3t"}
        tokens = {"input": prompt, "output": 40, "cached": cached, "thoughts": 10, "tool": tool, "total": 0}
        yield message
        yield {**message, "tokens": tokens}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")
    return tmp_path


def write(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def ask(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def bill():
    return {each["client"]: each for each in json.loads(ask("report", "--json"))["bill"]["clients"]}


OPENAI = 10_000 + 0.1 * 17_000 + 5 * 150


@pytest.mark.parametrize(
    ("name", "lines", "client", "billed", "sizes"),
    [
        (
            "s1.jsonl",
            claude_code(*CLAUDE_CODE),
            "claude-code",
            30 + 0.1 * 21_000 + 1.25 * 11_970 + 5 * 300,
            {"prompt_tokens": 10_000, "output_tokens": 100, "written_share": 0.998, "own_requests": 0},
        ),
        (
            "rollout-1.jsonl",
            codex(),
            "codex-mcp-client",
            OPENAI,
            {"prompt_tokens": 8_000, "output_tokens": 50, "written_share": 0, "own_requests": 0},
        ),
        (
            "session-1.jsonl",
            gemini(),
            "gemini-cli-mcp-client",
            OPENAI,
            {"prompt_tokens": 8_000, "output_tokens": 50, "written_share": 0, "own_requests": 0},
        ),
    ],
)
def test_billed_and_modeled_price_are_right_to_the_token(home, name, lines, client, billed, sizes):
    file = write(home / name, lines)
    for _ in range(2):  # the second time changes nothing
        ask("learn-from", file)
        [(found, its)] = bill().items()
        assert (found, its["sessions"], its["requests"]) == (client, 1, 3)
        assert its["billed"] == its["modeled"] == round(billed, 1)
        first, later = 1.25 * 6_000 + 400, 1.25 * 450 + 400
        assert its["modeled_by_default"] == round(first + 0.1 * 6_000 + later + 0.1 * 6_450 + later, 1)
        assert its["sizes"] == {"call_tokens": 1_000, "cached_share": 1, **sizes}
    text = ask("report")
    assert "Your own bill" in text
    assert f" {round(billed)} " in text


def test_copies_of_requests_count_once_and_agents_are_sessions(home):
    write(home / "s2.jsonl", claude_code(*CLAUDE_CODE))
    write(home / "agent.jsonl", claude_code((5, 3_000, 0, 0, 10), isSidechain=True, agentId="a1"))
    expected = {"uncached": 3_040, "cached": 33_000, "written": 12_960, "output": 410}
    ask("learn-from", home, "--client", "claude-code")
    for name in ("s1", "s3"):  # resumed sessions, with a copy of the earlier one
        resumed = claude_code(*CLAUDE_CODE, (4, 10, 12_000, 990, 100), session=name)
        ask("learn-from", write(home / f"{name}.jsonl", resumed))
        assert bill()["claude-code"]["tokens"] == expected
    found = json.loads(ask("learn-from", home, "--client", "claude-code", "--json"))["clients"]
    assert [each["token_usage"] for each in found] == [{"sessions": 2, "requests": 5}]
    assert bill()["claude-code"]["tokens"] == expected


def test_only_counts_are_stored_and_erased_with_their_client(home):
    file = write(home / "s1.jsonl", claude_code(*CLAUDE_CODE))
    assert "token usage of 3 model requests in 1 session" in ask("learn-from", file)
    assert b"s3cr3t" not in b"".join(part.read_bytes() for part in (home / "data").iterdir() if part.is_file())
    ask("db", "forget", "--client", "claude-code", "--yes")
    assert bill() == {}
    ask("learn-from", file)
    assert bill() == {}


def test_counts_that_are_none_do_not_hide_calls(home):
    lines = list(claude_code(*CLAUDE_CODE[:1]))
    for line, usage in zip(lines, ("many", {"input_tokens": "9", "output_tokens": -1}, None), strict=False):
        line["message"]["usage"] = usage
    found = json.loads(ask("learn-from", write(home / "s1.jsonl", lines), "--json"))["clients"]
    [its] = [each for each in found if each["files"]]
    assert its["calls"]["new"] == 1
    assert its["token_usage"] == {"sessions": 0, "requests": 0}
    with sqlite3.connect(home / "data" / "riglm.db") as database:
        assert database.execute("SELECT count(*) FROM token_usage").fetchone() == (0,)
