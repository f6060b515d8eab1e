"""The study with a model, in front of a scripted one behind OpenAI's API."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from benchmarks.model_study.__main__ import main
from benchmarks.model_study.conversation import CallKind, ModelCall, classify, read_calls
from benchmarks.model_study.hosts import HOST_SEARCH
from benchmarks.model_study.results import summarize
from openai.types.chat import ChatCompletionMessage

SEARCH, CALL = "search_available_tools", "call_tool"
SETS = ("workbench", "taubench", "toolathlon")


class ScriptedModel:
    """Calls the tool that the last word of the task names, and searches for it if it is not loaded."""

    def __init__(self, *, searches: bool) -> None:
        self.requests: list[dict[str, Any]] = []
        self._searches = searches
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.requests.append(request)
                body = json.dumps(model.answer(request)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has it so
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        loaded = {tool["function"]["name"] for tool in request["tools"]}
        _, task, *rest = request["messages"]
        wanted = task["content"].split()[-1]
        found = any(message["role"] == "tool" and wanted in message["content"] for message in rest)
        search = loaded & {SEARCH, HOST_SEARCH}
        if wanted in loaded:
            message = call(wanted, {})
        elif found and CALL in loaded:
            message = call(CALL, {"name": wanted, "arguments": {}})
        elif search and self._searches:
            message = call(search.pop(), {"query": wanted})
        else:
            message = {"role": "assistant", "content": "I cannot do this."}
        usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    served = ScriptedModel(searches=True)
    yield served
    served.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three sets, of which one has sessions: the first tool of each of four servers is used often, others once."""
    kinds = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
    tools = [
        {"name": f"{server}.{kind}", "description": f"Does {kind} for {server}.", "server": server}
        for server in ("mail", "files", "maps", "music")
        for kind in kinds
    ]
    often = [tool["name"] for tool in tools if tool["name"].endswith(".alpha")]
    once = [tool["name"] for tool in tools if tool["name"] not in often]
    sessions = [(f"often {number}", often[number % 4]) for number in range(16)]
    sessions += [(f"once {number}", name) for number, name in enumerate(once)]
    for name in SETS:
        directory = tmp_path / "data" / name / "dev"
        directory.mkdir(parents=True)
        is_first = name == SETS[0]
        write(directory.parent / "tools.jsonl", tools if is_first else [])
        write(
            directory / "sessions.jsonl",
            [
                {"id": group, "group": group, "context": f"In {group}, use {tool.replace('.', '__')}", "calls": [tool]}
                for group, tool in sessions
                if is_first
            ],
        )
        write(directory / "queries.jsonl", [])
    return tmp_path / "data"


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(data: Path, url: str, *options: str, model: str = "scripted", tasks: int = 4) -> int:
    results = data.parent / "results"
    words = ["--base-url", url, "--model", model, "--data", str(data), "--results", str(results), "--at-once", "2"]
    return main([*words, "--tasks", str(tasks), *options])


def figures(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in json.loads(capsys.readouterr().out)["arms"]}


def test_a_model_that_searches_is_right_in_all_arms_and_an_interrupted_study_goes_on(data, model, capsys):
    assert run(data, model.url, "--json", tasks=2) == 0
    assert {row["tasks"] for row in figures(capsys).values()} == {2}
    before = len(model.requests)
    assert run(data, model.url, "--json") == 0
    found = figures(capsys)
    assert list(found) == ["all tools", "riglm", "search only", "riglm's hints"]
    for row in found.values():
        assert row["tasks"] == 4
        assert row["right"]["mean"] == row["first_right"]["mean"] == 100
    tasks = [request["messages"][1]["content"] for request in model.requests]
    assert not set(tasks[:before]) & set(tasks[before:])
    everything, riglm, search, hints = found.values()
    assert everything["requests"]["mean"] == 1
    assert search["hidden"]["mean"] == 100 == search["searched_when_hidden"]["mean"]
    assert search["requests"]["mean"] == 2
    assert search["tokens"] == {"mean": 200, "low": 200, "high": 200}
    assert search["difference"]["tokens"]["mean"] == 100
    for row in (riglm, hints):
        assert 0 < row["hidden"]["mean"] <= 100
        assert row["searched_when_hidden"]["mean"] == 100
        assert row["requests"]["mean"] == 1 + row["hidden"]["mean"] / 100


def test_a_model_that_does_not_search_misses_the_hidden_tools(data, capsys):
    model = ScriptedModel(searches=False)
    try:
        assert run(data, model.url, "--json", "--arms", "all tools", "riglm") == 0
    finally:
        model.close()
    row = figures(capsys)["riglm"]
    assert row["searched_when_hidden"]["mean"] == row["looked_up_when_hidden"]["mean"] == 0
    assert row["right"]["mean"] == 100 - row["hidden"]["mean"] < 100
    assert row["difference"]["right"]["mean"] == row["right"]["mean"] - 100


def test_results_of_a_different_model_are_not_mixed(data, model, capsys):
    assert run(data, model.url, "--arms", "all tools") == 0
    assert run(data, model.url, "--arms", "all tools", model="other") == 2
    assert "fix: name a new directory with --results" in capsys.readouterr().err


