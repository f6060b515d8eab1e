"""What clients wrote down is read as they meant it, and damage costs no more than its line."""

import json
from pathlib import Path

import pytest

from riglm.adapters.clients.transcripts import lines as reading
from riglm.adapters.clients.transcripts.claude_code import ClaudeCodeTranscripts
from riglm.adapters.clients.transcripts.codex import CodexTranscripts
from riglm.adapters.clients.transcripts.gemini import GeminiTranscripts
from riglm.ports.clients import CallOutcome, TranscriptCall, UnreadableLine, UserMessage

DAY = "2026-11-20T10:00:"


def written(file: Path, *lines: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def read(source, file):
    advanced = []
    found = list(source.read(file, advanced.append))
    assert sum(advanced) == file.stat().st_size
    return found


def called(found):
    return [each for each in found if isinstance(each, TranscriptCall)]


def said(found):
    return [each.text for each in found if isinstance(each, UserMessage)]


@pytest.fixture
def claude(tmp_path):
    return ClaudeCodeTranscripts(tmp_path, {})


def line(kind, content, second="00", **more):
    common = {"sessionId": "s1", "isSidechain": False, "timestamp": f"{DAY}{second}.000Z"}
    return {"type": kind, "message": {"role": kind, "content": content}, **common, **more}


def use(number="1", name="mcp__git_hub__create_issue", **given):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def result(number="1", content="fine", **more):
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **more}


def test_a_call_of_claude_code_lasts_from_its_line_to_that_of_its_result(claude, tmp_path):
    file = written(
        tmp_path / "s1.jsonl",
        line("user", "file a bug", isMeta=None, agentId=None, isSidechain=None),
        line("assistant", [{"type": "text", "text": "yes"}, use(title="x")], "01"),
        line("assistant", [use("2", "Bash", command="ls")], "02"),
        line("user", [result()], "04"),
        line("user", [result("2")], "05"),
    )
    found = read(claude, file)
    (call,) = called(found)
    assert (call.name, call.server, call.identity, call.lane) == ("git_hub__create_issue", None, "toolu_1", "s1")
    assert (call.ended - call.started, call.ending) == (3.0, CallOutcome.DONE)
    assert json.loads(call.arguments) == {"title": "x"}
    assert said(found) == ["file a bug"]


@pytest.mark.parametrize(
    ("outcome", "more", "ending"),
    [
        (result(is_error=True, content="no such repository"), {}, CallOutcome.FAILED),
        (result(is_error=True, content=[{"type": "text", "text": "boom"}]), {}, CallOutcome.FAILED),
        (result(is_error=True), {"toolDenialKind": "user-rejected"}, CallOutcome.NOT_RUN),
        (
            result(is_error=True, content="The user doesn't want to proceed with this tool use."),
            {},
            CallOutcome.NOT_RUN,
        ),
        (result(is_error=True, content="<tool_use_error>Error: No such tool available"), {}, CallOutcome.NOT_RUN),
        (result(is_error=True, content="MCP error -32001: Request timed out"), {}, CallOutcome.NOT_RUN),
    ],
)
def test_a_failed_call_of_claude_code_is_told_from_one_that_did_not_run(claude, tmp_path, outcome, more, ending):
    file = written(tmp_path / "s1.jsonl", line("assistant", [use()]), line("user", [outcome], "01", **more))
    assert [call.ending for call in called(read(claude, file))] == [ending]


def test_what_claude_code_says_in_the_name_of_the_user_was_not_asked_for(claude, tmp_path):
    file = written(
        tmp_path / "s1.jsonl",
        line("user", "Caveat: the messages below", isMeta=True),
        line("user", "<command-name>/clear</command-name>"),
        line("user", "This session is being continued", isCompactSummary=True),
        line("user", [{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "really asked"}]),
        line("assistant", [{"type": "text", "text": "answered"}]),
    )
    assert said(read(claude, file)) == ["really asked"]


