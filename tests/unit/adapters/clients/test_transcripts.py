"""What clients wrote down is read as they meant it, and damage costs no more than its line."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from riglm.adapters.clients.codex import CLINE, CODEX
from riglm.adapters.clients.transcript_reading import is_written_by, list_transcripts
from riglm.adapters.clients.transcripts import CLAUDE_CODE, COPILOT, GEMINI, OPENCODE, QWEN, SOURCES
from riglm.domain.transcripts import CallOutcome, TranscriptCall, UnreadableLine, UserMessage

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


def files(source, home, **environment):
    return list_transcripts(source, source.places(home, environment))


def line(kind, content, second="00", **more):
    common = {"sessionId": "s1", "isSidechain": False, "timestamp": f"{DAY}{second}.000Z"}
    return {"type": kind, "message": {"role": kind, "content": content}, **common, **more}


def use(number="1", name="mcp__git_hub__create_issue", **given):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def result(number="1", content="fine", **more):
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **more}


def test_a_call_of_claude_code_lasts_from_its_line_to_that_of_its_result(tmp_path):
    file = written(
        tmp_path / "s1.jsonl",
        line("user", "file a bug", isMeta=None, agentId=None, isSidechain=None),
        line("assistant", [{"type": "text", "text": "yes"}, use(title="x")], "01"),
        line("assistant", [use("2", "Bash", command="ls")], "02"),
        line("user", [result()], "04"),
        line("user", [result("2")], "05"),
    )
    found = read(CLAUDE_CODE, file)
    (call,) = called(found)
    assert (call.name, call.server, call.identity, call.lane) == ("git_hub__create_issue", None, "toolu_1", "s1")
    assert (call.ended - call.started, call.outcome) == (3.0, CallOutcome.DONE)
    assert json.loads(call.arguments) == {"title": "x"}
    assert said(found) == ["file a bug"]


@pytest.mark.parametrize(
    ("outcome", "more", "ending"),
    [
        (result(is_error=True, content="no such repository"), {}, CallOutcome.FAILED),
        (result(is_error=True), {"toolDenialKind": "user-rejected"}, CallOutcome.NOT_RUN),
        (
            result(is_error=True, content="The user doesn't want to proceed with this tool use."),
            {},
            CallOutcome.NOT_RUN,
        ),
        (result(is_error=True, content="<tool_use_error>Error: No such tool available"), {}, CallOutcome.NOT_RUN),
    ],
)
def test_a_failed_call_of_claude_code_is_told_from_one_that_did_not_run(tmp_path, outcome, more, ending):
    file = written(tmp_path / "s1.jsonl", line("assistant", [use()]), line("user", [outcome], "01", **more))
    assert [call.outcome for call in called(read(CLAUDE_CODE, file))] == [ending]


def test_lines_that_are_damaged_or_still_written_cost_nothing_else(tmp_path):
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
    found = read(CLAUDE_CODE, file)
    assert len(called(found)) == 1
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [1, 3, 4]


@pytest.mark.parametrize("place", ["folder", "itself"])
def test_pipes_and_devices_are_no_transcripts(tmp_path, place):
    pipe = tmp_path / "s.jsonl"
    os.mkfifo(pipe)
    assert list_transcripts(CLAUDE_CODE, [tmp_path if place == "folder" else pipe]) == []
    assert list_transcripts(CLAUDE_CODE, [Path("/dev/zero")]) == []


def test_links_are_not_followed_but_for_the_one_that_is_named(tmp_path):
    kept = written(tmp_path / "kept" / "s1.jsonl", {})
    (tmp_path / "kept" / "again.jsonl").symlink_to(kept)
    (tmp_path / "kept" / "loop").symlink_to(tmp_path / "kept")
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "kept")
    assert list_transcripts(CLAUDE_CODE, [tmp_path / "kept"]) == [kept]
    assert list_transcripts(CLAUDE_CODE, [linked]) == [linked / "s1.jsonl"]
    assert list_transcripts(CLAUDE_CODE, [tmp_path / "kept" / "again.jsonl"]) == [tmp_path / "kept" / "again.jsonl"]


def test_the_transcripts_of_claude_code_lie_where_it_is_told_to_keep_them(tmp_path):
    deep = written(tmp_path / "elsewhere" / "projects" / "-x" / "s" / "subagents" / "agent-1.jsonl", {})
    flat = written(tmp_path / "elsewhere" / "projects" / "-x" / "s.jsonl", {})
    written(tmp_path / "elsewhere" / "projects" / "-x" / "notes.md", {})
    assert files(CLAUDE_CODE, tmp_path, CLAUDE_CONFIG_DIR=str(tmp_path / "elsewhere")) == [deep, flat]
    assert files(CLAUDE_CODE, tmp_path) == []


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
    found = read(CODEX, file)
    (call,) = called(found)
    assert (call.server, call.name, call.lane) == ("git.hub", "create.issue", "c1")
    assert (call.ended - call.started, json.loads(call.arguments)) == (6.0, {"title": "x"})
    assert said(found) == ["file a bug"]


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [({"Ok": {"isError": True}}, CallOutcome.FAILED), ({"Err": "tool call failed"}, CallOutcome.NOT_RUN)],
)
def test_codex_tells_how_a_call_ended(tmp_path, outcome, ending):
    (call,) = called(read(CODEX, written(tmp_path / "r.jsonl", META, ended(outcome=outcome))))
    assert (call.outcome, call.ended - call.started) == (ending, 1.5)


@pytest.mark.parametrize(
    ("output", "ending"),
    [
        ("fine", CallOutcome.DONE),
        ('Wall time: 1 s\nOutput:\n{"content": [], "isError": true}', CallOutcome.FAILED),
        ("err: tool call error", CallOutcome.NOT_RUN),
    ],
)
def test_a_call_of_an_older_codex_is_told_by_its_function_and_output(tmp_path, output, ending):
    told = {**OUTPUT, "payload": {**OUTPUT["payload"], "output": output}}
    (call,) = called(read(CODEX, written(tmp_path / "rollout-1.jsonl", META, function(), told)))
    assert (call.server, call.name, call.lane) == (None, "git_hub__create_issue", "c1")
    assert (call.ended - call.started, json.loads(call.arguments)) == (7.0, {"title": "x"})
    assert call.outcome is ending


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
    source = CODEX
    origin, first, second = (
        called(read(source, written(tmp_path / f"rollout-{number}.jsonl", *lines)))
        for number, lines in enumerate([old, [fork, *copied, *new], [again, *recopied]])
    )
    assert [(call.lane, call.is_copy) for call in origin] == [("c1", False)]
    assert [(call.lane, call.is_copy) for call in first] == [("c2", True), ("c2", False)]
    assert [call.is_copy for call in second] == [True, True]
    assert [call.identity for call in second] == [call.identity for call in first]
    assert first[0].identity == origin[0].identity


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
    source = GEMINI
    assert files(source, tmp_path) == [file]
    found = read(source, file)
    (call,) = called(found)
    assert (call.name, call.lane, call.outcome) == ("git_hub_create_issue", "s9", CallOutcome.FAILED)
    assert said(found) == ["file a bug"]


def endings(found):
    return [(call.name, call.outcome) for call in called(found)]


def milliseconds(second):
    return 1_795_600_000_000 + 1_000 * second


def opencode_database(file, *rows):
    """Rows are (session, role, seconds, part), each in a separate message."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        for number, (session, role, second, part) in enumerate(rows):
            id_ = f"msg_{number:03}"
            data = part if isinstance(part, str) else json.dumps(part)
            database.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?)",
                (id_, session, milliseconds(second), json.dumps({"role": role, "agent": "build"})),
            )
            database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (f"prt_{number:03}", id_, session, data))
    database.close()
    return file


