"""The audit log in a file: several writers, a damaged end, and a place that cannot be written."""

import errno
import json
import multiprocessing
import os
import shutil
import stat
import sys

import pytest

from riglm.adapters import audit as audit_file
from riglm.adapters.audit import AuditFile
from riglm.domain.audit import FIRST, AuditEvent, verify
from tests.waiting import wait_until

if sys.platform != "win32":
    import fcntl


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
    context = multiprocessing.get_context("fork")
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


@pytest.mark.parametrize("torn", [b"x", b"x" * 999_000, b"\xff\n" * 1_750, b"\n"])
def test_a_damaged_end_leaves_the_chain_whole(tmp_path, torn):
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    with path.open("ab") as file:
        file.write(torn)
    written(path, "c")
    found = verify(path.read_text("utf-8", "replace").splitlines(), FIRST)
    assert found.is_intact
    assert found.last == verify(path.read_text("utf-8", "replace").splitlines()[-1:]).last


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


def test_a_cut_line_is_told_from_a_changed_removed_or_added_one(tmp_path):
    path = tmp_path / "audit.jsonl"
    written(path, *"abcd")
    lines = path.read_text().splitlines()
    for at, text in ((2, "{"), (2, ""), (4, lines[0][:-9])):
        found = verify([*lines[:at], text, *lines[at:]], FIRST)
        assert (found.is_intact, found.cut, found.last) == (True, (at + 1,), verify(lines).last)
    for changed in (
        [lines[0], lines[1][:20], *lines[2:]],
        [lines[0], lines[1].replace("tool_called", "tool_refused"), *lines[2:]],
        [lines[0], "{", *lines[2:]],
        [*lines[:2], "{}", *lines[2:]],
    ):
        assert not verify(changed, FIRST).is_intact


def test_a_failed_write_leaves_no_part_of_a_line(tmp_path, monkeypatch, caplog):
    path = tmp_path / "audit.jsonl"
    written(path, "a")
    before = path.read_bytes()
    write = os.write

    def fill_disk(descriptor, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:-10])

    monkeypatch.setattr(os, "write", fill_disk)
    written(path, "b")
    assert path.read_bytes() == before
    assert "1 audit records could not be written before the end" in caplog.text


def test_each_outage_is_reported_with_what_it_lost(tmp_path, caplog):
    folder = tmp_path / "folder"
    file = AuditFile(str(folder / "audit.jsonl"))

    def record(outcome):
        file.record(AuditEvent.TOOL_CALLED, {"tool": "a"})
        wait_until(lambda: caplog.text.count("audit records are") == outcome)

    for outage in range(2):
        folder.touch()
        record(2 * outage + 1)
        folder.unlink()
        record(2 * outage + 2)
        shutil.rmtree(folder)
    file.close()
    assert caplog.text.count("audit records are lost: ") == 2
    assert caplog.text.count("audit records are written again; 1 were lost") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="locks the file with flock")
def test_the_records_of_a_locked_file_wait_and_are_counted_at_the_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(audit_file, "_CLOSE_SECONDS", 0.01)
    path = tmp_path / "audit.jsonl"
    with path.open("a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        file = AuditFile(str(path))
        file.record(AuditEvent.TOOL_CALLED, {"tool": "a"})
        wait_until(lambda: file._in_hand == 1)
        file.close()
        assert "1 audit records could not be written before the end" in caplog.text
    file._thread.join(60)
    assert len(path.read_text().splitlines()) == 1