def test_an_agent_of_claude_code_has_a_conversation_of_its_own(claude, tmp_path):
    file = written(
        tmp_path / "agent-a1.jsonl",
        line("user", "look it up", isSidechain=True, agentId="a1"),
        line("assistant", [use()], isSidechain=True, agentId="a1"),
        line("user", [result()], isSidechain=True, agentId="a1"),
    )
    assert {each.lane for each in read(claude, file)} == {"s1/a1"}


def test_lines_that_are_damaged_or_still_written_cost_nothing_else(claude, tmp_path):
    file = written(
        tmp_path / "s1.jsonl",
        '{"type":"assistant","message":{"content":[{"type":"tool_use",',
        line("assistant", [use()]),
        line("user", [result()], timestamp="yesterday"),
        "\0\0\0",
        "",
        line("user", [result()]),
    )
    with file.open("a") as more:
        more.write('{"type":"user","message":{"role":"us')
    found = read(claude, file)
    assert len(called(found)) == 1
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [1, 3, 4]


def test_a_line_without_end_is_passed_over(claude, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_LENGTH", 2_000)
    monkeypatch.setattr(reading, "_PART", 700)
    file = written(
        tmp_path / "s1.jsonl", line("user", "x" * 5_000), line("assistant", [use()]), line("user", [result()])
    )
    found = read(claude, file)
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [1]
    assert len(called(found)) == 1


def test_a_block_without_text_costs_nothing_beside_it(claude, tmp_path):
    file = written(
        tmp_path / "s1.jsonl",
        line("user", [{"type": "text", "text": None}, {"type": "text", "text": "really asked"}]),
        line("assistant", [{"type": "text", "text": None}, use(), use(None, None)]),
        line("user", [{"type": None, "tool_use_id": None}, result()]),
    )
    found = read(claude, file)
    assert [call.identity for call in called(found)] == ["toolu_1"]
    assert said(found) == ["really asked"]
    assert [each for each in found if isinstance(each, UnreadableLine)] == []


def test_a_mark_of_the_byte_order_is_no_damage(claude, tmp_path):
    file = written(tmp_path / "s1.jsonl", line("assistant", [use()]), line("user", [result()]))
    file.write_bytes("\ufeff".encode() + file.read_bytes())
    assert len(called(read(claude, file))) == 1


def test_links_are_not_followed_but_for_the_one_that_is_named(claude, tmp_path):
    kept = written(tmp_path / "kept" / "s1.jsonl", {})
    (tmp_path / "kept" / "again.jsonl").symlink_to(kept)
    (tmp_path / "kept" / "loop").symlink_to(tmp_path / "kept")
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "kept")
    assert claude.files(tmp_path / "kept") == [kept]
    assert claude.files(linked) == [linked / "s1.jsonl"]
    assert claude.files(tmp_path / "kept" / "again.jsonl") == [tmp_path / "kept" / "again.jsonl"]