def test_a_trial_that_was_not_written_to_its_end_is_run_again(data, model, capsys):
    assert run(data, model.url, "--json", "--arms", "all tools") == 0
    file = data.parent / "results" / "trials.jsonl"
    file.write_text(file.read_text()[:-20])
    before, asked = figures(capsys), len(model.requests)
    assert run(data, model.url, "--json", "--arms", "all tools") == 0
    assert len(model.requests) == asked + 1
    assert figures(capsys)["all tools"]["tasks"] == before["all tools"]["tasks"] == 4
    assert [json.loads(line) for line in file.read_text().splitlines()][1:]


def test_without_a_model_the_trials_are_printed_that_are_there(data, model, capsys):
    results = data.parent / "results"
    assert main(["--results", str(results)]) == 0
    assert "there is no model" in capsys.readouterr().out
    assert run(data, model.url, "--json", "--arms", "all tools") == 0
    found = figures(capsys)
    model.close()
    assert main(["--results", str(results), "--json", "--arms", "all tools"]) == 0
    assert figures(capsys) == found
    (results / "trials.jsonl").write_text("{}\n{\n{}\n")
    assert main(["--results", str(results)]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_a_server_that_cannot_be_reached_is_named(data, model, capsys):
    model.close()
    assert run(data, model.url, "--arms", "all tools") == 2
    assert f"{model.url} cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"index": 0, "message": None}]}])
def test_an_answer_that_is_no_chat_completion_is_named(data, model, capsys, answer):
    model.answer = lambda _: answer
    assert run(data, model.url, "--arms", "all tools") == 2
    assert f"{model.url} cannot be used: its answer is no chat completion" in capsys.readouterr().err


def test_options_that_leave_no_task_are_refused(data, model, capsys):
    assert run(data, model.url, "--tools", "3") == 2
    assert "no task can be solved with 3 tools" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(data, model.url, "--at-once", "0")


def test_results_can_be_in_a_directory_that_is_named_relative_to_this_one(data, model, capsys, monkeypatch):
    monkeypatch.chdir(data.parent)
    assert run(data, model.url, "--json", "--arms", "riglm", "--results", "here", tasks=1) == 0
    assert figures(capsys)["riglm"]["tasks"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('```json\n{"name": "read", "arguments": {"path": "a"}}\n```', [("read", {"path": "a"})]),
        ('I call it. {"name": "read", "parameters": {"path": "{}"}} Then I stop.', [("read", {"path": "{}"})]),
        ('{"name": "read", "arguments": {"path": "a long', [("read", {})]),
        ('{"name": "call_tool", "arguments": {"name": "read", "arguments": {"pa', [("call_tool", {"name": "read"})]),
        ('{"title": "no call"}', []),
        ("No tool can do this.", []),
    ],
)
def test_calls_that_a_server_leaves_as_text_are_read(text, expected):
    assert read_calls(ChatCompletionMessage(role="assistant", content=text)) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("read", {}, CallKind.RIGHT),
        ("list", {}, CallKind.WRONG),
        ("write", {}, CallKind.WRONG),  # is right, but not listed: clients refuse it
        (CALL, {"name": "write"}, CallKind.RIGHT),
        (CALL, {"name": "delete"}, CallKind.WRONG),
        (CALL, {"name": "invented"}, CallKind.GUESS),
        (CALL, {"name": 5}, CallKind.WRONG),
        (CALL, {}, CallKind.WRONG),
        (CALL, {"name": CALL}, CallKind.WRONG),
        (SEARCH, {"query": "write"}, CallKind.SEARCH),
        (CALL, {"name": SEARCH}, CallKind.SEARCH),
        (HOST_SEARCH, {"query": "write"}, CallKind.WRONG),
    ],
)
def test_calls_count_by_what_is_listed(name, arguments, kind):
    offered, right = {"read", "list", SEARCH, CALL}, {"read", "write"}
    call = ModelCall(name, arguments)
    assert classify(call, offered, right=right, catalog={"read", "list", "write", "delete"}) is kind


def test_intervals_are_those_of_the_groups_and_differences_of_the_same_tasks():
    def trial(task: int, arm: str, *, right: bool) -> dict[str, Any]:
        numbers = {"tokens": 1, "requests": 1, "seconds": 1}
        return {
            "task": f"{task}",
            "group": f"{task // 5}",
            "arm": arm,
            "calls": [["a", "right" if right else "wrong"]],
            "is_hidden": False,
        } | numbers

    trials = [trial(task, "one", right=task < 5) for task in range(10)]
    trials += [trial(task, "two", right=task >= 5) for task in range(10)]
    one, two = summarize([*trials, trial(10, "one", right=True)], ["one", "two"], seed=1)
    assert one["tasks"] == 10
    assert one["right"] == {"mean": 50, "low": 0, "high": 100}  # two groups of tasks that are alike
    assert two["difference"]["right"] == {"mean": 0, "low": -100, "high": 100}
    assert one["searched_when_hidden"] is None
