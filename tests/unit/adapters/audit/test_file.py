"""The audit log in a file: several writers, a damaged end, and a place that cannot be written."""

import json
import multiprocessing
import stat

import pytest

from riglm.adapters.audit.file import AuditFile
from riglm.domain.audit import FIRST, AuditEvent, verify


def written(path, *tools):
    file = AuditFile(str(path))
    for tool in tools:
        file.record(AuditEvent.TOOL_CALLED, {"tool": tool})
    file.close()


def test_records_are_in_order_and_follow_each_other_over_several_openings(tmp_path):
    path = tmp_path / "new" / "audit.jsonl"
    written(path, "a", "b\n\ud83d")
    written(path, "c")
    lines = path.read_text().splitlines()
    assert [json.loads(line)["tool"] for line in lines] == ["a", "b\n\ud83d", "c"]
    assert verify(lines, FIRST).faults == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_processes_append_to_one_chain(tmp_path):
    path = tmp_path / "audit.jsonl"
    names = [[f"{process}-{number}" for number in range(200)] for process in range(4)]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=written, args=(path, *each)) for each in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    lines = path.read_text().splitlines()
    assert verify(lines, FIRST).faults == ()
    tools = [json.loads(line)["tool"] for line in lines]
    assert sorted(tools) == sorted(name for each in names for name in each)
    assert all([tool for tool in tools if tool in each] == each for each in names)


def test_a_line_that_a_crash_cut_off_is_the_only_fault(tmp_path):
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    with path.open("a") as file:
        file.write('{"event":"tool_ca')
    written(path, "c")
    found = verify(path.read_text().splitlines(), FIRST)
    assert [line for line, _ in found.faults] == [3]
    assert found.lines == 4


def test_a_place_that_cannot_be_written_is_reported_once(tmp_path, caplog):
    (tmp_path / "file").touch()
    written(tmp_path / "file" / "audit.jsonl", "a", "b")
    assert caplog.text.count("audit records are lost") == 1


def test_standard_error_is_a_place(capfd):
    file = AuditFile("-")
    for tool in "abc":
        file.record(AuditEvent.TOOL_REFUSED, {"tool": tool, "reason": "held"})
    file.close()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    assert verify(lines, FIRST).faults == ()


@pytest.mark.parametrize("event", AuditEvent)
def test_each_record_has_a_time_and_an_event(tmp_path, event):
    file = AuditFile(str(tmp_path / "audit.jsonl"))
    file.record(event, {"tool": "a"})
    file.close()
    record = json.loads((tmp_path / "audit.jsonl").read_text())
    assert list(record) == ["time", "event", "tool", "previous", "hash"]
    assert record["event"] == event.value


def test_a_text_of_any_length_leaves_the_chain_whole(tmp_path):
    for _ in range(2):
        audit = AuditFile(str(tmp_path / "audit.jsonl"))
        audit.record(AuditEvent.TOOL_REFUSED, {"tool": "x" * 3_000_000})
        audit.record(AuditEvent.TOOL_CALLED, {"tool": "read"})
        audit.close()
    lines = (tmp_path / "audit.jsonl").read_text("ascii").splitlines()
    assert verify(lines).faults == ()
    assert max(map(len, lines)) < 2_000