def test_the_transcripts_of_claude_code_lie_where_it_is_told_to_keep_them(tmp_path):
    deep = written(tmp_path / "elsewhere" / "projects" / "-x" / "s" / "subagents" / "agent-1.jsonl", {})
    flat = written(tmp_path / "elsewhere" / "projects" / "-x" / "s.jsonl", {})
    written(tmp_path / "elsewhere" / "projects" / "-x" / "notes.md", {})
    source = ClaudeCodeTranscripts(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")})
    assert source.files() == sorted([deep, flat])
    assert ClaudeCodeTranscripts(tmp_path, {}).files() == []


def event(kind, payload, second="00"):
    return {"timestamp": f"{DAY}{second}.000Z", "type": kind, "payload": payload}


META = event("session_meta", {"id": "c1", "cwd": "/x"})


def ended(call_id="call_1", outcome=None, server="git.hub", tool="create.issue"):
    told = {"server": server, "tool": tool, "arguments": {"title": "x"}}
    payload = {"type": "mcp_tool_call_end", "call_id": call_id, "invocation": told}
    return event(
        "event_msg", {**payload, "duration": {"secs": 1, "nanos": 500_000_000}, "result": outcome or {"Ok": {}}}, "09"
    )


def function(name="mcp__git_hub__create_issue", call_id="call_1", **more):
    call = {"type": "function_call", "id": None, "name": name, "arguments": '{"title":"x"}', "call_id": call_id, **more}
    return event("response_item", call, "03")


OUTPUT = event("response_item", {"type": "function_call_output", "call_id": "call_1", "output": "fine"}, "10")


def test_a_call_of_codex_is_told_once_with_the_servers_own_names(tmp_path):
    asked = event("event_msg", {"type": "user_message", "message": "file a bug"})
    file = written(tmp_path / "rollout-1.jsonl", META, asked, function(), ended(), OUTPUT)
    found = read(CodexTranscripts(tmp_path, {}), file)
    (call,) = called(found)
    assert (call.server, call.name, call.lane) == ("git.hub", "create.issue", "c1")
    assert (call.ended - call.started, json.loads(call.arguments)) == (6.0, {"title": "x"})
    assert said(found) == ["file a bug"]


@pytest.mark.parametrize("call", [function(), function("create_issue", namespace="mcp__git_hub")])
def test_an_older_codex_names_the_server_in_the_function(tmp_path, call):
    other = function("shell", "call_2")
    (found,) = called(read(CodexTranscripts(tmp_path, {}), written(tmp_path / "r.jsonl", META, call, other, OUTPUT)))
    assert (found.server, found.name, found.ending) == (None, "git_hub__create_issue", CallOutcome.DONE)


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [({"Ok": {"isError": True}}, CallOutcome.FAILED), ({"Err": "tool call failed"}, CallOutcome.NOT_RUN)],
)
def test_codex_tells_how_a_call_ended(tmp_path, outcome, ending):
    (call,) = called(read(CodexTranscripts(tmp_path, {}), written(tmp_path / "r.jsonl", META, ended(outcome=outcome))))
    assert (call.ending, call.ended - call.started) == (ending, 1.5)


@pytest.mark.parametrize(
    ("told", "ending"),
    [
        ("user rejected MCP tool call", CallOutcome.NOT_RUN),
        ('err: "tool call error: timed out"', CallOutcome.NOT_RUN),
        ("unsupported call: mcp__git_hub__create_issue", CallOutcome.NOT_RUN),
        ('[{"type":"text","text":"user rejected MCP tool call"}]', CallOutcome.NOT_RUN),
        ([{"type": "input_text", "text": "user cancelled MCP tool call"}], CallOutcome.NOT_RUN),
        ('{"isError":true}', CallOutcome.FAILED),
        (
            'Wall time: 0.1 seconds\nOutput:\n{"content":[{"type":"text","text":"no"}],"isError":true}',
            CallOutcome.FAILED,
        ),
        ('{"content":[{"type":"text","text":"fine"}],"isError":false}', CallOutcome.DONE),
        ('[{"type":"text","text":"cut', CallOutcome.DONE),
        (None, CallOutcome.DONE),
    ],
)
def test_how_a_call_of_an_older_codex_ended_is_told_by_what_the_model_heard(tmp_path, told, ending):
    output = event("response_item", {"type": "function_call_output", "call_id": "call_1", "output": told}, "10")
    (call,) = called(read(CodexTranscripts(tmp_path, {}), written(tmp_path / "r.jsonl", META, function(), output)))
    assert call.ending == ending


@pytest.mark.parametrize("stamped", ["as they were", "anew"])
def test_what_a_fork_of_codex_has_from_its_origin_is_a_copy_whatever_its_time(tmp_path, stamped):
    old = [META, function(), ended(), OUTPUT]
    copied = old if stamped == "as they were" else [{**each, "timestamp": f"{DAY}30.040Z"} for each in old]
    new = [
        {**each, "timestamp": f"{DAY}40.000Z"} for each in (function(call_id="call_2"), ended("call_2", server="hub"))
    ]
    fork = event("session_meta", {"id": "c2", "forked_from_id": "c1"}, "30")
    again = event("session_meta", {"id": "c3", "forked_from_id": "c2"}, "50")
    recopied = [{**each, "timestamp": f"{DAY}50.040Z"} for each in (fork, *old, *new, again)]
    source = CodexTranscripts(tmp_path, {})
    origin, first, second = (
        called(read(source, written(tmp_path / f"rollout-{number}.jsonl", *lines)))
        for number, lines in enumerate([old, [fork, *copied, *new], [again, *recopied]])
    )
    assert [(call.lane, call.is_copy) for call in origin] == [("c1", False)]
    assert [(call.lane, call.is_copy) for call in first] == [("c2", True), ("c2", False)]
    assert [call.is_copy for call in second] == [True, True]
    assert [call.identity for call in second] == [call.identity for call in first]
    assert first[0].identity == origin[0].identity


