"""Lines are read whatever wrote them, and what cannot be read is refused by file, line, reason and fix."""

import json
import os

import pytest

from riglm.application import json_lines
from riglm.application.evaluation.dataset import DatasetError, group_of, name_list, rows, text_of


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tools.jsonl"


def _names(file):
    return [row["name"] for row, _ in rows(file, key="name")]


@pytest.mark.parametrize(
    "written",
    [
        b'{"name": "a"}\n{"name": "b"}',
        b'\xef\xbb\xbf{"name": "a"}\n{"name": "b"}\n',
        b'{"name": "a"}\r\n\r\n{"name": "b"}\r\n',
        b'\n  \n{"name": "a"}\n\t{"name": "b"}  \n',
    ],
)
def test_byte_order_marks_line_ends_and_empty_lines_make_no_difference(file, written):
    file.write_bytes(written)
    assert _names(file) == ["a", "b"]


def test_the_place_counts_empty_lines(file):
    file.write_text('\n\n{"name": "a"}\n')
    assert [place for _, place in rows(file, key="name")] == [f"{file}:3"]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b"{", "this is not JSON (column "),
        (b"[]", "this is not a JSON object but a list"),
        (b"NaN", "this is not a JSON object but a number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"name": "b", "x": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"name": "\xff"}', "byte 11 is not UTF-8"),
        ('{"name": "b"}'.encode("utf-16"), "is not UTF-8"),
        (b'{"name": "a"}', "'name' is 'a' as on line 1"),
        (b'{"name": ""}', "'name' must be a text, not ''"),
        (b'{"name": 7}', "'name' must be a text, not 7"),
        (b'{"name": null}', "'name' must be a text, and is missing"),
        (b"{}", "'name' must be a text, and is missing"),
    ],
)
def test_a_wrong_line_is_refused_with_reason_and_fix(file, second, said):
    file.write_bytes(b'{"name": "a"}\n' + second + b"\n")
    with pytest.raises(DatasetError) as caught:
        _names(file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert said in str(caught.value)
    assert " — fix: " in str(caught.value)


def test_an_error_stays_short_however_much_is_wrong(file):
    file.write_text(json.dumps({"name": ["x" * 1000] * 1000}))
    with pytest.raises(DatasetError) as caught:
        _names(file)
    assert len(str(caught.value)) < len(str(file)) + 400


def test_a_line_without_end_is_not_read_to_its_end(file, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX", 100)
    file.write_bytes(b'{"name": "a"}\n{"name": "' + b"b" * 200 + b'"}\n')
    with pytest.raises(DatasetError, match=r"tools\.jsonl:2: the line is longer"):
        _names(file)


def _directory(file):
    file.mkdir()


def _pipe(file):
    os.mkfifo(file)


def _loop(file):
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_directory, "this is no file"),
        (_pipe, "this is no file"),
        (_loop, "symbolic links"),
        (lambda _: None, "No such file"),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(file, make, said):
    make(file)
    with pytest.raises(DatasetError, match=said) as caught:
        _names(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_values_of_other_kinds_are_refused_by_key_and_place():
    for read in (
        lambda: text_of({"k": 7}, "k", "file:1"),
        lambda: group_of({"group": ["g"]}, "file:1"),
        lambda: name_list(["a", 7], "k", "file:1"),
        lambda: name_list({"a": 1}, "k", "file:1"),
    ):
        with pytest.raises(DatasetError, match=r"file:1: '(k|group)' must be a .*, not .* — fix: "):
            read()


def test_what_may_be_missing_is_empty_when_it_is():
    assert (text_of({}, "k", "file:1"), text_of({"k": None}, "k", "file:1"), group_of({}, "file:1")) == ("", "", "")
    assert group_of({"group": 7}, "file:1") == "7"