def opencode_call(name, call_id, status="completed", second=1, **more):
    time = {"start": milliseconds(second), "end": milliseconds(second) + 500}
    state = {"status": status, "input": {"title": "x"}, "time": time, **more}
    return {"type": "tool", "tool": name, "callID": call_id, "state": state}


def test_opencode_calls_are_read_from_its_database(tmp_path):
    refused = "The user rejected permission to use this specific tool call."
    call = opencode_call("git-hub_create_issue", "c1", output="fine", title="", metadata={"truncated": False})
    file = opencode_database(
        tmp_path / ".local" / "share" / "opencode" / "opencode.db",
        ("ses_1", "user", 0, {"type": "text", "text": "file a bug"}),
        ("ses_1", "user", 0, {"type": "text", "text": "the plan has changed", "synthetic": True}),
        ("ses_1", "assistant", 1, {"type": "step-start", "snapshot": "34aa"}),
        ("ses_1", "assistant", 1, call),
        ("ses_1", "assistant", 2, opencode_call("git-hub_boom", "c2", "error", error="no such issue")),
        ("ses_1", "assistant", 3, opencode_call("git-hub_boom", "c3", "error", error=refused)),
        ("ses_1", "assistant", 4, opencode_call("git-hub_boom", "c4", "error", error="MCP error -32001: timeout")),
        ("ses_1", "assistant", 5, opencode_call("bash", "c5", output="")),
        ("ses_1", "assistant", 5, opencode_call("apply_patch", "c6", output="")),
        ("ses_1", "assistant", 6, opencode_call("git-hub_boom", "c7", "running")),
        ("ses_1", "assistant", 7, {"type": "text", "text": "done"}),
        ("ses_1", "assistant", 8, '{"type":'),
        ("ses_2", "user", 9, {"type": "text", "text": "file a bug"}),
        ("ses_2", "assistant", 9, call),
    )
    source = OPENCODE
    assert files(source, tmp_path) == list_transcripts(source, [tmp_path]) == [file]
    found = read(source, file)
    assert said(found) == ["file a bug", "file a bug"]
    assert endings(found) == [
        ("git-hub_create_issue", CallOutcome.DONE),
        ("git-hub_boom", CallOutcome.FAILED),
        ("git-hub_boom", CallOutcome.NOT_RUN),
        ("git-hub_boom", CallOutcome.NOT_RUN),
        ("git-hub_create_issue", CallOutcome.DONE),
    ]
    first, *_, forked = called(found)
    assert (first.lane, forked.lane, first.identity) == ("ses_1", "ses_2", forked.identity)
    assert (first.ended - first.started, json.loads(first.arguments)) == (0.5, {"title": "x"})
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [12]


