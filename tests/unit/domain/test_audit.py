"""The chain of audit records."""

import json
from hashlib import sha256

import pytest

from riglm.domain.audit import FIRST, chained, hash_of, verify


@pytest.fixture
def lines():
    made, previous = [], FIRST
    for number in range(5):
        line, previous = chained({"event": "tool_called", "tool": f'odd "name" \ud83d {number}', "n": number}, previous)
        made.append(line)
    return made


def test_a_chain_is_whole(lines):
    found = verify(lines, FIRST)
    assert (found.lines, found.faults) == (5, ())
    assert found.last == json.loads(lines[-1])["hash"] == hash_of(lines[-1])
    assert verify([]).last == FIRST


@pytest.mark.parametrize("at", range(4))
def test_a_line_that_is_missing_is_noticed_by_the_next_one(lines, at):
    del lines[at]
    assert [line for line, _ in verify(lines, FIRST).faults] == [at + 1]


def test_changed_added_and_exchanged_lines_are_noticed(lines):
    changed = [*lines[:2], lines[2].replace('"n":2', '"n":7'), *lines[3:]]
    assert [line for line, _ in verify(changed).faults] == [3]
    added = [*lines[:2], chained({"event": "tool_called"}, FIRST)[0], *lines[2:]]
    assert [line for line, _ in verify(added).faults] == [3, 4]
    exchanged = [lines[0], lines[2], lines[1], *lines[3:]]
    assert [line for line, _ in verify(exchanged).faults] == [2, 3, 4]
    assert [line for line, _ in verify(["", "{}", lines[0][:40], *lines]).faults] == [1, 2, 3]


def test_the_end_is_noticed_by_a_hash_that_was_kept(lines):
    assert verify(lines[:3]).last != hash_of(lines[-1])
    assert verify(lines[3:], hash_of(lines[2])).faults == ()
    assert verify(lines[3:]).faults == ()
    assert verify(lines[3:], FIRST).faults


@pytest.mark.parametrize("body", ["no JSON", "[1]", "7", '{"previous":7'])
def test_a_line_that_is_no_record_is_a_fault_whatever_its_hash(body):
    digest = sha256((body + "}").encode()).hexdigest()
    line = f'{body},"hash":"{digest}"}}'
    assert hash_of(line) == digest
    assert verify([line]).faults == ((1, "this line was changed, or is incomplete"),)
