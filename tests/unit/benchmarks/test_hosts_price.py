"""The prices of sessions by host, from small sets of sessions."""

import json
from pathlib import Path

import pytest
from benchmarks.hosts.price import group_hosts, main
from benchmarks.hosts.rows import Loading

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "where it is " * 20}}}
TOOLS = [
    {
        "name": f"s{number % 4}-{number}",
        "description": "does something",
        "server": f"s{number % 4}",
        "input_schema": SCHEMA,
    }
    for number in range(60)
]
NAMES = [tool["name"] for tool in TOOLS]


def write(directory: Path, sessions: list[list[str]]) -> None:
    (directory / "dev").mkdir(parents=True)
    (directory / "tools.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in TOOLS))
    rows = [{"id": str(number), "calls": calls} for number, calls in enumerate(sessions)]
    (directory / "dev" / "sessions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(data: Path, *options: str) -> int:
    return main(["--data", str(data), "--set", "small", "--tools", "60", "--learn", "10", "--judge", "5", *options])


def test_sessions_that_use_the_same_tools_cost_less_through_riglm_in_every_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "small", [[*NAMES[:3], NAMES[0], NAMES[3 + number]] for number in range(20)])
    assert run(tmp_path, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(group_hosts())
    for row in rows:
        assert row["pays"]
        requests = (row["no_proxy_requests"], row["search_requests"])
        assert requests == (6.0, 10.0)  # 5 calls, the last request, and 4 searches
        assert row["riglm"] < row["search"] < 1
        assert 0 < row["saved"] == round(row["search_requests"] - row["riglm_requests"], 1)
        assert 3 <= row["first_list"] < 20
    by_mode = {(row["loading"], row["surface"]): row["riglm"] for row in rows}
    search_tool = by_mode[Loading.SEARCHED, "stable"] - by_mode[Loading.ALL, "stable"]
    assert 0 < search_tool < 0.05  # the host has it next to riglm's list
    [hinted] = [row for row in rows if row["surface"] == "hints"]
    assert hinted["riglm_requests"] == 7.0  # the host searches for the one tool without a hint
    assert hinted["listed"] == 80.0


def test_sessions_in_which_no_tool_recurs_end_with_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "small", [NAMES[3 * number : 3 * number + 3] for number in range(15)])
    assert run(tmp_path) == 1
    assert "NO" in capsys.readouterr().out


def test_a_set_that_cannot_be_used_is_an_error_with_a_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "missing") == 2
    write(tmp_path / "small", [NAMES[:3]] * 10)
    assert run(tmp_path) == 2
    assert "fix: a smaller --learn" in capsys.readouterr().err