def cline_message(role, second, *blocks):
    return {"id": f"msg_{second}", "role": role, "content": [*blocks], "ts": milliseconds(second)}


def cline_result(call_id, content, **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": json.dumps(content), **more}


def test_cline_calls_are_read_from_the_messages_of_a_session(tmp_path):
    asked = '<user_input mode="act">file a bug</user_input>'
    uses = [
        {"type": "tool_use", "id": f"c{number}", "name": name, "input": {"title": "x"}}
        for number, name in enumerate(["hub__create_issue", "hub__boom", "hub__boom", "read_files"], 1)
    ]
    messages = [
        cline_message(
            "user", 0, {"type": "text", "text": "<mode_notice>x</mode_notice>"}, {"type": "text", "text": asked}
        ),
        cline_message("assistant", 1, {"type": "text", "text": "yes"}, *uses),
        cline_message("user", 3, cline_result("c1", {"content": [{"type": "text", "text": "fine"}], "isError": False})),
        cline_message("user", 4, cline_result("c2", {"content": [], "isError": True})),
        cline_message("user", 5, cline_result("c3", {"error": "MCP server is not connected."}, is_error=True)),
        cline_message("user", 6, cline_result("c4", "text")),
        "not a message",
    ]
    folder = tmp_path / ".cline" / "data" / "sessions" / "179_a"
    session = {"version": 1, "agent": "lead", "sessionId": "179_a", "messages": messages}
    file = folder / "179_a.messages.json"
    written(file, json.dumps(session, indent=2))
    written(folder / "179_a.json", {"session_id": "179_a"})
    agent = written(folder / "helper.messages.json", json.dumps({**session, "messages": messages[:3]}, indent=2))
    source = CLINE
    assert files(source, tmp_path) == [file, agent]
    found = read(source, file)
    assert said(found) == ["file a bug"]
    assert endings(found) == [
        ("hub__create_issue", CallOutcome.DONE),
        ("hub__boom", CallOutcome.FAILED),
        ("hub__boom", CallOutcome.NOT_RUN),
    ]
    first = called(found)[0]
    assert (first.lane, first.ended - first.started, json.loads(first.arguments)) == ("179_a", 2.0, {"title": "x"})
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [7]
    assert {each.lane for each in read(source, agent)} == {"179_a/helper"}
    assert [type(each) for each in read(source, written(folder / "b.messages.json", '{"messages": ['))] == [
        UnreadableLine
    ]


def copilot_event(kind, second, data, **more):
    return {"type": kind, "data": data, "id": f"e{second}", "timestamp": f"{DAY}{second:02}.000Z", **more}


def copilot_call(number, second, tool="boom", outcome=None, **more):
    server = {"mcpServerName": "hub", "mcpConfigServerName": "git-hub", "mcpToolName": tool} if tool else {}
    start = {"toolCallId": f"c{number}", "toolName": f"git-hub-{tool}", "arguments": {"title": "x"}, **server}
    end = {"toolCallId": f"c{number}", **(outcome or {"success": True, "result": {"content": "fine"}})}
    return [
        copilot_event("tool.execution_start", second, start, **more),
        copilot_event("tool.execution_complete", second + 1, end, **more),
    ]


def copilot_failure(code, category):
    telemetry = {"properties": {"failure_category": category, "failure_stage": "invoke"}}
    return {"success": False, "error": {"message": "no", "code": code}, "toolTelemetry": telemetry}


def test_copilot_calls_are_read_from_the_events_of_a_session(tmp_path):
    file = written(
        tmp_path / ".copilot" / "session-state" / "s1" / "events.jsonl",
        copilot_event("session.start", 0, {"sessionId": "s1", "version": 1, "producer": "copilot-agent"}),
        copilot_event("user.message", 1, {"content": "file a bug", "transformedContent": "<now>file a bug"}),
        copilot_event("user.message", 1, {"content": "how to read a file", "source": "skill-pdf"}),
        *copilot_call(1, 2, "create_issue"),
        *copilot_call(2, 4, outcome=copilot_failure("failure", "server_error")),
        *copilot_call(3, 6, outcome=copilot_failure("denied", "permission_denied")),
        *copilot_call(4, 8, outcome=copilot_failure("failure", "disconnected")),
        *copilot_call(5, 10, tool=None),
        *copilot_call(6, 12, "create_issue", agentId="a1"),
        {"type": "user.message", "data": {"content": "x"}, "timestamp": "yesterday"},
    )
    source = COPILOT
    assert files(source, tmp_path) == [file]
    found = read(source, file)
    assert said(found) == ["file a bug"]
    assert endings(found) == [
        ("create_issue", CallOutcome.DONE),
        ("boom", CallOutcome.FAILED),
        ("boom", CallOutcome.NOT_RUN),
        ("boom", CallOutcome.NOT_RUN),
        ("create_issue", CallOutcome.DONE),
    ]
    first, *_, agents = called(found)
    assert (first.server, first.lane, agents.lane) == ("git-hub", "s1", "s1/a1")
    assert (first.ended - first.started, json.loads(first.arguments)) == (1.0, {"title": "x"})
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [16]


def qwen_line(kind, second, **more):
    stamp = f"{DAY}{second:02}.000Z"
    return {"uuid": f"u{second}", "parentUuid": None, "sessionId": "s1", "timestamp": stamp, "type": kind, **more}


def qwen_call(number, second, name="mcp__git-hub__boom", result=None, **more):
    call = {"functionCall": {"id": f"c{number}", "name": name, "args": {"title": "x"}}}
    outcome = {"callId": f"c{number}", "status": "success", **(result or {})}
    return [
        qwen_line("assistant", second, message={"role": "model", "parts": [{"text": "yes"}, call]}, **more),
        qwen_line("tool_result", second + 1, message={"role": "user", "parts": []}, toolCallResult=outcome, **more),
    ]


def test_qwen_calls_are_read_from_its_chats(tmp_path):
    asked = {"role": "user", "parts": [{"text": "file a bug"}]}
    file = written(
        tmp_path / ".qwen" / "projects" / "-work" / "chats" / "s1.jsonl",
        qwen_line("user", 0, provenance="real_user", message=asked),
        qwen_line("user", 0, provenance="goal_runtime", message=asked),
        qwen_line("system", 0, provenance="system", subtype="ui_telemetry", systemPayload={"toolCallResult": 1}),
        *qwen_call(1, 1, "mcp__git-hub__create_issue"),
        *qwen_call(2, 3, result={"status": "error", "errorType": "mcp_tool_error"}),
        *qwen_call(3, 5, result={"status": "error", "errorType": "execution_denied"}),
        *qwen_call(4, 7, "read_file"),
        *qwen_call(5, 9, "mcp__git-hub__create_issue", agentId="a1", isSidechain=True),
        qwen_line("assistant", 11, message={"parts": [{"functionCall": "cut"}]}),
    )
    source = QWEN
    assert files(source, tmp_path) == [file]
    assert files(QWEN, tmp_path, QWEN_HOME=str(tmp_path / "elsewhere")) == []
    found = read(source, file)
    assert said(found) == ["file a bug"]
    assert endings(found) == [
        ("git-hub__create_issue", CallOutcome.DONE),
        ("git-hub__boom", CallOutcome.FAILED),
        ("git-hub__boom", CallOutcome.NOT_RUN),
        ("git-hub__create_issue", CallOutcome.DONE),
    ]
    first, *_, agents = called(found)
    assert (first.lane, agents.lane, first.ended - first.started) == ("s1", "s1/a1", 1.0)
    assert json.loads(first.arguments) == {"title": "x"}
    assert [each.line for each in found if isinstance(each, UnreadableLine)] == [14]


def with_directory(lines, *directories):
    return [{**each, "cwd": where} if where else each for each, where in zip(lines, directories, strict=True)]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            CLAUDE_CODE,
            with_directory(
                [line("user", "go on"), line("assistant", [use()]), line("user", [result()])], None, "/x", "/x/src"
            ),
        ),
        (CLAUDE_CODE, with_directory([line("assistant", [use()]), line("user", [result()])], "/x", None)),
        (CODEX, [META, ended()]),
        (CODEX, [META, event("session_meta", {"id": "origin", "cwd": "/other"}), ended()]),
        (QWEN, qwen_call(1, 1, cwd="/x")),
    ],
)
def test_a_call_tells_where_its_client_was_started(tmp_path, source, lines):
    (call,) = called(read(source, written(tmp_path / "s.jsonl", *lines)))
    assert call.directory == "/x"


def test_each_client_knows_its_own_transcripts(tmp_path):
    written_by = {
        "claude-code": written(tmp_path / "a.jsonl", {"type": "summary", "summary": "x"}),
        "codex": written(tmp_path / "b.jsonl", META),
        "gemini": written(tmp_path / "c.jsonl", {"sessionId": "s", "projectHash": "p"}),
        "opencode": opencode_database(tmp_path / "opencode.db"),
        "cline": written(tmp_path / "d.messages.json", json.dumps({"messages": []}, indent=2)),
        "copilot": written(tmp_path / "events.jsonl", copilot_event("session.start", 0, {})),
        "qwen": written(tmp_path / "e.jsonl", qwen_line("user", 0)),
    }
    for client, source in SOURCES.items():
        assert [each for each, file in written_by.items() if is_written_by(source, file)] == [client]