def test_what_is_forked_comes_before_its_forks_wherever_it_lies(tmp_path):
    later = written(tmp_path / ".codex" / "sessions" / "2026" / "11" / "21" / "rollout-2026-11-21.jsonl", META)
    origin = written(tmp_path / ".codex" / "archived_sessions" / "rollout-2026-11-20.jsonl", META)
    assert CodexTranscripts(tmp_path, {}).files() == [origin, later]


def test_what_gemini_says_last_of_a_message_counts(tmp_path):
    def message(status):
        call = {"id": "g1", "name": "mcp_git_hub_create_issue", "args": {"title": "x"}, "status": status}
        own = {"id": "g2", "name": "read_file", "args": {}, "status": "success", "timestamp": f"{DAY}01.000Z"}
        calls = [{**call, "timestamp": f"{DAY}02.000Z"}, own]
        return {"id": "m2", "type": "gemini", "timestamp": f"{DAY}02.000Z", "content": "", "toolCalls": calls}

    file = written(
        tmp_path / ".gemini" / "tmp" / "p" / "chats" / "session-1.jsonl",
        {"sessionId": "s9", "projectHash": "p", "startTime": f"{DAY}00.000Z"},
        {"id": "m1", "type": "user", "timestamp": f"{DAY}00.000Z", "content": [{"text": "file a bug"}]},
        message("executing"),
        message("error"),
        {"$set": {"lastUpdated": f"{DAY}03.000Z"}},
    )
    source = GeminiTranscripts(tmp_path, {})
    assert source.files() == [file]
    found = read(source, file)
    (call,) = called(found)
    assert (call.name, call.lane, call.ending) == ("git_hub_create_issue", "s9", CallOutcome.FAILED)
    assert said(found) == ["file a bug"]


CUT = "cut \ud83d off"  # JavaScript cuts where it counts, within an emoji too


def test_a_letter_cut_in_two_costs_no_call(claude, tmp_path):
    file = written(tmp_path / "s.jsonl", line("user", CUT), line("assistant", [use(q=CUT)]), line("user", [result()]))
    found = read(claude, file)
    assert [json.loads(call.arguments) for call in called(found)] == [{"q": "cut \ufffd off"}]
    assert said(found) == ["cut \ufffd off"]

    told = event("event_msg", {"type": "user_message", "message": CUT})
    file = written(tmp_path / "r.jsonl", META, told, function(arguments=json.dumps({"q": CUT})), OUTPUT)
    found = read(CodexTranscripts(tmp_path, {}), file)
    assert [json.loads(call.arguments) for call in called(found)] == [{"q": CUT}]  # a text within the line, and whole
    assert said(found) == ["cut \ufffd off"]

    call = {"id": "g1", "name": "mcp_x_y", "args": {"q": CUT}, "status": "success", "timestamp": f"{DAY}02.000Z"}
    told = {"id": "m", "type": "gemini", "timestamp": f"{DAY}02.000Z", "content": CUT, "toolCalls": [call]}
    found = read(GeminiTranscripts(tmp_path, {}), written(tmp_path / "g.jsonl", told))
    assert [json.loads(call.arguments) for call in called(found)] == [{"q": "cut \ufffd off"}]


def test_each_client_knows_its_own_transcripts(tmp_path):
    files = [
        written(tmp_path / "a.jsonl", {"type": "summary", "summary": "x"}),
        written(tmp_path / "b.jsonl", META),
        written(tmp_path / "c.jsonl", {"sessionId": "s", "projectHash": "p"}),
    ]
    sources = [kind(tmp_path, {}) for kind in (ClaudeCodeTranscripts, CodexTranscripts, GeminiTranscripts)]
    assert [[source.wrote(file) for file in files] for source in sources] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
