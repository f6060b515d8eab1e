"""Lines are read whatever wrote them, and what cannot be read is refused with reason and fix."""

import os

import pytest

from riglm.application.knowledge.lines import InvalidLineError, UnreadableFileError, numbered_lines, object_of


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines.jsonl"


@pytest.mark.parametrize(
    "written",
    [
        b'{"a": 1}\n{"a": 2}',
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'{"a": 1}\n\t{"a": 2}  \n',
    ],
)
def test_byte_order_marks_and_line_ends_make_no_difference(file, written):
    file.write_bytes(written)
    assert [object_of(line) for _, line in numbered_lines(file)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "this is not JSON (column "),
        (b"[]", "this is not a JSON object but a list"),
        (b"NaN", "this is not a JSON object but a number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a": "\xff"}', "byte 8 is not UTF-8"),
    ],
)
def test_a_wrong_line_is_refused_with_reason_and_fix(line, reason):
    with pytest.raises(InvalidLineError) as caught:
        object_of(line)
    assert reason in str(caught.value)
    assert " — fix: " in str(caught.value)


def test_a_line_without_end_is_not_read_to_its_end(file, monkeypatch):
    monkeypatch.setattr("riglm.application.knowledge.lines.MAX", 100)
    file.write_bytes(b"{}\n" + b"b" * 200 + b"\n{}")
    lines = dict(numbered_lines(file))
    assert {number: len(line) for number, line in lines.items()} == {1: 3, 2: 101, 3: 2}
    with pytest.raises(InvalidLineError, match="longer than"):
        object_of(lines[2])


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to(path), str])
def test_what_is_no_readable_file_is_refused_and_not_waited_for(file, make):
    make(file)
    with pytest.raises(UnreadableFileError, match=r"lines\.jsonl: .* — fix: "):
        list(numbered_lines(file))
